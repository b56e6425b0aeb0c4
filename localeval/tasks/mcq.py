"""Multiple choice: how a reply is read, how a reading is scored.

Pure functions; knows nothing about engines, files or the dataset's format. Letters are those of the row's own options.
The rules below are numbered as in docs/reading-replies.md.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from string import ascii_uppercase

from localeval.reply import without_reasoning
from localeval.schema import Sample, Score, Tally
from localeval.templates import Templates, fill


def letters_of(choices: Sequence[str]) -> str:
    """The letters of a row: ``ABCD`` for four options. Raises ValueError for fewer than 2 or more than 26."""
    if not 2 <= len(choices) <= len(ascii_uppercase):
        raise ValueError(f"a question has 2 to 26 options, not {len(choices)}")
    return ascii_uppercase[: len(choices)]


# --- asking ---


def ask(sample: Sample, shots: Sequence[Sample], templates: Templates) -> str:
    """The user's message: the question with its lettered options, after the examples if there are any."""
    prompt = fill(templates.prompt, _values(sample))
    if not shots:
        return prompt
    examples = "\n\n".join(fill(templates.shot, {**_values(shot), "answer": shot.gold[0]}) for shot in shots)
    return fill(templates.shots_prompt, {"shots": examples, "prompt": prompt})


def _values(sample: Sample) -> dict[str, str]:
    letters = letters_of(sample.choices)
    options = "\n".join(f"{letter}) {choice}" for letter, choice in zip(letters, sample.choices, strict=True))
    return {"letters": ",".join(letters), "question": sample.text, "choices": options}


# --- the words that a reply is read by ---

# Rule 3. The word for "answer" in MILU's languages, as it stands before a label.
_ANSWER_WORDS = [
    "उत्तर",
    "উত্তর",
    "જવાબ",
    "ઉત્તર",
    "ಉತ್ತರ",
    "ഉത്തരം",
    "ଉତ୍ତର",
    "ਉੱਤਰ",
    "ਜਵਾਬ",
    "பதில்",
    "விடை",
    "సమాధానం",
    "జవాబు",
]
_COPULAS = ["है", "हैं", "आहे", "হল", "হলো", "হচ্ছে", "છે", "ಆಗಿದೆ", "ആണ്", "ହେଉଛି", "ਹੈ", "ஆகும்", "అనేది", "是", "为"]
# Rule 2. The word that opens a new question.
_QUESTION_WORDS = [
    "Question",
    "प्रश्न",
    "প্রশ্ন",
    "પ્રશ્ન",
    "ಪ್ರಶ್ನೆ",
    "ചോദ്യം",
    "ପ୍ରଶ୍ନ",
    "ਪ੍ਰਸ਼ਨ",
    "ਸਵਾਲ",
    "கேள்வி",
    "வினா",
    "ప్రశ్న",
    "问题",
    "题目",
]
# Rule 5. "answer A is wrong" names a distractor.
_WRONG_WORDS = [
    "wrong",
    "incorrect",
    "false",
    "not",
    "गलत",
    "चुकीच",
    "ভুল",
    "ખોટ",
    "ತಪ್ಪ",
    "തെറ്റ",
    "ଭୁଲ",
    "ਗਲਤ",
    "தவற",
    "తప్ప",
]
# Rule 4. No article stands before these: "the answer is A because ..." names option A.
_NEVER_AFTER_ARTICLE = {"because", "since", "as", "due", "but", "not", "rather", "and", "or"}

# Letters and vowel signs of the Indic scripts (not their full stop): the signs are no \w in Python's re.
_INDIC = "\u0900-\u0963\u0966-\u0d7f"
_VISARGA = "\u0903\u0983"  # written for a colon after a word
_DRESS = r"*_`~#\"'“”‘’«»()\[\]{}<>$\\|"
_WRAP = (  # dress that is more than one character: XML, HTML and LaTeX around a word
    r"</?[A-Za-z][\w-]+>|<[bipu]>(?=[^<\n]*</[bipu]>)|</[bipu]>"
    r"|\\(?:boxed|text|textbf|textit|mathrm|mathbf|mathit|bf|rm|it)\b\s*"
)


