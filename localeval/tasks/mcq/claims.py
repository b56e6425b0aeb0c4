"""What a reply says of its row's options: claims, found by patterns over the classes of its words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from localeval.tasks.mcq.scan import Word

Polarity = Literal["asserted", "denied", "several", "outside"]


class Strength(IntEnum):
    """How much a way of saying counts: a stronger one is not undone by a weaker one after it."""

    MENTION = 1
    VERDICT = 2
    ANSWER = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """A place where a reply says something of an option.

    letter: of which; empty for several or none. at: the word's place. said: how, as the name of a pattern.
    """

    letter: str
    at: int
    said: str
    strength: Strength
    polarity: Polarity = "asserted"
    differs: bool = False


_LINES = r"\n{1,3}"
_MARKERS = [
    # "The answer is (B)", "Answer: B", "Answer (in one letter): B"; with words between: "The answer to the question is B"
    ("marker", rf"(?<!X)A(?:[fKBOQA=:,(\-nSe]|{_LINES}){{0,12}}(?P<x>[DLlT])"),
    ("marker", rf"(?<!X)A[fwKBOQAn,&|cS()\-]{{0,16}}[=:e](?:[fKBOASUn=:(,e]|{_LINES}){{0,6}}w{{0,3}}(?P<x>[DLT])"),
    ("marker", r"(?<![XN0])O[=:][=:fK]{0,3}(?P<x>[DL])(?==?(?:[.,\n)O]|$))"),
    # "The answer is not B but C"
    ("marker", r"N[fO=]{0,3}[DLT],?[UV][fO=w]{0,3}(?P<x>[DLT])"),
    ("marker", r"N[fO=]{0,3}[DLT],[fO=]{0,3}(?P<x>[DLT])[=f]{0,2}(?:[.\n]|$)"),
    ("marker", r"[DLlT][,fw=]{0,3}N[=f]{0,2}[,UV][UVf]{0,2}[fO=w]{0,3}(?P<x>[DLT])(?![fw=]{0,3}N)"),
    # "The most likely explanation is (C)", "the correct option is\n\nC"
    ("superlative", rf"[KB](?:[fKBOQ,&|n\-]|w(?!w{{8}})){{0,18}}[=:](?:[fKBOU=:(,\-S]|{_LINES}){{0,5}}w?(?P<x>[DLT])"),
    ("superlative", r"[KB](?P<x>[DL])(?==|[.\n]|$)"),
    ("superlative", rf"[KB]O(?:[:f(\-=]|{_LINES}){{0,4}}(?P<x>[DLl])"),
    # "wait, no: C", "I meant D", "on second thought, it is (J)"
    ("revision", r"(?:V|X,=)[,fw=:VSAKOU]{0,8}(?P<x>[DL])(?=[=f]{0,2}(?:[.,\n)z]|$))"),
    ("revision", r"(?P<x>[DL])[=f]{0,2}V[=fw]{0,2}(?:[.\n]|$)"),
    # "\boxed{C}"
    ("boxed", r"Z[fOK=A:(\-n,]{0,6}(?P<x>[DLlT])"),
    # "I choose C", "which leaves us with option A"
    ("choice", r"P[fwKOB=:,(A]{0,6}(?P<x>[DL])"),
    ("choice", r"(?P<x>[DL])(?:f[fw]{0,2}P[=fw]{0,2}|[fw\-]{0,3}P[=f]{0,2})(?:[.,\n]|$)"),
    # "So B.", "Therefore, option B."
    ("conclusion", r"S[,fw=OKB:c]{0,6}(?P<x>[DL])(?=[=f]{0,2}(?:[.\n)z]|$))"),
    # "... is B. Cold gas."
    ("own text", rf"[=:](?:[fO(,=w]{{0,4}}|(?:[f(,=w]|{_LINES}){{0,4}})(?P<x>D)"),
    # "That makes four. (Option B)"
    ("closing", r"\([fK]?O[fK]?(?P<x>[DL])\)?[.\n)z]*$"),
]
_BEFORE_VERDICT = r"(?:(?<![wKAnTN0])|(?<=[S,:]w)|(?<=[S,:].w))"
_VERDICTS = [
    # "B is the correct answer", "Option C, ..., is the most appropriate choice", "D is the only option that"
    (Strength.ANSWER, rf"{_BEFORE_VERDICT}(?P<x>[DL])[,(]?T?[,)]?[f,]{{0,3}}[=S](?:[fw=S,BK]){{0,6}}[AO]"),
    (Strength.ANSWER, rf"{_BEFORE_VERDICT}(?P<x>[DL])[,fTS]{{0,4}}=[fwS=,]{{0,4}}B"),
    # "only C"
    (Strength.VERDICT, r"(?:^|[,.\nSU])[f]?B(?P<x>[DL])(?=[fw])"),
    # "B is correct", "B सही है"
    (Strength.VERDICT, rf"{_BEFORE_VERDICT}(?P<x>[DL])[,(]?T?[,)]?[f,O]{{0,3}}[=:f,wSB\-]{{0,5}}K"),
    (Strength.VERDICT, rf"{_BEFORE_VERDICT}(?P<x>[DL])[,(]?T?[,)]?[f,]{{0,3}}[=f,wS]{{0,5}}B"),
]
_DENIALS = [
    r"(?P<x>[DLl])[,Tf)]{0,3}[=fw,:SKAOb]{0,5}(?:X(?![fO]{0,2}[DL])|N(?=[fwB]{0,3}[KAOB]|[=fU]?(?:[.,;\n)]|$)))",
    r"A[fKBO=:w]{0,8}[N][f=O]{0,3}(?P<x>[DLlT])",
    r"(?<![DLlT])(?<![DLlT][f=,w])(?:[N0][fOA=]{0,4}|X[fO]{0,2})(?P<x>[DL])(?:(?:,?[&|N]+|,(?=[fO]{0,2}[DL],?[&|]))[fO]{0,2}[DL])*",
]
_OUTSIDE = [
    # "The answer is none of the above", "the answer is incorrect"
    re.compile(rf"A(?:[fKBOQ=:,(\-e]|{_LINES}){{0,8}}w{{0,2}}(?P<x>[0F])"),
    re.compile(r"A[=f]{1,3}(?P<x>X)[.\n]"),
]
_MARKERS_C = [(name, re.compile(pattern)) for name, pattern in _MARKERS]
_VERDICTS_C = [(strength, re.compile(pattern)) for strength, pattern in _VERDICTS]
_DENIALS_C = [re.compile(pattern) for pattern in _DENIALS]
_JOINED = re.compile(r"(?P<x>[DLl])T?(?:(?:[,/&|b\-]|\n(?=-))*(?:(?<=[,/&|b\-])[fO]{0,2})?[DLl]T?)+")


class Said:
    """A segment of a reply: its words, and their classes as a string."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        kinds = "".join(word.kind for word in words)
        self.conditional = frozenset(at for at, kind in enumerate(kinds) if kind == "~")
        self.kinds = kinds.replace("~", "=")
        self.lists = _lists(self.kinds, words)
        self.listed = frozenset(at for items in self.lists for at in items)
        self.joined = self._joined()

    def _joined(self) -> dict[int, frozenset[str]]:
        """Return the letters that are joined to a label: "A and C"."""
        found: dict[int, frozenset[str]] = {}
        for match in _JOINED.finditer(self.kinds):
            places = [at for at in range(match.start(), match.end()) if self.words[at].letter]
            if self.words[places[0]].opens or (self.words[places[0]].dressed and places[1] == places[0] + 1):
                continue  # what follows is the option's text
            if re.search(r"[N0X][fO=]{0,2}$", self.kinds[: match.start()]):
                continue  # none of them
            letters = frozenset(self.words[at].letter for at in places)
            for at in places:
                found[at] = letters
        return found

    def both(self, at: int) -> frozenset[str]:
        """Return the letters between a "both" and a word of the same sentence: "Both B and D are right"."""
        start, _ = self.sentence(at)
        both = self.kinds.rfind("b", start, at)
        return frozenset(word.letter for word in self.words[both : at + 1] if word.letter) if both >= 0 else frozenset()

    def begins_a_list(self, at: int) -> bool:
        """Whether a label at the end begins a list of options anew, and was cut there."""
        before = [place for place in self.listed if place < at]
        if not before or any(word.letter for word in [*self.words[max(before) + 1 : at], *self.words[at + 1 :]]):
            return False
        first = min(before)
        same = self.kinds[at - 3 : at] == self.kinds[first - 3 : first]
        is_bare = self.kinds[at - 1 : at] == "\n" and self.kinds[at] == "L"
        return (same or is_bare) and self.words[at].letter == self.words[first].letter

    def is_numeral(self, at: int) -> bool:
        """Whether a label is the Roman numeral of a first statement: "I. If ..."."""
        return self.words[at].letter == "I" and self.kinds[at] == "L" and self.kinds[at + 1 : at + 2] in (".", ":")

    def sentence(self, at: int) -> tuple[int, int]:
        """Return where the sentence of a word begins and ends."""
        start = max(self.kinds.rfind(sign, 0, at) for sign in ".?\n") + 1
        ends = [end for sign in ".?\n" if (end := self.kinds.find(sign, at)) >= 0]
        return start, min(ends, default=len(self.kinds))

    def ignored(self, at: int, begin: int) -> bool:
        """Whether what is said at a word is supposed, reported, asked, or an example of the format.

        begin: where the pattern that found it begins.
        """
        start, end = self.sentence(at)
        first, _ = self.sentence(begin)
        before = self.kinds[first:at]
        heading = self.kinds[self.sentence(first - 1)[0] : first] if first else ""
        if before == "" and re.search(r"[Xh][^.\n]*:\n+$", heading):
            return True  # "Why the others are wrong:"
        if "E" in before and not set(before[before.rfind("E") :]) & set("VUS"):
            return True
        reported, supposed = before.rfind("R"), before.rfind("I")
        if reported >= 0 and not re.search(r"[UDLl]|[=PwL],", before[reported:]):
            return True
        if supposed >= 0 and not re.search("[DLl]", before[supposed:]):
            would = self.conditional & set(range(first + supposed, end))
            if would or not re.search("[SU]", before[supposed:]):
                return True
        after = self.kinds[at + 1 : min(end, at + 6)]
        if "I" in after:
            return True
        return end < len(self.kinds) and self.kinds[end] == "?" and ":" not in before


