"""The parts of a reply: where it goes on with another turn or question, and what each part lists and joins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from localeval.tasks.mcq.languages import lexicon_for
from localeval.tasks.mcq.options import Options
from localeval.tasks.mcq.scan import Scanner, Word
from localeval.tasks.mcq.tokens import tokenize

_TURN = re.compile(
    r"""<\|?(?:im_end|im_start|eot_id|end_of_turn|start_of_turn|endoftext|end|user|assistant|eoa|eos|eol|return)\|?>
      | </s> | \[/?INST\]
      | ^[ \t\#*=]*(?:
          (?:user|human|assistant|system|instruction|student|teacher)\b[^\n:]{0,30}:
          | (?:response|input|output)(?:[ \t]*: | [*\# =]+$)
        )""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
"""The end of a turn, or the name of who speaks next."""
_QUESTION = re.compile(r"(?:^|\n)[fB]?(?P<q>Q)(?:n|[fnp]{0,3}(?=[:.\n\-]|$))|(?P<y>Y)")
"""A line that opens another question, or a sentence that sums up the answers to several."""
_JOINED = re.compile(r"[DLl]T?(?:(?:[,/&|b\-]|\n(?=-))*(?:(?<=[,/&|b\-])[fO]{0,2})?[DLl]T?)+")
_CALLS_FOR_ONE = re.compile(r"[AK][=:f\-]{1,4}\n*$")


class Segment:
    """A part of a reply: its words, and their classes as a string.

    conditional: the places of "would be". lists: the labels of each list of options. joined: the letters that are
    joined to a label, as in "A and C".
    """

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
            first, second = self.words[places[0]], self.words[places[1]]
            if first.opens or (first.dressed and not second.dressed and places[1] == places[0] + 1):
                continue  # what follows is the option's text
            denied = re.search(r"[N0X][fO=]{0,2}$", self.kinds[: match.start()])
            if denied and (len(places) < 3 or set("&|") & set(match[0])):
                continue  # none of them
            letters = frozenset(self.words[at].letter for at in places)
            for at in places:
                found[at] = letters
        return found

    def both(self, at: int) -> frozenset[str]:
        """Return the letters between a "both" and a word of the same sentence: "Both B and D are right"."""
        start, _ = self.sentence(at)
        both = self.kinds.rfind("b", start, at)
        return self.letters(both, at + 1) if both >= 0 else frozenset()

    def letters(self, start: int = 0, end: int | None = None) -> frozenset[str]:
        """Return the letters of the options that some words name."""
        return frozenset(word.letter for word in self.words[start:end] if word.letter)

    def begins_a_list(self, at: int) -> bool:
        """Whether a label at the end begins a list of options anew, and was cut there."""
        before = [place for place in self.listed if place < at]
        if not before or any(word.letter for word in [*self.words[max(before) + 1 : at], *self.words[at + 1 :]]):
            return False
        first = min(before)
        same = self.kinds[at - 3 : at] == self.kinds[first - 3 : first]
        is_bare = self.kinds[at - 1 : at] == "\n" and self.kinds[at] == "L"
        return (same or is_bare) and self.words[at].letter == self.words[first].letter

    def sentence(self, at: int) -> tuple[int, int]:
        """Return where the sentence of a word begins and ends."""
        start = max(self.kinds.rfind(sign, 0, at) for sign in ".?\n") + 1
        ends = [end for sign in ".?\n" if (end := self.kinds.find(sign, at)) >= 0]
        return start, min(ends, default=len(self.kinds))


def _lists(kinds: str, words: Sequence[Word]) -> list[list[int]]:
    """Return the labels of each list of options: "A) x  B) y ..."."""
    runs: list[list[int]] = []
    for at, word in enumerate(words):
        if word.kind in "DLlT" and _is_item(kinds, words, at):
            step = ord(word.letter) - ord(words[runs[-1][-1]].letter) if runs else 0
            follows = step == 1 or (step > 1 and word.kind != "T" and kinds[at - 1 : at] == "\n")
            if follows and _is_answer(kinds, runs[-1][-1]):
                follows = False
            if not follows or _CALLS_FOR_ONE.search(kinds[max(0, at - 6) : at]):
                runs.append([])
            runs[-1].append(at)
    return [run for run in runs if _is_list(run, words, kinds)]


def _is_answer(kinds: str, at: int) -> bool:
    """Whether a label is called for, and has a line of its own: "Answer: (A) Salt"."""
    return _CALLS_FOR_ONE.search(kinds[max(0, at - 6) : at]) is not None and kinds[at + 1 : at + 3] == "\n\n"


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


def segments(text: str, options: Options) -> Iterator[Segment]:
    """Cut a reply where it goes on with another turn or question, and scan each part."""
    start = 0
    for match in [*_TURN.finditer(text), None]:
        part = text[start : match.start() if match else len(text)]
        start = match.end() if match else len(text)
        if part.strip():
            tokens = tokenize(part)
            words = Scanner(part, tokens, options, lexicon_for(tokens)).words()
            yield from _questions(words)


def _questions(words: Sequence[Word]) -> Iterator[Segment]:
    """Cut at the questions of its own with which a reply goes on."""
    kinds = "".join(word.kind for word in words)
    cuts = [0]
    for match in _QUESTION.finditer(kinds):
        at = match.start("q") if match["q"] else kinds.rfind("\n", 0, match.start()) + 1
        if at > cuts[-1]:
            cuts.append(at)
    cuts.append(len(words))
    for start, end in pairwise(cuts):
        if not any(word.letter or word.kind in "F0" for word in words[start:end]):
            continue
        segment = Segment(words[start:end])
        foreign = _foreign(segment)
        if foreign is None:
            yield segment
        elif "Q" not in segment.kinds[:3]:
            yield Segment(words[start : start + foreign])


def _foreign(segment: Segment) -> int | None:
    """Return where a list of options begins that are not this row's, after a question; None if there is none."""
    for items in segment.lists:
        own = sum(segment.words[at].kind == "D" for at in items)
        if segment.words[items[0]].letter == "A" and 2 * own <= len(items) - (len(items) == 2):
            line = segment.kinds.rfind("\n", 0, items[0])
            stem = segment.kinds[line - 1 : line] == "=" and not own
            if stem or "Q" in segment.kinds[:3] or "?" in segment.kinds[max(0, line - 1) : items[0]]:
                return items[0]
    return None