def _any(words: Sequence[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_MARKER = re.compile(
    rf"""(?<!</)(?<![^\W_])answer(?![^\W_])
      | (?<![^\W_])(?:the|correct|right|best)\b[^.:\n]{{0,40}}?\b(?:option|choice)(?:\s+is(?![^\W_])|(?=\s*[:=]))
      | (?<![\w{_INDIC}])(?:{_any(_ANSWER_WORDS)})(?=[{_VISARGA}]|[^\w{_INDIC}]|$)
      | 答案""",
    re.IGNORECASE | re.VERBOSE,
)
# What may stand between a marker and its label: first what also stands before an option's text, then all of it.
_COLON = re.compile(rf"[\s:={_VISARGA}]*")
_GAP = re.compile(
    rf"(?:{_WRAP}|[\s:={_VISARGA}{_DRESS}]|[-–—](?!\d)|(?:{_any(_COPULAS)})(?![{_INDIC}])"
    r"|(?<![^\W_])(?:is|(?:the\s+)?option|(?:the\s+)?choice)(?![^\W_]))*",
    re.IGNORECASE,
)
_QUESTION_LINE = re.compile(rf"^[ \t{_DRESS}]*(?:{_any(_QUESTION_WORDS)})\s*\d*[\s{_DRESS}]*[:.\-]", re.M | re.I)
_WRONG = re.compile(rf"[\s{_DRESS}]*(?:is\s+|was\s+)?(?:{_any(_WRONG_WORDS)})", re.IGNORECASE)
_SENTENCE_END = re.compile(rf"[.!?।;](?=\s|[{_DRESS}]|$)|$")
_OPENING = re.compile(rf"(?:{_WRAP}|[\s{_DRESS}])*")
_CLOSING = re.compile(rf"(?:{_WRAP}|[{_DRESS}])*")
_SEPARATOR = re.compile(rf"[\s.:–—{_DRESS}-]*")
_JOINER = re.compile(r"[ \t]*(?:[,/&]\s*(?:(?:and|or)\b)?|(?:and|or)\b)?[ \t]*", re.IGNORECASE)
_ENDS_LABEL = re.compile(rf"(?:{_WRAP}|[{_DRESS}])*[ \t]*(?:$|\n|\)|[.:\]–—-](?!\w))")
_CLOSERS = " *_`~\"'“”‘’»)]}>$\\|"


@lru_cache(maxsize=64)
def _label(letters: str) -> re.Pattern[str]:
    """A letter that stands alone: no part of a word (B-complex, C's) or of initials (A. P. J.)."""
    alone = rf"(?![^\W\u4e00-\u9fff]|[{_INDIC}])(?!['’-][a-z])(?!\.[^\W\d])(?!\.\s[A-Z]\.)"
    return re.compile(rf"([{letters}{letters.lower()}]){alone}")


@lru_cache(maxsize=64)
def _list_start(letters: str) -> re.Pattern[str]:
    """A fresh list of options: a line of the first letter and, on the next one that is not blank, the second."""
    first, second = (rf"[ \t{_DRESS}]*{letter}[ \t{_DRESS}]*[).:\]]" for letter in letters[:2])
    return re.compile(rf"^{first}[^\n]*\n\s*{second}", re.MULTILINE)


# --- reading ---


class _No(Enum):
    """Why a place in a reply gives no letter."""

    NOTHING = "nothing readable stands here: look elsewhere"
    UNDECIDED = "an answer stands here, but not one option: no answer"


@dataclass(frozen=True, slots=True)
class _Options:
    """letters: ``ABCD``. texts: the options, normalised. by_text: text -> its letter; UNDECIDED where two share it."""

    letters: str
    texts: tuple[str, ...]
    by_text: Mapping[str, str | _No]


@lru_cache(maxsize=4096)
def _options(choices: tuple[str, ...]) -> _Options:
    letters = letters_of(choices)
    texts = tuple(map(_normalised, choices))
    by_text: dict[str, str | _No] = {}
    for letter, text in zip(letters, texts, strict=True):
        if text and not (len(text) == 1 and text.isalpha()):  # a text of one letter would be taken for a label
            by_text[text] = _No.UNDECIDED if text in by_text else letter
    return _Options(letters, texts, by_text)


def _normalised(text: str) -> str:
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    text = text.lstrip("*_`\"'“‘").rstrip(" .।*_`\"'”’")
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "$" else text


def parse_choice(reply: str, choices: Sequence[str], finish_reason: str = "stop") -> str | None:
    """The letter that a reply answers with, or None where it gives none, or more than one.

    choices: the option texts in order. finish_reason does not change the reading: a reply that was cut is read as far
    as it goes. Raises ValueError for fewer than 2 or more than 26 choices.
    """
    return read(reply, choices)


def read(reply: str, choices: Sequence[str], reasoning_opened: bool = False) -> str | None:
    """``parse_choice``, for a prompt that may have opened the reasoning itself."""
    options = _options(tuple(choices))
    answer = without_reasoning(reply, reasoning_opened)  # rule 1
    if answer is None:
        return None
    text = unicodedata.normalize("NFKC", answer)
    found = _read_text(_without_continuation(text, options), options)
    return found if isinstance(found, str) else None


def _without_continuation(text: str, options: _Options) -> str:
    """Rule 2: the reply up to where, after an answer, it goes on with a question of its own."""
    patterns = (_QUESTION_LINE, _list_start(options.letters))
    starts = sorted({match.start() for pattern in patterns for match in pattern.finditer(text)} - {0})
    if not starts:
        return text
    if _read_text(text[: starts[0]], options) is not _No.NOTHING:
        return text[: starts[0]]
    for marker in _MARKER.finditer(text, starts[0]):
        if _read_after_marker(text, marker.end(), options) is not _No.NOTHING:
            return text[: next((start for start in starts if start > marker.start()), len(text))]
    return text


def _read_text(text: str, options: _Options) -> str | _No:
    """The last marker with something readable after it decides (rules 3 to 5); without one, the whole (rule 6)."""
    decided: str | _No = _No.NOTHING
    for marker in _MARKER.finditer(text):
        found = _read_after_marker(text, marker.end(), options)
        decided = decided if found is _No.NOTHING else found
    return _read_whole(text, options) if decided is _No.NOTHING else decided


def _read_after_marker(text: str, start: int, options: _Options) -> str | _No:
    gap = _match(_GAP, text, start)
    for position in (_match(_COLON, text, start).end(), gap.end()):
        found = _option_text_at(text, position, options.by_text)
        if found is not _No.NOTHING:
            return found
    named = re.search(rf"[:={_VISARGA}]", gap.group()) is not None
    label = _label_at(text, gap.end(), options.letters, named)
    if label is None:
        return _several_or_foreign(text, gap.end(), options.letters)
    after = gap.end() + 1
    own = {options.texts[options.letters.index(label)]: label}
    if _option_text_at(text, _match(_SEPARATOR, text, after).end(), own) == label:
        return label  # "B) C" where option B says C
    others = _labels_joined(text, after, options.letters)
    if others:
        quotes_format = len(others) > 1 and {label, *others} == set(options.letters)
        return _No.NOTHING if quotes_format else _No.UNDECIDED
    if _WRONG.match(text, after) and gap.group().strip(f" {_CLOSERS}([{{<") in ("", "option", "choice"):
        return _No.NOTHING  # "answer A is wrong", but not "the answer is A, not B"
    return label


def _match(pattern: re.Pattern[str], text: str, position: int) -> re.Match[str]:
    """A match of a pattern that always matches, if only the empty string."""
    match = pattern.match(text, position)
    assert match is not None
    return match


def _option_text_at(text: str, position: int, by_text: Mapping[str, str | _No]) -> str | _No:
    """The option whose exact text stands here, up to the end of the line or of a sentence."""
    line_end = text.find("\n", position)
    line = text[position : line_end if line_end >= 0 else len(text)]
    # Only so much of a line can be an option: a long reply must not cost more than its length.
    line = line[: 2 * max(map(len, by_text), default=0) + 64]
    for end in [match.start() for match in _SENTENCE_END.finditer(line)][::-1]:
        for said in (line[:end], line[:end].rstrip(_CLOSERS)):
            if (found := by_text.get(_normalised(said))) is not None:
                return found
    return _No.NOTHING


def _label_at(text: str, position: int, letters: str, named: bool) -> str | None:
    """The label that stands here. named: a colon or an equals sign stands before it, so that "A" is no article."""
    match = _label(letters).match(text, position)
    if match is None:
        return None
    letter, rest = match[1], text[match.end() : match.end() + 40]
    if letter.islower():
        ends_line = rest.lstrip(" \t")[:1] in ("", "\n")
        return letter.upper() if ends_line or not rest[0].isspace() else None
    word = re.match(r"[ \t]+([A-Za-z]+)", rest)
    if letter in "AI" and word and not named and word[1].lower() not in _NEVER_AFTER_ARTICLE:
        return None
    return letter


def _several_or_foreign(text: str, position: int, letters: str) -> _No:
    """Letters that are an answer all the same, but of no one option: "AB", or "F" where there are four options."""
    match = re.compile(r"([A-Z]+)(?![^\W_])").match(text, position)
    if match is None:
        return _No.NOTHING
    run = match[1]
    several = len(run) > 1 and len(set(run)) == len(run) and set(run) < set(letters)
    foreign = len(run) == 1 and run not in letters and _ENDS_LABEL.match(text, match.end())
    return _No.UNDECIDED if several or foreign else _No.NOTHING


def _labels_joined(text: str, position: int, letters: str) -> list[str]:
    """The further labels beside one, joined only by a comma, slash, "&", "and", "or", or nothing."""
    found: list[str] = []
    while True:
        joiner = _match(_JOINER, text, _match(_CLOSING, text, position).end())
        position = _match(_CLOSING, text, joiner.end()).end()
        label = _label_at(text, position, letters, named=False)
        if label is None:
            return found
        found.append(label)
        position += 1


def _read_whole(text: str, options: _Options) -> str | _No:
    """Rule 6: the exact text of one option, or a label at the start, or a label in dress."""
    said = text.strip()
    for form in (said, said.strip(f"{_CLOSERS}([{{<")):
        if (found := options.by_text.get(_normalised(form))) is not None:
            return found
    position = _match(_OPENING, text, 0).end()
    label = _label_at(text, position, options.letters, named=True)
    if label is None or not _ENDS_LABEL.match(text, position + 1) or _several_options(text, label, options.letters):
        return _No.NOTHING
    return label


def _several_options(text: str, label: str, letters: str) -> bool:
    """Whether a reply that starts with a label lists options instead of choosing one."""
    second_line = [line for line in text.split("\n") if line.strip()][1:2]
    starts_line = re.compile(rf"[\s{_DRESS}]*([{letters}])(?:[{_DRESS}]*[).:\]]|[{_DRESS}\s]*$)")
    if any((match := starts_line.match(line)) and match[1] != label for line in second_line):
        return True
    return bool({*re.findall(rf"(?:^|\s)\(?([{letters}])\)\s", text)} - {label})


# --- scoring ---


def score(sample: Sample, letter: str | None, finish_reason: str = "stop") -> Score:
    """One ``answer`` tally: an answer that can't be read is not predicted, and wrong."""
    tally = Tally(int(letter == sample.gold[0]), int(letter is not None), 1)
    notes = {"unparsed": int(letter is None), "truncated": int(finish_reason == "length")}
    return Score(sample.id, letter, {"answer": tally}, {name: count for name, count in notes.items() if count})