def claims_of(said: Said, letters: str) -> list[Claim]:
    """Return the claims of a segment, in order: one a word, the strongest."""
    found: dict[int, Claim] = {}

    def take(claim: Claim) -> None:
        known = found.get(claim.at)
        if known is None or claim.strength > known.strength:
            found[claim.at] = claim

    for pattern in _OUTSIDE:
        for match in pattern.finditer(said.kinds):
            take(Claim("", match.start("x"), "none of them", Strength.ANSWER, "outside"))
    denied = {at for at in _denials(said)}
    for at in denied:
        found[at] = Claim(said.words[at].letter, at, "denial", Strength.ANSWER, "denied")
    for name, strength, match in _matches(said):
        at = match.start("x")
        if at in denied or said.ignored(at, match.start()):
            continue
        claim = _claim(said, at, name, strength, letters)
        if claim is not None:
            take(claim)
    judged = _judged(said, letters)
    if judged is not None:
        take(Claim(said.words[judged].letter, judged, "judged", Strength.VERDICT))
    return sorted(found.values(), key=lambda claim: claim.at)


def _judged(said: Said, letters: str) -> int | None:
    """Return the one option that a list of all options calls right, if it calls all others wrong."""
    items = sorted(said.listed)
    if [said.words[at].letter for at in items] != list(letters):
        return None
    ends = [*items[1:], len(said.kinds)]
    regions = [said.kinds[at + 1 : end] for at, end in zip(items, ends, strict=True)]
    verdicts = [re.sub(r"[^KXN]", "", region)[:1] for region in regions]
    right = [at for at, verdict in zip(items, verdicts, strict=True) if verdict == "K"]
    wrong = sum(verdict in ("X", "N") for verdict in verdicts)
    return right[0] if len(right) == 1 and wrong == len(items) - 1 else None


