"""Where a multiple-choice reply may answer, and where it goes on with another question; each in one pass over it.

Knows nothing about what is said at these places: ``mcq.py`` reads that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from heapq import merge
from itertools import islice, pairwise
from string import ascii_uppercase

from localeval.tasks.mcq import patterns as words

_LONG = 20_000
"""Characters from which it pays to look first whether a marker can say anything."""
_MOST_SILENT = 512
"""Of a long reply's markers that could name an option, so many are read while they say nothing."""
_MOST_ITEMS = 20_000
"""So many items of lists are looked at: more are no list that a reply goes on with."""


def markers(text: str, letters: str, texts: Collection[str], start: int = 0) -> Sequence[re.Match[str]]:
    """The places after which a reply may answer, from ``start`` on, in order.

    letters: the row's own. texts: the options' texts, folded. Of a reply of more than 20,000 characters those that can
    say nothing are left out: what follows them begins neither like a label nor like an option.
    """
    the_option_is = words.OPTION_OR_CHOICE.search(text) is not None
    if len(text) > _LONG and (beginnings := _beginnings(letters, texts)) is not None:
        if not re.search(beginnings[0], text):
            return []
        followed = _followed(beginnings, the_option_is)
        marker = f"(?>{words.marker_pattern(the_option_is)})(?:{followed})?"
        found = list(re.compile(marker, re.IGNORECASE | re.VERBOSE).finditer(text, start))
        return _that_say_something(found)
    return list((words.MARKER if the_option_is else words.MARKER_WITHOUT_THE).finditer(text, start))


def _that_say_something(found: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """Those that ``_beginnings`` shows to be followed by an answer, or by one of those."""
    kept: list[re.Match[str]] = []
    says = False
    for match in reversed(found):
        says = match["answer"] is not None or (says and match["marker"] is not None)
        if says:
            kept.append(match)
    return kept[::-1]


def silent_enough(text: str, silent: int) -> bool:
    """Whether so many markers of a reply have said nothing that no answer is looked for any more."""
    return silent >= _MOST_SILENT and len(text) > _LONG


def _beginnings(letters: str, texts: Collection[str]) -> tuple[str, str] | None:
    """A pattern for the first character of a label or an option, and one for as much of it as is simple.

    None where options begin in no simple way.
    """
    found = {rf"[{letters}](?![^\W_])", r"(?-i:[A-Z]{2})"}
    first = {*ascii_uppercase, *letters.lower()}
    for text in texts:
        match = re.search(r"[^\W_]", text)
        if match is None:
            return None
        if words.UNCASED.match(match[0]):
            found.add(match[0])
        elif text.isascii() and (begins := re.match(r"(?:(?!ss)[a-z0-9]){1,4}", text[match.start() :])):
            found.add(begins[0])  # but for what may be written "ß", which is folded to "ss"
        else:
            return None
        first |= {match[0], match[0].upper(), *("ıİ" if match[0] == "i" else "")}
    return f"(?-i:[{''.join(sorted(first))}])", "|".join(sorted(found))


def _followed(beginnings: tuple[str, str], the_option_is: bool) -> str:
    """A pattern for what must follow a marker that says something.

    ``answer``: the beginning of a label or an option; ``marker``: another marker, which then must say something itself.
    """
    answer = f"(?={beginnings[0]})(?:{beginnings[1]})"
    marker = words.THE_OPTION_IS if the_option_is else "(?!)"
    between = rf"{words.MAY_BE_BETWEEN}(?!{answer}|{marker})(?:{words.BETWEEN})[\W_]*+"
    return rf"(?=[\W_]*+(?:{between}){words.MOST}+(?:(?P<answer>{answer})|(?P<marker>{marker})))"


def breaks(text: str, letters: str) -> Iterator[int]:
    """Where a reply goes on with a question, or with a list of options: after its first character, in order."""
    return (start for start in merge(_questions(text), _lists(text, letters)) if start)


def _questions(text: str) -> Iterator[int]:
    if not any(word in text for word in words.IN_QUESTION_LINES):
        return iter(())
    return (match.start() for match in words.QUESTION_LINE.finditer(text))


def _lists(text: str, letters: str) -> Iterator[int]:
    """Where a list of options begins: an item of the first letter, and after it one of the second."""
    if not all(words.begins_item(letter).search(text) for letter in letters[1::-1]):
        return
    firsts = (letters[:2], letters[:2].lower())
    found = islice(words.item(letters).finditer(text), _MOST_ITEMS)
    items = (match for match in found if not match["dash"])  # "C - A - B" is one answer
    for first, second in pairwise(items):
        if (first["line"] or first["inline"]) + (second["line"] or second["inline"]) in firsts:
            yield first.start()
