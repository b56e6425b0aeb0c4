"""A reply as a row of classes: its words by the lexicon, its labels, and the texts of its row's options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from localeval.tasks.mcq.labels import CLOSING, OPENING, Label, Labels
from localeval.tasks.mcq.languages import Lexicon
from localeval.tasks.mcq.options import Options, keys_of
from localeval.tasks.mcq.tokens import BOLD, BOX, BOX_END, Token

_SIGNS = {
    **dict.fromkeys(".!。।॥", "."), **dict.fromkeys("?؟", "?"), **dict.fromkeys(":→➔➡⇒", ":"), "=": "e",
    **dict.fromkeys("-–—−", "-"), **dict.fromkeys(",;、،؛", ","), "(": "(", ")": ")", "/": "/", "|": "¦", "&": "&",
    "\n": "\n", BOX: "Z", BOX_END: "z", **dict.fromkeys("\"'“”‘’«»‹›[]{}【】「」『』*<>" + BOLD, ""),
}  # fmt: skip
"""Sign -> its class; none for quotes and brackets, which only dress what is in them."""
_BEFORE_TEXT = frozenset([".", ":", "-", "–", "—", ",", "|", *OPENING])


class Word(NamedTuple):
    """A word of a reply with its class.

    kind: as in ``languages.CLASSES``; ``L`` a label, ``l`` one that is a label only right after a word that calls for
    it, ``T`` an option's text, ``D`` a label with a text; ``w`` any other word, ``n`` a number; signs as themselves.
    letter: of L, l, T, D. dressed: in brackets, bold, or before a bracket, a colon or
    a full stop. differs: the text of D is another
    option's. spoken: whether the text of T has a word in it, and is no bare number or formula. opens: whether a label
    is set off from a text that follows, as in "B) ...".
    """

    kind: str
    start: int
    end: int
    letter: str = ""
    dressed: bool = False
    differs: bool = False
    spoken: bool = False
    opens: bool = False


def _settled(words: Sequence[Word], at: int) -> Word:
    """Return a word as it is, but for one that is a label only where one is called for, and is none here."""
    word = words[at]
    if word.kind != "l" or word.dressed:
        return word
    before = words[at - 1].kind if at else "\n"
    after = words[at + 1].kind if at + 1 < len(words) else "\n"
    called_for = before in "AOZ:=ePf(/,&|-" or (before in "\n." and after in "\n.,:)-A")
    return word if called_for else word._replace(kind="f", letter="")


class Scanner:
    """Gives the tokens of a reply their classes."""

    def __init__(self, text: str, tokens: Sequence[Token], options: Options, lexicon: Lexicon) -> None:
        self._text, self._tokens, self._options, self._lexicon = text, tokens, options, lexicon
        self._keys = keys_of(tokens, options.strict)
        self._labels = Labels(text, tokens, self._keys, options, lexicon)

    def words(self) -> list[Word]:
        """Return the words in order."""
        found: list[Word] = []
        at = 0
        while at < len(self._tokens):
            at = self._next(at, found)
        return [_settled(found, place) for place in range(len(found))]

    def _next(self, at: int, found: list[Word]) -> int:
        token = self._tokens[at]
        option = self._options.match(self._keys, at) if self._keys[at] else None
        label = self._labels.at(at)
        if label is not None and not (option and option[1] > at + 1 and not self._labels.dress(at)[1]):
            return self._take_label(at, label, found)
        known = self._lexicon.match(self._tokens, at)
        if option is not None and (known is None or self._is_meant(at, option[1], known, found)):
            end = option[1]
            bold = at > 0 and self._tokens[at - 1].text == BOLD
            spoken = any(
                (len(each.text) > 2 and each.kind not in ("number", "sign")) or each.kind == "cjk"
                for each in self._tokens[at:end]
            )
            found.append(Word("T", token.start, self._tokens[end - 1].end, option[0], bold, spoken=spoken))
            return end
        if known is not None:
            kind, count = known
            found.append(Word(kind, token.start, self._tokens[at + count - 1].end))
            return at + count
        kind = "n" if token.kind == "number" else _SIGNS.get(token.text, "p") if token.kind in ("sign", "line") else "w"
        if kind == "w" and token.kind == "cjk" and found and found[-1].kind == "w" and found[-1].end == token.start:
            found[-1] = Word("w", found[-1].start, token.end)  # a word of unknown length
        elif kind:
            found.append(Word(kind, token.start, token.end))
        return at + 1

    def _is_meant(self, at: int, end: int, known: tuple[str, int], found: Sequence[Word]) -> bool:
        """Whether an option's text is meant where the same word could be one of ours ("answer", "none")."""
        taken = end - at
        if taken > known[1]:
            return True
        end = self._after_closing(end)
        after = self._tokens[end].text if end < len(self._tokens) else "\n"
        before = found[-1].kind if found else "\n"
        return taken >= known[1] and before in "\n:Z=." and after in ("\n", ".", "。", "।", ",", BOX_END)

    def _after_closing(self, at: int) -> int:
        """Return the first token from a place on that closes no bracket, quote or bold."""
        while at < len(self._tokens) and self._tokens[at].text in CLOSING and self._tokens[at].text != BOX_END:
            at += 1
        return at

    # --- labels ---

    def _take_label(self, at: int, label: Label, found: list[Word]) -> int:
        tokens, token = self._tokens, self._tokens[at]
        if label.bracketed and found and found[-1].kind == "(":
            found.pop()
        behind = 3 if label.delimited and [word.kind for word in found[-2:]] == ["(", "O"] else 1
        text = found[-behind] if len(found) >= behind else None
        if text and (text.kind, text.letter) == ("T", label.letter) and (label.bracketed or behind == 3):
            del found[-behind:]  # "Bakelite (B)", "Bakelite (option B)"
            found.append(Word("D", text.start, token.end, label.letter))
            return at + 2
        end = self._after_closing(at + 1)
        option = self._text_after(end, label)
        if option is not None:
            last = tokens[option[1] - 1]
            found.append(Word("D", token.start, last.end, label.letter, True, option[0] != label.letter))
            return option[1]
        lower = self._text[token.start].islower() and not (found and found[-1].kind == "O")
        weak = label.weak and not (found and found[-1].kind == "O") and not self._labels.has_particle(at)
        kind = "l" if weak and (lower or not (label.bracketed or label.delimited)) else "L"
        opens = label.delimited and not label.bracketed and self._tokens[end - 1 if end > at + 1 else end].text != "-"
        found.append(Word(kind, token.start, token.end, label.letter, label.bracketed or label.delimited, opens=opens))
        return end

    def _text_after(self, at: int, label: Label) -> tuple[str, int] | None:
        """Return the option's text that follows a label: its own, or behind a bracket, colon or full stop any."""
        for start in range(at, min(at + 4, len(self._tokens))):
            option = self._options.match(self._keys, start)
            if option is not None and (option[0] == label.letter or label.delimited):
                return option
            if self._tokens[start].text not in _BEFORE_TEXT:
                break
        return None
