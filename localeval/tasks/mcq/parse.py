"""Multiple choice: a reply -> the letter that it answers with, by what it claims."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from localeval.reply import Tags, shortened, without_reasoning
from localeval.tasks.mcq.claims import Claim, Strength, claims_of, is_ignored
from localeval.tasks.mcq.options import options_of
from localeval.tasks.mcq.segment import Segment, segments
from localeval.tasks.mcq.tokens import plain

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


def read(
    reply: str,
    choices: Sequence[str],
    finish_reason: str = "stop",
    reasoning_opened: bool = False,
    reasoning_tags: Sequence[Tags] = (),
) -> Reading:
    """Read a reply to a prompt that may have opened the reasoning itself, with the model's own ``reasoning_tags``."""
    options = options_of(tuple(choices))
    answer = without_reasoning(reply, reasoning_opened, reasoning_tags)
    if answer is None or (not answer.strip() and reply.strip()):
        return Reading(None, "reasoning")
    text = plain(shortened(answer))
    refused = False
    complete = finish_reason != "length"
    for segment in segments(text, options):
        claim = _deciding(segment, options.letters, complete)
        if claim is not None:
            if claim.polarity == "asserted":
                return Reading(claim.letter, None, claim.differs, claim)
            return Reading(None, "several" if claim.polarity == "several" else "no_claim", False, claim)
        refused = refused or "F" in segment.kinds or "0" in segment.kinds
    return Reading(None, "refused" if refused else "cut" if finish_reason == "length" else "no_claim")


# --- which claim decides ---

_WHOLE = re.compile(r"[\n(.:f=SO]*(?P<x>[DLl])[.\n),AO=]*$")
_FIRST = re.compile(r"[\n(]*[Of:]{0,3}\n*(?:(?P<x>L)[^\nAE]*(?:\n|$)|(?P<y>D))")
_THE_WRONG = re.compile(r"X[fwOAK]{0,5}[=:][f:]{0,2}(?P<x>[DL])(?![&|,/f]{1,2}[LD])")
"""What answers a question for the statement that is not right: "The incorrect statement is C."."""
_TEXT_LINE = re.compile(r"[\n(:]*[fB]?(?P<x>T)[)]*(?=[\n.])")
_SUBJECT = re.compile(r"[\n(:]*(?:[fB]?(?P<x>T)=[^NXEIR?0F.]*|f{1,3}=[fB]?(?P<y>T)(?:[,Sf][^NXEIR?0F.]*)?)\.")
"""An option's text as all that a sentence is about: "Paris is the capital of it.", or "The statement is false."."""
_TEXT_LAST = re.compile(r"(?:\n|[.:]f?)(?P<x>T)[.)\n]*$")
_LAST = re.compile(r"(?:\n|[.?:])[\nSfO:,(]{0,9}(?P<x>[DL])[.)\n]*$")
_LINE = re.compile(r"\n[(:]*(?P<x>[LD])[.)]*(?=\n|$)")
_CLOSING = re.compile(r"(?:[O|]f?(?P<x>[DL])\)?|[fO=,](?P<y>[DL])=|=f?(?P<z>[DL]))[.\n)z]*$")
_TEXT = re.compile(r"[\n(:.]*[fBw]{0,2}(?P<x>T)(?:[(,][^\nTDL]{0,8}|w{0,2})[.\n)]*$")


def _deciding(segment: Segment, letters: str, complete: bool) -> Claim | None:
    """Return the claim that decides a segment, or None if it claims nothing. complete: whether it was not cut."""
    claims = claims_of(segment, letters)
    if not complete:  # what a last sentence that was cut says of an option is not known
        cut = max(segment.kinds.rfind(sign) for sign in ".?\n")
        claims = [claim for claim in claims if claim.at <= cut or _is_whole(claim)]
    denied = frozenset(claim.at for claim in claims if claim.polarity == "denied")
    verdicts = {claim.letter for claim in claims if claim.strength == Strength.VERDICT and claim.polarity == "asserted"}
    current: Claim | None = None
    for claim in _before_a_run(segment, claims):
        if claim.polarity == "denied":
            if current is not None and current.letter == claim.letter and current.polarity == "asserted":
                current = Claim("", claim.at, "denial", claim.strength, "outside")
            continue
        if current is None or claim.strength >= current.strength or current.polarity == "outside":
            current = claim
    several = current is not None and current.strength == Strength.VERDICT and len(verdicts) > 1
    if current is not None and current.strength >= Strength.VERDICT and not several:
        return current
    mention = _mentioned(segment, denied, complete) or (_concluded(segment, denied) if complete else None)
    if mention is not None and mention.letter not in {*verdicts, *(segment.words[at].letter for at in denied)}:
        return mention
    return Claim("", current.at, "verdicts", Strength.VERDICT, "several") if several and current else current


def _is_whole(claim: Claim) -> bool:
    """Whether a claim stands in a sentence that was cut after it: "The answer is B" does, "So the width of B" not."""
    return claim.strength == Strength.ANSWER and claim.said != "conclusion"


_BETWEEN = re.compile(r"[.)\nfS:nA=KO,]*")


