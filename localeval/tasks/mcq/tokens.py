"""A reply without its dress, as words, numbers and signs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from localeval.reply import composed

BOX, BOX_END, BOLD = "\ue000", "\ue001", "\ue002"
"""What ``\\boxed{`` and its ``}`` become, and ``**``."""
INVISIBLE = dict.fromkeys(map(ord, "\ufeff\u200b\u2060\u00ad\u034f\ufe0f\ufe0e\u200e\u200f"))
_CHILLU = {"ണ്\u200d": "ൺ", "ന്\u200d": "ൻ", "ര്\u200d": "ർ", "ല്\u200d": "ൽ", "ള്\u200d": "ൾ", "ക്\u200d": "ൿ"}
"""Malayalam letters as they were written before Unicode 5.1 -> the letters of today."""
_LATEX = {
    "pi": "π", "times": "×", "cdot": "·", "sqrt": "√", "pm": "±", "degree": "°", "circ": "°", "infty": "∞",
    "theta": "θ", "alpha": "α", "beta": "β", "gamma": "γ", "lambda": "λ", "mu": "μ", "omega": "ω",
    "Omega": "Ω", "Delta": "Δ",
    "leq": "≤", "geq": "≥", "neq": "≠", "le": "≤", "ge": "≥", "ne": "≠", "cup": "∪", "cap": "∩", "rightarrow": "→",
    "to": "→", "approx": "≈", "div": "÷", "quad": " ", "qquad": " ",
}  # fmt: skip
_DROPPED = (
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|operatorname|bf|rm|it|left|right|displaystyle)(?![A-Za-z])"
    r"|\\[()\[\],;:!]|\$(?!\d)|`|(?<![^\W_])__|__(?![^\W_])"
    r"|</?(?:em|strong|span|code|sub|sup)>|</[bipu]>|<[bipu]>(?=[^<\n]{0,200}</)"
)
_DRESS = re.compile(
    rf"""(?P<drop>{_DROPPED}) | (?P<bold>\*\*)
      | (?P<box>\\(?:boxed|fbox)\s*\{{)
      | \\[dt]?frac\s*\{{(?P<over>[^{{}}]{{1,40}})\}}\s*\{{(?P<under>[^{{}}]{{1,40}})\}}
      | (?P<power>\^\s*\{{?\s*\\circ\s*\}}?)
      | \\(?P<name>{"|".join(sorted(_LATEX, key=len, reverse=True))})(?![A-Za-z])
      | (?P<answer></?(?:final[_ -]?)?answer>|\[/?(?:final[_ -]?)?answer\])
      | (?P<line>^[ \t]*(?:\#{{1,6}}(?=[ \t])|>+(?=[ \t])|```.*$))
      | (?P<break><br\s*/?>)
      | (?<![\w*])\*(?P<star>[^\s*](?:[^*\n]{{0,200}}[^\s*])?)\*(?![\w*])
      | (?<![^\W_])_(?P<low>[^\s_](?:[^_\n]{{0,200}}[^\s_])?)_(?![^\W_])""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def plain(text: str) -> str:
    """Return a text without Markdown, LaTeX and HTML around its words; NFKC, digits as 0 to 9."""
    text = composed(text).translate(INVISIBLE).replace("\r\n", "\n").replace("\r", "\n").replace("\\\\", "\\")
    text = text.replace("=>", "→").replace("->", "→")
    if not text.isascii():
        for old, new in _CHILLU.items():
            text = text.replace(old, new)
        text = text.translate(
            {ord(sign): str(unicodedata.decimal(sign)) for sign in set(text) if not sign.isascii() and sign.isdecimal()}
        )
    if not re.search(r"[\\$*_`<\[#>]", text):
        return text
    return _close_boxes(_DRESS.sub(_undressed, _DRESS.sub(_undressed, text)))


def _undressed(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind in ("box", "bold"):
        return BOX if kind == "box" else BOLD
    if kind == "under":
        return f"{match['over']}/{match['under']}"
    if kind == "power":
        return "°"
    if kind == "name":
        return _LATEX.get(match["name"], match["name"])
    if kind == "answer":
        return "\n" if "/" in match["answer"] else "\nanswer: "
    if kind == "break":
        return "\n"
    return f"{BOLD}{match['star']}{BOLD}" if match["star"] else match["low"] or ""


_LONGEST_BOX = 400


def _close_boxes(text: str) -> str:
    """Mark where each box ends: at the brace that closes it, or at the end of the line."""
    if BOX not in text:
        return text
    first, *parts = text.split(BOX)
    found = [first]
    for part in parts:
        depth, at = 1, 0
        while at < min(len(part), _LONGEST_BOX) and part[at] != "\n":
            depth += (part[at] == "{") - (part[at] == "}")
            if depth == 0:
                break
            at += 1
        found += [BOX, part[:at], BOX_END, part[at + (depth == 0) :]]
    return "".join(found)


# --- tokens ---

_LATIN = r"A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\u0300-\u036f"
_KANA = r"\u30a1-\u30fa\u30fc-\u30ff"
_CJK = r"\u3005-\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff"
_HANGUL = r"\uac00-\ud7a3"
_MARKS = (
    r"\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0970-\u0de5\u0df2-\u0dff"
    r"\u0e30-\u0e4e\u200c\u200d"
)
_TOKEN = re.compile(
    rf"""(?P<line>\n)
      | (?P<number>\d+(?:,\d{{2,3}})*(?:\.\d+)?)
      | (?P<latin>e\.g\.|i\.e\.|ans\.(?!\w)|(?:dr|mr|mrs|st)\.(?=\s)
          | (?:[cdjlmnst]|qu|dell|all|nell|sull)['’](?=[{_LATIN}])
          | [{_LATIN}]+(?:['’][{_LATIN}]+)*)
      | (?P<cjk>[{_CJK}])
      | (?P<kana>[{_KANA}]+)
      | (?P<hangul>[{_HANGUL}]+)
      | (?P<word>(?:(?![{_LATIN}{_CJK}{_KANA}{_HANGUL}])(?:[^\W\d_]|[{_MARKS}]))+)
      | (?P<sign>\S)""",
    re.VERBOSE | re.IGNORECASE,
)
_LATIN_SIGN = re.compile(rf"[{_LATIN}]")


class Token(NamedTuple):
    """A word, a number, a sign or a line's end. text: folded; start, end: its place in the plain text."""

    text: str
    start: int
    end: int
    kind: str


def is_latin(sign: str) -> bool:
    """Return whether a character is a Latin letter."""
    return _LATIN_SIGN.match(sign) is not None


def tokenize(text: str) -> list[Token]:
    """Cut a plain text into tokens."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "sign"
        said = match[0]
        if kind == "number":
            said = _number(said)
        elif kind == "latin" or kind == "word":
            said = said.casefold().replace("’", "'").replace("\u200d", "").replace("\u200c", "")
        if said:
            yield Token(said, match.start(), match.end(), kind)


def _number(said: str) -> str:
    """Return a number without separators of thousands, and without zeros that say nothing."""
    whole, point, decimals = said.partition(".")
    groups = whole.split(",")
    if len(groups[-1]) == 3 or len(groups) == 1:
        whole = "".join(groups)
    decimals = decimals.rstrip("0")
    return whole + (point + decimals if decimals else "")


_SILENT = frozenset("$\"'“”‘’«»‹›()[]{}<>【】「」『』,;:.!?。，、；：！？।\\|\n" + BOX + BOX_END + BOLD)
_DASHES = dict.fromkeys(map(ord, "–—−‐‑‒"), "-")


_LONGEST_WORD = 64
_ACCENTS = re.compile(r"[\u0300-\u036f\u064b-\u065f]")


def _unaccented(token: Token) -> str:
    """Return a word without accents (Latin) and vowel signs (Arabic); other scripts' marks are letters."""
    text = token.text
    if text.isascii() or len(text) > _LONGEST_WORD or not (token.kind == "latin" or "\u0600" <= text[0] <= "\u06ff"):
        return text
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).replace("œ", "oe").replace("æ", "ae")


_DRESS_ONLY = frozenset("\"'“”‘’«»‹›<>【】「」『』\n" + BOX + BOX_END + BOLD)


def key_of(tokens: Sequence[Token], at: int, strict: bool = False) -> str:
    """Return what a token adds to the spelling of an option's text: empty for punctuation, and for a line's end.

    strict: punctuation counts, too.
    """
    token = tokens[at]
    if token.kind not in ("sign", "line"):
        return token.text if strict else _unaccented(token)
    if token.text in (_DRESS_ONLY if strict else _SILENT):
        return ""
    sign = token.text.translate(_DASHES)
    if sign == "&":
        return "and"
    if sign == "-" and 0 < at < len(tokens) - 1:
        before, after = tokens[at - 1], tokens[at + 1]
        joined = before.end == token.start and token.end == after.start
        if joined and len(before.text) > 1 and len(after.text) > 1 and before.kind == after.kind != "number":
            return ""  # a hyphen between two words
    return sign