def _matches(said: Said) -> Iterator[tuple[str, Strength, re.Match[str]]]:
    for name, pattern in _MARKERS_C:
        for match in _overlapping(pattern, said.kinds):
            yield name, Strength.ANSWER, match
    for strength, pattern in _VERDICTS_C:
        for match in _overlapping(pattern, said.kinds):
            yield "verdict", strength, match


def _overlapping(pattern: re.Pattern[str], kinds: str) -> Iterator[re.Match[str]]:
    """Matches that may begin inside the last one, but not before its label."""
    at = 0
    while match := pattern.search(kinds, at):
        yield match
        at = max(match.start() + 1, match.start("x") + 1)


def _claim(said: Said, at: int, name: str, strength: Strength, letters: str) -> Claim | None:
    word = said.words[at]
    joined = said.joined.get(at, frozenset())
    if len(joined) < 2 and name == "verdict":
        joined = said.both(at)
    if len(joined) > 1:
        if set(joined) == set(letters) and name == "marker" and "E" in said.kinds[max(0, at - 8) : at + 8]:
            return None
        return Claim("", at, name, strength, "several")
    if at in said.listed or (name == "own text" and said.begins_a_list(at)):
        return None
    return Claim(word.letter, at, name, strength, "asserted", word.differs)


def _denials(said: Said) -> Iterator[int]:
    for pattern in _DENIALS_C:
        for match in _overlapping(pattern, said.kinds):
            between = said.kinds[match.start() : match.end()]
            if "K" in between and "N" not in between:
                continue
            at = match.start("x")
            yield at
            for place in range(at + 1, match.end()):
                if said.words[place].letter:
                    yield place