def _before_a_run(segment: Segment, claims: Sequence[Claim]) -> Sequence[Claim]:
    """Return the claims up to where a reply runs through answers, one after the other, with nothing between them.

    The first of them is this question's if something stands before it; if not, they are all that the reply says.
    """
    strong = [claim for claim in claims if claim.strength == Strength.ANSWER and claim.polarity == "asserted"]
    for first in range(len(strong) - 2):
        run = strong[first : first + 1]
        for claim in strong[first + 1 :]:
            if not _BETWEEN.fullmatch(segment.kinds, run[-1].at + 1, claim.at):
                break
            run.append(claim)
        if len(run) > 2 and len({claim.letter for claim in run}) > 1:
            start = run[0].at
            if "w" in segment.kinds[:start]:
                return [claim for claim in claims if claim.at <= start]
            return [Claim("", start, "run", Strength.ANSWER, "several")]
    return claims


def _mentioned(segment: Segment, denied: frozenset[int], complete: bool) -> Claim | None:
    """Return what a segment without a claim names by itself: a label alone, or an option's text."""
    if match := _THE_WRONG.search(segment.kinds):
        return _mention(segment, match.start("x"), "the wrong one")
    never = {*segment.listed, *segment.joined, *denied}
    for pattern in (_WHOLE, _FIRST, _LAST, _CLOSING) if complete else (_WHOLE, _FIRST):
        match = pattern.match(segment.kinds) if pattern in (_WHOLE, _FIRST) else pattern.search(segment.kinds)
        if match and (at := match.start(match.lastgroup or "x")) not in never and _is_alone(segment, at, match.end()):
            return _mention(segment, at, "alone")
    alone = [match.start("x") for match in _LINE.finditer(segment.kinds)]
    if len({segment.words[at].letter for at in alone}) == 1 and not never & set(alone):
        return _mention(segment, alone[-1], "alone")
    match = _SUBJECT.match(segment.kinds)
    if match and complete and len(segment.letters()) == 1:
        return _mention(segment, match.start(match.lastgroup or "x"), "text")
    if complete and (first := _only_text(segment)) is not None:
        return _mention(segment, first, "text")
    match = _TEXT.match(segment.kinds) or _TEXT_LINE.match(segment.kinds) or _TEXT_LAST.search(segment.kinds)
    return _mention(segment, match.start("x"), "text") if match else None


def _mention(segment: Segment, at: int, said: str) -> Claim:
    return Claim(segment.words[at].letter, at, said, Strength.MENTION, differs=segment.words[at].differs)


def _only_text(segment: Segment) -> int | None:
    """Return the option's text that a first sentence states, if nothing else is named, asked or declined."""
    said = segment.kinds[: segment.sentence(0)[1]]
    first = next((at for at in range(len(said)) if segment.words[at].letter), None)
    if first is None or len(segment.letters()) != 1:
        return None
    states = not set(said) & set("NXEIR|") and not set(segment.kinds) & set("F0?")
    return first if states and segment.words[first].spoken else None


def _is_alone(segment: Segment, at: int, end: int) -> bool:
    """Whether a label stands by itself, and nothing up to ``end`` names another."""
    word = segment.words[at]
    set_off = word.dressed or segment.kinds[at + 1 : at + 2] in tuple("\n,c.):-AzO=") or at + 1 == len(segment.kinds)
    alone = word.opens or word.kind == "D" or not set(segment.kinds[at + 1 : end]) & set("LlD")
    numeral = word.letter == "I" and word.kind == "L" and segment.kinds[at + 1 : at + 2] in (".", ":")  # "I. If ..."
    return set_off and alone and not numeral and not segment.begins_a_list(at) and not is_ignored(segment, at, at)


def _concluded(segment: Segment, denied: frozenset[int]) -> Claim | None:
    """Return the option that the last sentence names, if it concludes, and names no other."""
    last = len(segment.kinds.rstrip(".\n)"))
    start, end = segment.sentence(last - 1)
    said = segment.kinds[start:end]
    if not last or set(said) & set("NXEIR?0F|"):
        return None
    named = [at for at in range(start, end) if segment.words[at].letter and at not in denied]
    if len({segment.words[at].letter for at in named}) == 1 and segment.kinds[named[-1]] in "DL":
        at = named[-1]
        if segment.kinds[at - 1] == "n":
            return None  # "6 J"
        concludes = set("KAOP") & set(said) or ("S" in said and segment.kinds[at - 1] != "w")
        return _mention(segment, at, "conclusion") if concludes else None
    return _text_concluded(segment, start, end)


def _text_concluded(segment: Segment, start: int, end: int) -> Claim | None:
    """Return the option whose text a last sentence names, if it is the only one there, or the only one in bold."""
    said = segment.kinds[start:end]
    named = [at for at in range(start, end) if segment.words[at].kind == "T"]
    is_all = "S" in said or not segment.kinds[:start].strip("\n")
    if not is_all or said.count("n") + said.count("T") > 1:  # a number among others is no answer
        named = [at for at in named if segment.words[at].spoken]
    chosen = [at for at in named if segment.words[at].dressed] or named
    letters = {segment.words[at].letter for at in chosen}
    if len(letters) != 1:
        return None
    at = chosen[-1]
    others = segment.letters() - letters
    before = segment.kinds[start:at]
    concludes = segment.words[at].dressed or "S" in before or not others
    return _mention(segment, at, "conclusion") if concludes and set("wS") & set(before) else None
