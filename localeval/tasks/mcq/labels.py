"""Labels of options in a reply: Latin letters, their names and the own series of other scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from localeval.tasks.mcq.languages import Lexicon
from localeval.tasks.mcq.options import Options
from localeval.tasks.mcq.tokens import BOLD, BOX, BOX_END, Token, is_latin

OPENING, CLOSING = "([{\"'“‘«‹【「『*" + BOX + BOLD, ")]}\"'”’»›】」』*" + BOX_END + BOLD
_MATH_BEFORE = frozenset("+×÷^<>≤≥∪∩*=≈≠·√±")
_MATH_AFTER = frozenset("+×÷^=<>≤≥∪∩⇒≈≠≡⊂∈·±→")
_INITIALS = re.compile(r"\.\s?[A-Z]\.")
_DASH = re.compile(r"[ \t][-–—]\s")


@dataclass(frozen=True, slots=True)
class Label:
    """A label. weak: it counts only right after a word that calls for one, or if something sets it off.

    bracketed: in brackets, quotes or bold. delimited: before a bracket, a full stop, a colon or a dash.
    """

    letter: str
    weak: bool
    bracketed: bool
    delimited: bool


class Labels:
    """Finds the labels among the tokens of a reply."""

    def __init__(
        self, text: str, tokens: Sequence[Token], keys: Sequence[str], options: Options, lexicon: Lexicon
    ) -> None:
        self._text, self._tokens, self._keys = text, tokens, keys
        self._options, self._lexicon = options, lexicon
        self._native = self._series()

    def at(self, at: int) -> Label | None:
        """Return the label that a token is, or None."""
        token = self._tokens[at]
        if token.kind == "latin":
            is_letter = len(token.text) == 1 and token.text.upper() in self._options.letters
            return self._latin(at, token) if is_letter else None
        letter = self._native.get(token.text)
        return Label(letter, True, *self.dress(at)) if letter and not self._is_glued(at) else None

    def _latin(self, at: int, token: Token) -> Label | None:
        raw = self._text[token.start]
        bracketed, delimited = self.dress(at)
        if self._in_formula(at) or self._is_initial(at):
            return None
        if raw.islower():
            ends = self._after(at) in ("", "\n", ".", ",", BOX_END)
            is_one = delimited or ends or self._class(at - 1) == "O"
            return Label(raw.upper(), True, bracketed, delimited) if is_one else None
        if raw in "AI" and not bracketed and self._is_article(at):
            return None
        return Label(raw, False, bracketed, delimited)

    def _after(self, at: int) -> str:
        return self._tokens[at + 1].text if at + 1 < len(self._tokens) else ""

    def _class(self, at: int) -> str:
        """Return the class of the word that begins at a token; empty for an unknown one."""
        known = self._lexicon.match(self._tokens, at) if 0 <= at < len(self._tokens) else None
        return known[0] if known else ""

    def dress(self, at: int) -> tuple[bool, bool]:
        """Return whether a label is bracketed, and whether it is delimited."""
        token, after = self._tokens[at], self._after(at)
        before = self._tokens[at - 1].text if at and self._tokens[at - 1].end == token.start else ""
        gap = self._text[token.end : self._tokens[at + 1].start] if after else ""
        if gap.strip(" "):
            after = ""
        closed = after != "" and after in CLOSING and (after == ")" or gap == "")
        bracketed = closed and before != "" and before in OPENING
        dash = _DASH.match(self._text, token.end) is not None
        return bracketed, closed or after in (".", ":") or dash

    def _is_glued(self, at: int) -> bool:
        """Whether a label in another script is part of a longer word, or a particle after one."""
        token = self._tokens[at]
        before = self._tokens[at - 1] if at else None
        if before is not None and before.end == token.start and before.kind not in ("sign", "line"):
            return token.kind in ("hangul", "word") or before.kind != "cjk"
        return self._before_cjk(at) and self._class(at + 1) != "="

    def _before_cjk(self, at: int) -> bool:
        after = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        return after is not None and after.start == self._tokens[at].end and after.kind == "cjk"

    def has_particle(self, at: int) -> bool:
        """Whether a Japanese label is followed by a particle: "イが ..."."""
        return self._tokens[at].kind == "kana" and self._before_cjk(at)

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
        if after[:1] and (after[0] in "+#^*(" or after[0].isdigit() or (after[0] in "_'’-" and glued)):
            return True
        following = text[token.end : token.end + 8].lstrip(" ")[:1]
        if following in _MATH_AFTER and following:
            return True
        leading = text[max(0, token.start - 8) : token.start].rstrip(" ")[-1:]
        if leading == "→" and at > 1 and len(self._tokens[at - 2].text) == 1:
            return True
        is_equation = leading == "=" and self._class(at - 2) in ("A", "O")  # "answer = B"
        return leading != "" and leading in _MATH_BEFORE and not is_equation

    def _is_initial(self, at: int) -> bool:
        """Whether a letter is an initial of a name, and not a label before its own option's text."""
        if not _INITIALS.match(self._text, self._tokens[at].end):
            return False
        return at + 2 >= len(self._tokens) or self._options.match(self._keys, at + 2) is None

    def _is_article(self, at: int) -> bool:
        """Whether "A" or "I" stands before a plain word: then it is a label only if a verdict or reason follows."""
        token = self._tokens[at]
        after = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        if after is None or after.kind != "latin" or "\n" in self._text[token.end : after.start]:
            return False
        option = self._options.match(self._keys, at + 1)
        if option is not None:
            return option[0] != token.text.upper()
        if after.text == "the" or after.text in self._lexicon.foreign:
            return False
        return self._class(at + 1) not in tuple("c=UNX&|V")

    def _series(self) -> dict[str, str]:
        """Return what the labels in other scripts mean: by the series in which all of them are.

        A label that is in two series at different places is left out if nothing else tells which one it is.
        """
        places: dict[str, list[int]] = {}
        for at, token in enumerate(self._tokens):
            if token.text in self._lexicon.labels:
                places.setdefault(token.text, []).append(at)
        set_off = {
            name for name, ats in places.items() if any(any(self.dress(at)) and not self._is_glued(at) for at in ats)
        }
        found = {}
        for name, ats in places.items():
            entries = [entry for entry in self._lexicon.labels[name] if entry[0] in self._options.letters]
            fitting = [entry for entry in entries if not entry[1] or (set_off | {name}) <= set(entry[1])] or entries
            letters = {letter for letter, _ in fitting}
            own = letters & {self._text_of(at) for at in ats} if len(letters) > 1 else set()
            if len(own or letters) == 1:
                found[name] = (own or letters).pop()
        return found

    def _text_of(self, at: int) -> str:
        """Return the letter of the option whose text follows a label, or an empty string."""
        after = at + 1
        while after < len(self._tokens) and not self._keys[after] and self._tokens[after].text != "\n":
            after += 1
        option = self._options.match(self._keys, after) if after < len(self._tokens) else None
        return option[0] if option else ""