def _lists(kinds: str, words: Sequence[Word]) -> list[list[int]]:
    """Return the labels of each list of options: "A) x  B) y ..."."""
    runs: list[list[int]] = []
    for at, word in enumerate(words):
        if word.kind in "DLlT" and _is_item(kinds, words, at):
            step = ord(word.letter) - ord(words[runs[-1][-1]].letter) if runs else 0
            follows = step == 1 or (step > 1 and word.kind != "T" and kinds[at - 1 : at] == "\n")
            if not follows or _HEAD.search(kinds[max(0, at - 6) : at]):
                runs.append([])
            runs[-1].append(at)
    return [run for run in runs if _is_list(run, words, kinds)]


_HEAD = re.compile(r"[AK][=:f\-]{1,4}\n*$")


def _is_item(kinds: str, words: Sequence[Word], at: int) -> bool:
    before, after = kinds[at - 1 : at] if at else "\n", kinds[at + 1 : at + 2]
    if words[at].kind == "T":
        return words[at].spoken and before in "\n.:,-" and after in ("\n", ".", ",", "")
    if before == "O":
        return False
    if before + after in ("\n\n", "\n", "¦¦"):
        return True  # a label by itself on a line, or in a cell of a table
    if after in (".", ":") and words[at].kind != "D" and before not in "\n.,:-¦":
        return False  # the end of a sentence
    return words[at].dressed and (words[at].kind == "D" or after != "\n")


def _is_list(run: Sequence[int], words: Sequence[Word], kinds: str) -> bool:
    """Whether labels that follow each other are a list; two are one only if the second is not commented on."""
    if len(run) != 2:
        return len(run) > 2
    if "T" in (kinds[run[0]], kinds[run[1]]):
        return False
    own = sum(words[at].kind == "D" for at in run)
    commented = words[run[1]].kind != "D" and re.match(r"[.:)]?[=XKN]", kinds[run[1] + 1 : run[1] + 3]) is not None
    return not commented and (own == 2 or words[run[0]].letter == "A")
