"""Multiple choice: how a reply is read, how a reading is scored.

Pure functions; knows nothing about engines, files or the dataset's format. Letters are those of the row's own options.
The rules below are numbered as in docs/reading-replies.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Literal

from localeval.reply import Tags, composed, without_reasoning
from localeval.tasks.mcq import patterns as words
from localeval.tasks.mcq.letters import letters_of
from localeval.tasks.mcq.markers import breaks, markers, silent_enough


class _No(Enum):
    """Why a place in a reply gives no letter."""

    NOTHING = "nothing readable stands here: look elsewhere"
    UNDECIDED = "an answer stands here, but not one option: no answer"


@dataclass(frozen=True, slots=True)
class _Texts:
    """Ways to write options' texts. letters: of each form, what is left of it without all but letters and digits."""

    by_form: Mapping[str, str]
    letters: frozenset[str]
    longest: int


def _texts(by_form: Mapping[str, str]) -> _Texts:
    return _Texts(by_form, frozenset(map(_letters, by_form)), max(map(len, by_form), default=0))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


@dataclass(frozen=True, slots=True)
class _Options:
    """letters: ``ABCD``. by_text: each way to write an option's text -> its letter; what two share is left out.

    own: for each letter, its own ways alone.
    """

    letters: str
    by_text: _Texts
    own: Mapping[str, _Texts]


@lru_cache(maxsize=4096)
def _options(choices: tuple[str, ...]) -> _Options:
    letters = letters_of(choices)
    own = {letter: dict.fromkeys(_forms(choice), letter) for letter, choice in zip(letters, choices, strict=True)}
    uses = Counter(form for forms in own.values() for form in forms)
    by_text = {
        form: letter
        for forms in own.values()
        for form, letter in forms.items()
        if uses[form] == 1 and not (len(form) == 1 and form.isalpha())  # one letter would be taken for a label
    }
    return _Options(letters, _texts(by_text), {letter: _texts(forms) for letter, forms in own.items()})


@lru_cache(maxsize=8192)
def _forms(text: str) -> tuple[str, ...]:
    """A text as it stands, then without its full stop, its dress, and (several words) its punctuation; folded."""
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    forms = [text]
    for _ in range(8):
        bare = text.rstrip(" .।")
        match = words.UNWRAPPED.fullmatch(bare)
        inner = match[match.lastgroup or 0].strip() if match else bare
        if inner == text:
            break
        forms += [bare, inner]
        text = inner
    loose = " ".join(words.PUNCTUATION.sub(" ", text).split())
    return tuple(form for form in dict.fromkeys([*forms, loose if " " in loose else ""]) if form)


def parse_choice(reply: str, choices: Sequence[str], finish_reason: str = "stop") -> str | None:
    """The letter that a reply answers with, or None where it gives none, or more than one.

    choices: the option texts in order. finish_reason does not change the reading: a reply that was cut is read as far
    as it goes. Raises ValueError for fewer than 2 or more than 26 choices.
    """
    return read(reply, choices, finish_reason).letter


Reason = Literal["reasoning", "several", "refused", "cut", "no_claim"]
"""Why a reply gives no letter: it never left its reasoning, names two options, declines, was cut, or says none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply answers: a letter, or None with the reason."""

    letter: str | None
    reason: Reason | None = None
    label_mismatch: bool = False


def read(
    reply: str,
    choices: Sequence[str],
    finish_reason: str = "stop",
    reasoning_opened: bool = False,
    reasoning_tags: Sequence[Tags] = (),
) -> Reading:
    """Read a reply to a prompt that may have opened the reasoning itself, with the model's own ``reasoning_tags``."""
    options = _options(tuple(choices))
    answer = without_reasoning(reply, reasoning_opened, reasoning_tags)  # rule 1
    if answer is None:
        return Reading(None, "reasoning")
    text = composed(answer)
    for character in words.INVISIBLE:
        text = text.replace(character, "")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "```" in text:
        text = words.FENCE_LINE.sub("", text)
    found = _read_text(_without_continuation(text, options), options)
    return Reading(found) if isinstance(found, str) else Reading(None, "no_claim")


def _without_continuation(text: str, options: _Options) -> str:
    """Rule 2: the reply up to where, after an answer, it goes on with a question of its own."""
    starts = breaks(text, options.letters)
    first = next(starts, None)
    if first is None:
        return text
    if _read_text(text[:first], options) is not _No.NOTHING:
        return text[:first]
    after = markers(text, options.letters, options.by_text.by_form, first)
    answer = _first_that_says(text, after, options)
    if answer is None:
        return text
    return text[: next((start for start in starts if start > answer[0].start()), len(text))]


