"""Multiple choice: a reply -> the letter that it answers with, by what it claims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from localeval.reply import without_reasoning
from localeval.tasks.mcq.claims import Claim, Said, Strength, claims_of
from localeval.tasks.mcq.languages import lexicon_for
from localeval.tasks.mcq.options import Options, options_of
from localeval.tasks.mcq.scan import Scanner, Word
from localeval.tasks.mcq.tokens import plain, tokenize

MOST_READ = 16_384
Reason = Literal["reasoning", "several", "refused", "cut", "no_claim"]
"""Why a reply gives no letter: it never left its reasoning, names two options, declines, was cut, or says none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply answers: a letter, or None with the reason. claim: what decided."""

    letter: str | None
    reason: Reason | None = None
    label_mismatch: bool = False
    claim: Claim | None = None


def parse_choice(reply: str, choices: Sequence[str], finish_reason: str = "stop") -> str | None:
    """Return the letter that a reply answers with, or None if it gives none, or more than one.

    choices: the option texts in order. A reply that was cut is read as far as it goes. Raises ValueError for fewer than
    2 or more than 26 choices.
    """
    return read(reply, choices, finish_reason).letter


def read(reply: str, choices: Sequence[str], finish_reason: str = "stop", reasoning_opened: bool = False) -> Reading:
    """Read a reply to a prompt that may have opened the reasoning itself."""
    options = options_of(tuple(choices))
    answer = without_reasoning(reply, reasoning_opened)
    if answer is None or (not answer.strip() and reply.strip()):
        return Reading(None, "reasoning")
    if len(answer) > MOST_READ:
        answer = answer[: MOST_READ // 2] + "\n" + answer[-MOST_READ // 2 :]
    text = plain(answer)
    refused = False
    complete = finish_reason != "length"
    for segment in _segments(text, options):
        claim = decide(segment, options, complete)
        if claim is not None:
            if claim.polarity == "asserted":
                return Reading(claim.letter, None, claim.differs, claim)
            return Reading(None, "several" if claim.polarity == "several" else "no_claim", False, claim)
        refused = refused or "F" in segment.kinds or "0" in segment.kinds
    return Reading(None, "refused" if refused else "cut" if finish_reason == "length" else "no_claim")


# --- the part that answers this question ---

_TURN = re.compile(
    r"<\|?(?:im_end|im_start|eot_id|end_of_turn|start_of_turn|endoftext|end|user|assistant|eoa|eos|eol|return)\|?>|</s>|\[/?INST\]"
    r"|^[ \t#*=]*(?:(?:user|human|assistant|system|instruction|student|teacher)\b[^\n:]{0,30}:|(?:response|input|output)(?:[ \t]*:|[*# =]+$))",
    re.IGNORECASE | re.MULTILINE,
)


def _segments(text: str, options: Options) -> Iterator[Said]:
    """Cut a reply where it goes on with another turn or question, and scan each part."""
    start = 0
    for match in [*_TURN.finditer(text), None]:
        part = text[start : match.start() if match else len(text)]
        start = match.end() if match else len(text)
        if part.strip():
            tokens = tokenize(part)
            words = Scanner(part, tokens, options, lexicon_for(tokens)).words()
            yield from _questions(words)


_QUESTION = re.compile(r"(?:^|\n)[fB]?(?P<q>Q)(?:n|[fnp]{0,3}(?=[:.\n\-]|$))|(?P<y>Y)")


def _questions(words: Sequence[Word]) -> Iterator[Said]:
    """Cut at the questions of its own with which a reply goes on."""
    kinds = "".join(word.kind for word in words)
    cuts = [0]
    for match in _QUESTION.finditer(kinds):
        at = match.start("q") if match["q"] else kinds.rfind("\n", 0, match.start()) + 1
        if at > cuts[-1]:
            cuts.append(at)
    cuts.append(len(words))
    for start, end in zip(cuts, cuts[1:], strict=False):
        if not any(word.letter or word.kind in "F0" for word in words[start:end]):
            continue
        said = Said(words[start:end])
        foreign = _foreign(said)
        if foreign is None:
            yield said
        elif "Q" not in said.kinds[:3]:
            yield Said(words[start : start + foreign])


def _foreign(said: Said) -> int | None:
    """Return where a list of options begins that are not this row's, after a question; None if there is none."""
    for items in said.lists:
        own = sum(said.words[at].kind == "D" for at in items)
        if said.words[items[0]].letter == "A" and 2 * own <= len(items) - (len(items) == 2):
            line = said.kinds.rfind("\n", 0, items[0])
            if "Q" in said.kinds[:3] or "?" in said.kinds[max(0, line - 1) : items[0]]:
                return items[0]
    return None


# --- which claim decides ---

_WHOLE = re.compile(r"[\n(.:f=SO]*(?P<x>[DLl])[.\n),AO=]*$")
_FIRST = re.compile(r"[\n(]*[Of:]{0,3}\n*(?:(?P<x>L)[^\nAE]*(?:\n|$)|(?P<y>D))")
_THE_WRONG = re.compile(r"X[fwOAK]{0,5}(?:[=:][f:]{0,2}|(?<=O)f?)(?P<x>[DL])(?![&|,/f]{1,2}[LD])")
"""What answers a question for the statement that is not right: "The incorrect statement is C."."""
_TEXT_LINE = re.compile(r"[\n(:]*(?P<x>T)[.)]*(?=\n)")
_LAST = re.compile(r"(?:\n|[.?:])[\nSfO:,(]{0,9}(?P<x>[DL])[.)\n]*$")
_LINE = re.compile(r"\n[(:]*(?P<x>[LD])[.)]*(?=\n|$)")
_CLOSING = re.compile(r"(?:[O|]f?(?P<x>[DL])\)?|[fO=,](?P<y>[DL])=)[.\n)z]*$")
_TEXT = re.compile(r"[\n(:.]*[fBw]{0,2}(?P<x>T)(?:[(,][^\nTDL]{0,8}|w{0,2})[.\n)]*$")


