"""What a reply says of its row's options: claims, found by patterns over the classes of its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from localeval.tasks.mcq.segment import Segment

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
    # "The answer is (B)", "Answer (in one letter): B"; with words between: "The answer to the question is B"
    ("marker", rf"(?<!X)A(?:[fKBOQA=:,(\-nSe]|{_LINES}){{0,12}}(?P<x>[DLlT])"),
    ("marker", rf"(?<!X)A[fwKBOQAn,&|cS()\-]{{0,16}}[=:e](?:[fKBOASUn=:(,e]|{_LINES}){{0,6}}w{{0,3}}(?P<x>[DLT])"),
    ("marker", r"(?<![XN0])O[=:][=:fK]{0,3}(?P<x>[DL])(?==?(?:[.,\n)O]|$))"),
    # "The answer is not B but C"
    ("marker", r"N[fO=]{0,3}[DLT],?[UV][fO=w]{0,3}(?P<x>[DLT])"),
    ("contrast", r"[DLlT][,fw=]{0,3}N[=f]{0,2}[,UV][UVf]{0,2}[fO=w]{0,3}(?P<x>[DL])(?![fw=]{0,3}N)"),
    # "The most likely explanation is (C)", "the correct option is\n\nC"
    ("superlative", rf"[KB](?:[fKBOQ,&|n\-]|w(?!w{{8}})){{0,18}}[=:](?:[fKBOU=:(,\-S]|{_LINES}){{0,5}}w?(?P<x>[DLT])"),
    ("superlative", r"[KB](?P<x>[DL])(?==|[.\n]|$)"),
    ("superlative", rf"[KB]O(?:[:f(\-=]|{_LINES}){{0,4}}(?P<x>[DLl])"),
    # "wait, no: C", "I meant D", "on second thought, it is (J)"
    ("revision", r"(?:V|X,=)[,fw=:VSAKOU]{0,8}(?P<x>[DL])(?=[=f]{0,2}(?:[.,\n)z]|$))"),
    ("revision", r"V[N,]{0,3}[^.?\nNXDL]{0,24}:(?P<x>[DL])(?=[.\n]|$)"),
    ("revision", r"(?P<x>[DL])[=fw]{0,2}V[=fw]{0,2}(?:[.\n]|$)"),
    # "\boxed{C}"
    ("boxed", r"Z[fOK=A:(\-n,]{0,6}(?P<x>[DLlT])"),
    # "I choose C", "which leaves us with option A"
    ("choice", r"P[fwKOB=:,(A]{0,6}(?P<x>[DL])"),
    ("choice", r"P[fwKOB=:,(A]{0,3}(?P<x>T)(?=[.\n]|$)"),
    ("choice", r"(?P<x>[DL])(?:f[fw]{0,2}P[=fw]{0,2}|[fw\-]{0,3}P[=f]{0,2})(?:[.,\n]|$)"),
    # "So B.", "Therefore, option B."
    ("conclusion", r"S[,fw=OKB:c]{0,6}(?P<x>[DL])(?=[=f]{0,2}(?:[.\n)z]|$))"),
    # "... is B. Cold gas."
    ("own text", rf"[=:](?:[fO(,=w]{{0,4}}|(?:[f(,=w]|{_LINES}){{0,4}})(?P<x>D)(?=[.,\n)z(c:]|$)"),
    # "That makes four. (Option B)"
    ("closing", r"\([fK]?O[fK]?(?P<x>[DL])\)?[.\n)z]*$"),
]
_BEFORE_VERDICT = r"(?:(?<![wKAnTN0])|(?<=[S,:]w)|(?<=[S,:].w)|(?<=S..w)|(?<=S...w))"
_VERDICTS = [
    # "B is the correct answer", "Option C, ..., is the most appropriate choice", "D is the only option that"
    (Strength.ANSWER, rf"{_BEFORE_VERDICT}(?P<x>[DL])[,(]?T?[,)]?[f,]{{0,3}}[=S](?:[fw=S,BK]){{0,6}}[AO]"),
    (Strength.ANSWER, rf"{_BEFORE_VERDICT}(?P<x>[DL])[,fTS]{{0,4}}=[fwS=,]{{0,4}}B"),
    # "Uranus is the answer"
    (Strength.ANSWER, r"(?:^|[\n.,S])f?(?P<x>T)=f?[KB]{0,2}A"),
    # "only C"
    (Strength.VERDICT, r"(?:^|[,.\nSU])[f]?B(?P<x>[DL])(?=[fw])"),
    # "B is correct", "B सही है"
    (Strength.VERDICT, rf"{_BEFORE_VERDICT}(?P<x>[DL])[,(]?T?[,)]?[f,O]{{0,3}}[=:f,wSBOP\-]{{0,6}}K"),
    (Strength.VERDICT, rf"{_BEFORE_VERDICT}(?P<x>[DL])[,(]?T?[,)]?[f,]{{0,3}}[=f,wS]{{0,5}}B"),
]
_DENIALS = [
    r"(?P<x>[DLl])[,Tf)]{0,3}[=fw,:SKAOb]{0,5}(?:X(?![fO]{0,2}[DL])|N(?=[fwB]{0,3}[KAOB]|[=fU]?(?:[.,;\n)]|$)))",
    r"(?<![DLlT])(?<![DLlT][f=,w])(?:[N0][fOA=]{0,4}|X[fO]{0,2})(?P<x>[DL])(?:(?:,?[&|N]+|,(?=[fO]{0,2}[DL],?[&|]))[fO]{0,2}[DL])*",
]
_OUTSIDE = [
    # "The answer is none of the above", "the answer is incorrect"
    re.compile(rf"A(?:[fKBOQ=:,(\-e]|{_LINES}){{0,8}}w{{0,2}}(?P<x>[0F])"),
    re.compile(r"A[=f]{1,3}(?P<x>X)[.\n]"),
    # "Actually, I take that back ... I don't know"
    re.compile(r"V[^DL]{0,60}(?P<x>F)"),
]
_PATTERNS = [
    *((name, Strength.ANSWER, re.compile(pattern)) for name, pattern in _MARKERS),
    *(("verdict", strength, re.compile(pattern)) for strength, pattern in _VERDICTS),
]
_DENYING = [re.compile(pattern) for pattern in _DENIALS]


def is_ignored(segment: Segment, at: int, begin: int) -> bool:
    """Whether what is said at a word is supposed, reported, asked, or an example of the format.

    begin: where the pattern that found it begins.
    """
    _, end = segment.sentence(at)
    first, _ = segment.sentence(begin)
    before = segment.kinds[first:at]
    heading = segment.kinds[segment.sentence(first - 1)[0] : first] if first else ""
    if before == "" and re.search(r"[Xh][^.\n]*:\n+$", heading):
        return True  # "Why the others are wrong:"
    if re.search("F[^,:U]*$", before):
        return True
    if "E" in before and not set(before[before.rfind("E") :]) & set("VUS"):
        return True
    reported, supposed = before.rfind("R"), before.rfind("I")
    if reported >= 0 and not re.search(r"[UDLl]|[=PwL],", before[reported:]):
        return True
    if supposed >= 0 and not re.search("(?<!/)[DLl]", before[supposed:]):
        would = segment.conditional & set(range(first + supposed, end))
        if would or not re.search("[SU]", before[supposed:]):
            return True
    after = segment.kinds[at + 1 : min(end, at + 6)]
    if "I" in after:
        return True
    return end < len(segment.kinds) and segment.kinds[end] == "?" and ":" not in before


def _is_talked_of(segment: Segment, begin: int, at: int) -> bool:
    """Whether "answer A" is only what a sentence is about: "Answer A would take 20 s and does not fit"."""
    _, end = segment.sentence(at)
    rest = re.split("[DLlT]", segment.kinds[at + 1 : end])[0]
    return set(segment.kinds[begin:at]) <= set("Af") and bool(set(rest) & set("NX"))


def claims_of(segment: Segment, letters: str) -> list[Claim]:
    """Return the claims of a segment, in order: one a word, the strongest."""
    found: dict[int, Claim] = {}

    def take(claim: Claim) -> None:
        known = found.get(claim.at)
        if known is None or claim.strength > known.strength:
            found[claim.at] = claim

    for pattern in _OUTSIDE:
        for match in pattern.finditer(segment.kinds):
            take(Claim("", match.start("x"), "none of them", Strength.ANSWER, "outside"))
    denied = set(_denials(segment))
    for at in denied:
        found[at] = Claim(segment.words[at].letter, at, "denial", Strength.ANSWER, "denied")
    for name, strength, match in _matches(segment):
        at = match.start("x")
        if at in denied or is_ignored(segment, at, match.start()):
            continue
        if name == "contrast" and segment.words[match.start()].letter == segment.words[at].letter:
            continue  # "not A, Godavari is ..." goes on about A
        if name == "marker" and _is_talked_of(segment, match.start(), at):
            continue
        claim = _claim(segment, at, name, strength, letters)
        if claim is not None:
            take(claim)
    judged = _judged(segment, letters)
    if judged is not None:
        take(Claim(segment.words[judged].letter, judged, "judged", Strength.VERDICT))
    return sorted(found.values(), key=lambda claim: claim.at)


def _judged(segment: Segment, letters: str) -> int | None:
    """Return the one option that a list of all options calls right, if it calls all others wrong."""
    items = sorted(segment.listed)
    if [segment.words[at].letter for at in items] != list(letters):
        return None
    ends = [*items[1:], len(segment.kinds)]
    regions = [segment.kinds[at + 1 : end] for at, end in zip(items, ends, strict=True)]
    verdicts = [re.sub(r"[^KXN]", "", region)[:1] for region in regions]
    right = [at for at, verdict in zip(items, verdicts, strict=True) if verdict == "K"]
    wrong = sum(verdict in ("X", "N") for verdict in verdicts)
    return right[0] if len(right) == 1 and wrong == len(items) - 1 else None


def _matches(segment: Segment) -> Iterator[tuple[str, Strength, re.Match[str]]]:
    for name, strength, pattern in _PATTERNS:
        for match in _overlapping(pattern, segment.kinds):
            yield name, strength, match


def _overlapping(pattern: re.Pattern[str], kinds: str) -> Iterator[re.Match[str]]:
    """Matches that may begin inside the last one, but not before its label."""
    at = 0
    while match := pattern.search(kinds, at):
        yield match
        at = max(match.start() + 1, match.start("x") + 1)


def _claim(segment: Segment, at: int, name: str, strength: Strength, letters: str) -> Claim | None:
    word = segment.words[at]
    joined = segment.joined.get(at, frozenset())
    if len(joined) < 2 and name == "verdict":
        joined = segment.both(at)
    if len(joined) > 1:
        if set(joined) == set(letters) and name == "marker" and "E" in segment.kinds[max(0, at - 8) : at + 8]:
            return None
        return Claim("", at, name, strength, "several")
    if at in segment.listed or (name == "own text" and segment.begins_a_list(at)):
        return None
    if name == "verdict" and _concludes(segment, at):
        strength = Strength.ANSWER
    return Claim(word.letter, at, name, strength, "asserted", word.differs)


def _concludes(segment: Segment, at: int) -> bool:
    """Whether a sentence begins with a word as "therefore", and names no other option: "Therefore B is correct."."""
    start, end = segment.sentence(at)
    return "S" in segment.kinds[start:at] and len(segment.letters(start, end)) == 1


def _denials(segment: Segment) -> Iterator[int]:
    for pattern in _DENYING:
        for match in _overlapping(pattern, segment.kinds):
            between = segment.kinds[match.start() : match.end()]
            if "K" in between and "N" not in between:
                continue
            at = match.start("x")
            yield at
            for place in range(at + 1, match.end()):
                if segment.words[place].letter:
                    yield place