def _read_text(text: str, options: _Options) -> str | _No:
    """The last marker with something readable after it decides (rules 3 to 5); without one, the whole (rule 6)."""
    answer = _first_that_says(text, markers(text, options.letters, options.by_text.by_form)[::-1], options)
    return _read_whole(text, options) if answer is None else answer[1]


def _first_that_says(
    text: str, found: Sequence[re.Match[str]], options: _Options
) -> tuple[re.Match[str], str | _No] | None:
    """The first of some markers with something readable after it, and what that is."""
    for silent, marker in enumerate(found):
        if silent_enough(text, silent):
            return marker, _No.UNDECIDED
        said = _read_marker(text, marker, options)
        if said is not _No.NOTHING:
            return marker, said
    return None


def _read_marker(text: str, marker: re.Match[str], options: _Options) -> str | _No:
    """What stands after a marker (rules 4 and 5)."""
    before = text[max(0, marker.start() - 24) : marker.start()]
    if words.NO_MARKER.search(before) or words.NO_MARKER_WITHIN.search(marker.group()):
        return _No.NOTHING
    start, gap = marker.end(), _match(words.GAP, text, marker.end())
    for position in sorted({_match(words.COLON, text, start).end(), _match(words.LEAD, text, start).end(), gap.end()}):
        letter = _option_text_at(text, position, options.by_text)
        if letter is not None:
            return letter
    named = re.search(rf"[:={words.VISARGA}]", gap.group()) is not None
    return _read_label(text, gap, options, named)


def _read_label(text: str, gap: re.Match[str], options: _Options, named: bool) -> str | _No:
    position = gap.end()
    letter = _label_with_its_text(text, position, options)
    if letter is not None:
        return _No.NOTHING if _is_list(text, position, options) else letter
    letter = _label_at(text, position, options.letters, named)
    if letter is None:
        return _No.UNDECIDED if _run_of_letters(text, position, options.letters) else _No.NOTHING
    after = position + 1
    if words.RANGE.match(text, after):
        return _No.NOTHING  # "A to D"
    others = set(_labels_joined(text, position, options.letters)) - {letter}
    if others:
        quotes_format = len(others) > 1 and {letter, *others} == set(options.letters)
        return _No.NOTHING if quotes_format or _is_list(text, position, options) else _No.UNDECIDED
    link = gap.group().strip(f" {words.CLOSERS}([{{<").lower()
    if link in ("", "option", "choice") and words.WRONG.match(text, after):
        return _No.NOTHING  # "answer A is wrong", but not "the answer is A, not B"
    return _No.NOTHING if _is_list(text, position, options) else letter  # the options themselves


def _match(pattern: re.Pattern[str], text: str, position: int) -> re.Match[str]:
    """A match of a pattern that always matches, if only the empty string."""
    match = pattern.match(text, position)
    assert match is not None
    return match


def _option_text_at(text: str, position: int, texts: _Texts) -> str | None:
    """The option whose exact text stands here, up to the end of the line or of a sentence."""
    line_end = text.find("\n", position)
    # Only so much of a line can be an option: a long reply must not cost more than its length.
    most = position + 2 * texts.longest + 64
    line = text[position : min(line_end, most) if line_end >= 0 else most]
    for end in _ends_of_letters([match.start() for match in words.SENTENCE_END.finditer(line)], line, texts.letters):
        said = line[:end]
        for form in dict.fromkeys([*_forms(said), *_forms(said.rstrip(words.CLOSERS))]):
            if form in texts.by_form:
                return texts.by_form[form]
    return None


def _ends_of_letters(ends: Sequence[int], line: str, wanted: Set[str]) -> Iterator[int]:
    """The ends, the last first, up to which a line has the letters of an option.

    Folding takes away no letter, but for those of a tag or of a LaTeX word around a text.
    """
    dressed = min((at for at in (line.find("<"), line.find("\\")) if at >= 0), default=len(line))
    if not unicodedata.is_normalized("NFKC", line):
        dressed = -1
    for end in reversed(ends):
        if end > dressed or _letters(line[:end].casefold()) in wanted:
            yield end