def decide(said: Said, options: Options, complete: bool = True) -> Claim | None:
    """Return the claim that decides a segment, or None if it claims nothing. complete: whether it was not cut."""
    claims = claims_of(said, options.letters)
    denied = frozenset(claim.at for claim in claims if claim.polarity == "denied")
    current: Claim | None = None
    for claim in _before_a_run(said, claims):
        if claim.polarity == "denied":
            if current is not None and current.letter == claim.letter and current.polarity == "asserted":
                current = Claim("", claim.at, "denial", claim.strength, "outside")
            continue
        if current is None or claim.strength >= current.strength or current.polarity == "outside":
            current = claim
    if current is not None and current.strength >= Strength.VERDICT:
        return current
    return _mentioned(said, denied) or (_concluded(said) if complete else None) or current


_BETWEEN = re.compile(r"[.)\nfS:nA=KO,]*")


def _before_a_run(said: Said, claims: Sequence[Claim]) -> Sequence[Claim]:
    """Return the claims up to where a reply runs through answers, one after the other, with nothing between them.

    The first of them is this question's if something stands before it; if not, they are all that the reply says.
    """
    strong = [claim for claim in claims if claim.strength == Strength.ANSWER and claim.polarity == "asserted"]
    for first in range(len(strong) - 2):
        run = strong[first : first + 1]
        for claim in strong[first + 1 :]:
            if not _BETWEEN.fullmatch(said.kinds, run[-1].at + 1, claim.at):
                break
            run.append(claim)
        if len(run) > 2 and len({claim.letter for claim in run}) > 1:
            start = run[0].at
            if "w" in said.kinds[:start]:
                return [claim for claim in claims if claim.at <= start]
            return [Claim("", start, "run", Strength.ANSWER, "several")]
    return claims


def _mentioned(said: Said, denied: frozenset[int]) -> Claim | None:
    """Return what a segment without a claim names by itself: a label alone, or an option's text as its conclusion."""
    if match := _THE_WRONG.search(said.kinds):
        word = said.words[match.start("x")]
        return Claim(word.letter, match.start("x"), "the wrong one", Strength.MENTION, "asserted", word.differs)
    for pattern in (_WHOLE, _FIRST, _LAST, _CLOSING):
        match = pattern.match(said.kinds) if pattern in (_WHOLE, _FIRST) else pattern.search(said.kinds)
        if match and (at := match.start(match.lastgroup or "x")) not in {*said.listed, *said.joined, *denied}:
            word = said.words[at]
            is_alone = word.dressed or said.kinds[at + 1 : at + 2] in (
                "",
                "\n",
                ",",
                "c",
                ".",
                ")",
                ":",
                "-",
                "A",
                "z",
                "O",
                "=",
            )
            names_others = (
                not word.opens and word.kind != "D" and bool(set(match[0][at + 1 - match.start() :]) & set("LlD"))
            )
            if (
                is_alone
                and not names_others
                and not said.ignored(at, at)
                and not said.begins_a_list(at)
                and not said.is_numeral(at)
            ):
                return Claim(word.letter, at, "alone", Strength.MENTION, "asserted", word.differs)
    alone = [match.start("x") for match in _LINE.finditer(said.kinds)]
    if len({said.words[at].letter for at in alone}) == 1 and not {*said.listed, *denied} & set(alone):
        word = said.words[alone[-1]]
        return Claim(word.letter, alone[-1], "alone", Strength.MENTION, "asserted", word.differs)
    match = _TEXT.match(said.kinds) or _TEXT_LINE.match(said.kinds)
    if match:
        return Claim(said.words[match.start("x")].letter, match.start("x"), "text", Strength.MENTION)
    return None


def _concluded(said: Said) -> Claim | None:
    """Return the option whose text the last sentence names, if it is the only one there, or the only one in bold."""
    last = len(said.kinds.rstrip(".\n)"))
    start, end = said.sentence(last - 1)
    if not last or set(said.kinds[start : last + 1]) & set("NXEIR?0F|"):
        return None
    named = [at for at in range(start, end) if said.words[at].kind == "T"]
    is_last_word = "S" in said.kinds[start:end] or not said.kinds[:start].strip("\n")
    if not is_last_word or sum(said.kinds[start:end].count(kind) for kind in "nT") > 1:
        named = [at for at in named if said.words[at].spoken]
    bold = [at for at in named if said.words[at].dressed]
    chosen = bold or named
    if len({said.words[at].letter for at in chosen}) != 1:
        return None
    at = chosen[-1]
    letter = said.words[at].letter
    others = {word.letter for word in said.words if word.letter} - {letter}
    if (bold or "S" in said.kinds[start:at] or not others) and "w" in said.kinds[start:at]:
        return Claim(letter, at, "conclusion", Strength.MENTION)
    return None
