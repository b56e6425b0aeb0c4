"""A reply as a row of classes: its words by the lexicon, its labels, and the texts of its row's options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localeval.tasks.mcq.languages import Lexicon
from localeval.tasks.mcq.options import Options, keys_of
from localeval.tasks.mcq.tokens import BOLD, BOX, BOX_END, Token, is_latin

_SIGNS = {
    **dict.fromkeys(".!。।॥", "."), **dict.fromkeys("?؟", "?"), **dict.fromkeys(":→➔➡⇒", ":"), "=": "e", **dict.fromkeys("-–—−", "-"),
    **dict.fromkeys(",;、،؛", ","), "(": "(", ")": ")", "/": "/", "|": "¦", "\n": "\n", BOX: "Z", BOX_END: "z",
    **dict.fromkeys("\"'“”‘’«»‹›[]{}【】「」『』*<>" + BOLD, ""),
}  # fmt: skip
"""Sign -> its class; none for quotes and brackets, which only dress what is in them."""
_OPENING, _CLOSING = "([{\"'“‘«‹【「『*" + BOX + BOLD, ")]}\"'”’»›】」』*" + BOX_END + BOLD
_BEFORE_TEXT = frozenset([".", ":", "-", "–", "—", ",", "|", *_OPENING])
_MATH_BEFORE = frozenset("+×÷^<>≤≥∪∩*=≈≠·√±")
_MATH_AFTER = frozenset("+×÷^=<>≤≥∪∩⇒≈≠≡⊂∈·±→")


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


@dataclass(frozen=True, slots=True)
class _Label:
    letter: str
    weak: bool
    bracketed: bool
    delimited: bool


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
        self._native = self._series()

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
        label = self._label(at)
        if label is not None and not (option and option[1] > at + 1 and not self._dress(at)[1]):
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
        while end < len(self._tokens) and self._tokens[end].text in _CLOSING and self._tokens[end].text != BOX_END:
            end += 1
        after = self._tokens[end].text if end < len(self._tokens) else "\n"
        before = found[-1].kind if found else "\n"
        return taken >= known[1] and before in "\n:Z=" and after in ("\n", ".", "。", "।", ",", BOX_END)

    # --- labels ---

    def _take_label(self, at: int, label: _Label, found: list[Word]) -> int:
        tokens, token = self._tokens, self._tokens[at]
        if label.bracketed and found and found[-1].kind == "(":
            found.pop()
        if found and found[-1].kind == "O" and len(found) > 1 and found[-2].kind == "(" and label.delimited:
            behind = 3
        else:
            behind = 1
        if (label.bracketed or behind == 3) and len(found) >= behind and found[-behind].kind == "T":
            if found[-behind].letter == label.letter:  # "Bakelite (B)"
                text = found[-behind]
                del found[-behind:]
                found.append(Word("D", text.start, token.end, label.letter, False))
                return at + 2
        end = at + 1
        while end < len(tokens) and tokens[end].text in _CLOSING and tokens[end].text != BOX_END:
            end += 1
        option = self._text_after(end, label)
        if option is not None:
            last = tokens[option[1] - 1]
            found.append(Word("D", token.start, last.end, label.letter, True, option[0] != label.letter))
            return option[1]
        lower = self._text[token.start].islower() and not (found and found[-1].kind == "O")
        weak = label.weak and not (found and found[-1].kind == "O") and not self._has_particle(at)
        kind = "l" if weak and (lower or not (label.bracketed or label.delimited)) else "L"
        opens = label.delimited and not label.bracketed and self._tokens[end - 1 if end > at + 1 else end].text != "-"
        found.append(Word(kind, token.start, token.end, label.letter, label.bracketed or label.delimited, opens=opens))
        return end

    def _text_after(self, at: int, label: _Label) -> tuple[str, int] | None:
        """Return the option's text that follows a label: its own, or behind a bracket, colon or full stop any."""
        for start in range(at, min(at + 4, len(self._tokens))):
            option = self._options.match(self._keys, start)
            if option is not None and (option[0] == label.letter or label.delimited):
                return option
            if self._tokens[start].text not in _BEFORE_TEXT:
                break
        return None

    def _label(self, at: int) -> _Label | None:
        token = self._tokens[at]
        if token.kind == "latin":
            if len(token.text) != 1 or token.text.upper() not in self._options.letters:
                return None
            return self._latin_label(at, token)
        letter = self._native.get(token.text)
        if not letter or letter not in self._options.letters or self._is_glued(at):
            return None
        bracketed, delimited = self._dress(at)
        return _Label(letter, True, bracketed, delimited)

    def _latin_label(self, at: int, token: Token) -> _Label | None:
        raw = self._text[token.start]
        bracketed, delimited = self._dress(at)
        if self._in_formula(at) or self._in_initials(at):
            return None
        if raw.islower():
            ends = at + 1 == len(self._tokens) or self._tokens[at + 1].text in ("\n", ".", ",", BOX_END)
            after_option = at > 0 and (self._lexicon.match(self._tokens, at - 1) or ("", 0))[0] == "O"
            return _Label(token.text.upper(), True, bracketed, delimited) if delimited or ends or after_option else None
        if raw in "AI" and not bracketed and self._is_article(at):
            return None
        return _Label(raw, False, bracketed, delimited)

    def _dress(self, at: int) -> tuple[bool, bool]:
        """Return whether a label is in brackets or quotes, and whether a sign sets it off from what follows."""
        token = self._tokens[at]
        before = self._tokens[at - 1].text if at and self._tokens[at - 1].end == token.start else ""
        follows = at + 1 < len(self._tokens) and self._text[token.end : self._tokens[at + 1].start].strip(" ") == ""
        after = self._tokens[at + 1].text if follows else ""
        closed = bool(after) and after in _CLOSING and (after == ")" or self._tokens[at + 1].start == token.end)
        dash = re.match(r"[ \t][-–—]\s", self._text[token.end : token.end + 3]) is not None
        return closed and bool(before) and before in _OPENING, closed or after in (".", ":") or dash

    def _is_glued(self, at: int) -> bool:
        """Whether a label in another script is part of a longer word, or a particle after one."""
        token = self._tokens[at]
        before = self._tokens[at - 1] if at else None
        if before is not None and before.end == token.start and before.kind not in ("sign", "line"):
            return token.kind in ("hangul", "word") or before.kind != "cjk"
        after = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        if after is None or after.start != token.end or after.kind != "cjk":
            return False
        return (self._lexicon.match(self._tokens, at + 1) or ("", 0))[0] != "="

    def _has_particle(self, at: int) -> bool:
        """Whether a label in a script without spaces is followed by a particle: "イが ..."."""
        after = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        kana = self._tokens[at].kind == "kana"
        return kana and after is not None and after.kind == "cjk" and after.start == self._tokens[at].end

    def _in_formula(self, at: int) -> bool:
        text, token = self._text, self._tokens[at]
        before = text[token.start - 1] if token.start else " "
        after = text[token.end : token.end + 2]
        if before == "<" and after.startswith(">"):
            return False
        if is_latin(before) or before.isdigit() or before in "_^\\@#&~":
            return True
        if before in "-.'’" and text[token.start - 2 : token.start - 1].isalnum():
            return True
        opened = text[token.start - 2 : token.start - 1] if before == "(" else ""
        if opened and (is_latin(opened) or opened.isdigit() or opened in "'_^"):
            return True  # P(A)
        glued = is_latin(after[1:]) or after[1:].isdigit()
        if after[:1] and (after[0] in "+#^*(" or (after[0] in "_'’-" and glued)):
            return True
        following = text[token.end : token.end + 8].lstrip(" ")[:1]
        if following in _MATH_AFTER and following:
            return True
        leading = text[max(0, token.start - 8) : token.start].rstrip(" ")[-1:]
        if leading == "→" and at > 1 and len(self._tokens[at - 2].text) == 1:
            return True
        return leading in _MATH_BEFORE and leading != "" and not (leading == "=" and self._follows_word(at))

    def _follows_word(self, at: int) -> bool:
        """Whether a word that calls for an answer stands before the sign before a label, as in "answer = B"."""
        known = self._lexicon.match(self._tokens, at - 2) if at >= 2 else None
        return known is not None and known[0] in "AO"

    def _in_initials(self, at: int) -> bool:
        """Whether a letter is an initial of a name, and not a label before its own option's text."""
        rest = self._text[self._tokens[at].end :][:8]
        if not re.match(r"\.\s?[A-Z]\.|\.[A-Z]\w", rest):
            return False
        found = self._options.match(self._keys, at + 2) if at + 2 < len(self._tokens) else None
        return found is None and re.match(r"\.\s?[A-Z]\.", rest) is not None

    def _is_article(self, at: int) -> bool:
        """Whether "A" or "I" stands before a plain word: then it is a label only if a verdict or reason follows."""
        token = self._tokens[at]
        after = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        if after is None or after.kind != "latin" or "\n" in self._text[token.end : after.start]:
            return False
        option = self._options.match(self._keys, at + 1)
        if option is not None:
            return option[0] != token.text.upper()
        known = self._lexicon.match(self._tokens, at + 1)
        if after.text == "the" or after.text in self._lexicon.foreign:
            return False
        return known is None or known[0] not in "c=UNX&|V"

    def _series(self) -> dict[str, str]:
        """Return what the labels in other scripts mean: by the series in which all of them are.

        A label that is in two series at different places is left out if nothing else tells which one it is.
        """
        said = {token.text for at, token in enumerate(self._tokens) if token.text in self._lexicon.labels}
        dressed = {
            token.text
            for at, token in enumerate(self._tokens)
            if token.text in said and any(self._dress(at)) and not self._is_glued(at)
        }
        found = {}
        for name in said:
            entries = [entry for entry in self._lexicon.labels[name] if entry[0] in self._options.letters]
            fitting = [entry for entry in entries if not entry[1] or (dressed | {name}) <= set(entry[1])] or entries
            letters = {letter for letter, _ in fitting}
            own = {letter for letter in letters if self._has_own_text(name, letter)}
            if len(own or letters) == 1:
                found[name] = (own or letters).pop()
        return found

    def _has_own_text(self, name: str, letter: str) -> bool:
        for at, token in enumerate(self._tokens):
            if token.text == name:
                after = at + 1
                while after < len(self._tokens) and not self._keys[after] and self._tokens[after].text != "\n":
                    after += 1
                option = self._options.match(self._keys, after) if after < len(self._tokens) else None
                if option is not None and option[0] == letter:
                    return True
        return False