def _label_with_its_text(text: str, position: int, options: _Options) -> str | None:
    """A label with its own option's text, as "B) Bakelite": then nothing else about it can be in doubt."""
    letter = text[position : position + 1].upper()
    if letter not in options.own:
        return None
    separator = words.SEPARATOR.match(text, position + 1)
    if separator is None or not separator.group():
        return None
    for at in (separator.end(), position + 1 + len(separator.group().rstrip(f"{words.CLOSERS}([{{<"))):
        if _option_text_at(text, at, options.own[letter]) is not None:
            return letter
    return None


def _label_at(text: str, position: int, letters: str, named: bool) -> str | None:
    """The label that stands here. named: a colon or an equals sign stands before it, so that "A" is no article."""
    match = words.label(letters).match(text, position)
    if match is None:
        return None
    letter, rest = match[1], text[match.end() : match.end() + 40]
    if letter.islower():
        ends_line = rest.lstrip(" \t")[:1] in ("", "\n")
        return letter.upper() if ends_line or not rest[0].isspace() else None
    word = re.match(r"[ \t]+([A-Za-z]+)", rest)
    if letter in "AI" and word:
        plain = word[1].lower() not in words.NEVER_AFTER_ARTICLE
        if plain and (not named or (letter == "I" and word[1].lower() in words.AFTER_A_PERSON)):
            return None
    return letter


def _run_of_letters(text: str, position: int, letters: str) -> bool:
    """Several of the row's labels written together, as "AB" (but not all of them: that quotes the format)."""
    match = re.compile(r"([A-Z]{2,})(?![^\W_])").match(text, position)
    return match is not None and len(set(match[1])) == len(match[1]) and set(match[1]) < set(letters)


def _labels_joined(text: str, position: int, letters: str) -> list[str]:
    """The further labels beside one, joined only by a comma, slash, "&", "and", "or", or nothing.

    After "B)" the option's text begins, and what a bracket adds to a label only comments on it: neither joins.
    """
    found: list[str] = []
    bracketed = text[position - 1 : position] == "("
    at = position + 1
    while at < position + words.LIST:
        closers = _match(words.CLOSING, text, at).group()
        joiner = _match(words.JOINER, text, at + len(closers))
        opening = _match(words.CLOSING, text, joiner.end())
        joined = joiner["word"] is not None
        if not joined and ((")" in closers and not bracketed) or ("(" in closers + opening.group()) != bracketed):
            return found
        letter = _label_at(text, opening.end(), letters, named=False)
        if letter is None:
            return found
        found.append(letter)
        at = opening.end() + 1
    return found


def _read_whole(text: str, options: _Options) -> str | _No:
    """Rule 6: the exact text of one option, or a label at the start, or a label in dress."""
    said = text.strip()
    if len(said) <= 4 * options.by_text.longest + 64:
        for form in dict.fromkeys([*_forms(said), *_forms(said.strip(f"{words.CLOSERS}([{{<"))]):
            if form in options.by_text.by_form:
                return options.by_text.by_form[form]
    position = _match(words.OPENING, text, 0).end()
    letter = _label_with_its_text(text, position, options)
    if letter is None:
        letter = _label_at(text, position, options.letters, named=True)
        if letter is None or not words.ENDS_LABEL.match(text, position + 1):
            return _No.NOTHING
    return _No.NOTHING if _is_list(text, position, options) else letter


def _is_list(text: str, position: int, options: _Options) -> bool:
    """Whether the label here begins a list of options instead of choosing one.

    It does where the items go A, B, and B's is no comment ("B) is wrong"); where two items say their own options; and
    where the next line is another bare label.
    """
    if words.FIRST_ITEM.match(text[position + 1 : position + 9]) and _begins_items(text, position, options):
        return True
    bare = rf"([{options.letters}])[{words.DRESS}]*[ \t]*"
    two_lines = re.compile(rf"{bare}\n\s*[{words.DRESS}]*{bare}(?:\n|$)").match(text, position)
    return two_lines is not None and two_lines[1] != two_lines[2]


def _begins_items(text: str, position: int, options: _Options) -> bool:
    label = text[position]
    items = [(label, position + 1)]
    following = words.item(options.letters).finditer(text, position + 1, position + words.LIST)
    for match in islice(following, 2 * len(options.letters)):
        letter = match["line"] or match["inline"]
        if letter.isupper() == label.isupper():
            items.append((letter, match.end()))
    if len(items) < 2:
        return False
    second, end = items[1]
    if label.upper() + second.upper() == options.letters[:2] and not words.VERB.match(text, end):
        return True
    echoes = {
        letter
        for letter, after in items
        if _option_text_at(text, _match(words.OPENING, text, after).end(), options.own[letter.upper()]) is not None
    }
    return len(echoes) > 1
