"""Multiple choice by likelihood: what a prompt may go on with, and how probable each option makes that.

Two ways, both without a reply to read. logprob: the prompt ends with ``ANSWER:``, and the letters' own tokens are
looked at. cloze: the prompt is the question alone, and each option's text is looked at; for models that follow no
instructions. Pure; knows nothing about engines or tokenizers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from localeval.grammar import ANSWER
from localeval.schema import Sample, Score
from localeval.tasks.mcq.letters import letters_of
from localeval.tasks.mcq.task import tallies
from localeval.templates import Templates, fill

ANSWER_START = ANSWER.rstrip()
CLOZE_START = " "
"""What stands between a cloze prompt and the option's text."""


def ask_cloze(sample: Sample, shots: Sequence[Sample], templates: Templates) -> str:
    """The question, after the examples with their right options' texts; an option's text is to follow."""
    shown = [
        fill(templates.cloze, {"question": shot.text})
        + CLOZE_START
        + shot.choices[letters_of(shot.choices).index(gold)]
        for shot in shots
        for gold in shot.gold
    ]
    return "\n\n".join([*shown, fill(templates.cloze, {"question": sample.text})])


def spellings(letter: str) -> tuple[str, str]:
    """How a letter may follow ``ANSWER:``: as it is written, after a space, and without one."""
    return f" {letter}", letter


def letter_logprobs(letters: str, found: Mapping[str, float]) -> dict[str, float]:
    """Log probability of each letter: its spellings' probabilities, added. found: by spelling.

    Raises ValueError for a letter of which no spelling was found.
    """
    logprobs = {}
    for letter in letters:
        values = [found[spelling] for spelling in spellings(letter) if spelling in found]
        if not values:
            raise ValueError(f"there is no log probability of {letter}")
        top = max(values)
        logprobs[letter] = top + math.log(sum(math.exp(value - top) for value in values))
    return logprobs


def with_forced(score: Score, logprobs: Mapping[str, float]) -> Score:
    """The same score with the most probable letter as its forced answer; of equal ones the first."""
    answer = max(logprobs, key=lambda letter: logprobs[letter])
    return replace(score, forced=answer, forced_probability=math.exp(logprobs[answer]))


def text_name(letter: str) -> str:
    """What an option's text is called among the continuations: not as a letter's spelling is."""
    return f"text {letter}"


def text_logprobs(choices: Sequence[str], found: Mapping[str, float]) -> dict[str, float]:
    """Log likelihood of each option's text, per character (code point), so that a short text has no advantage.

    found: of the whole text, by ``text_name``. An option without text counts as one character. Raises ValueError for a
    text that was not found.
    """
    missing = [text_name(letter) for letter in letters_of(choices) if text_name(letter) not in found]
    if missing:
        raise ValueError(f"there is no log probability of {', '.join(missing)}")
    return {
        letter: found[text_name(letter)] / max(len(text), 1)
        for letter, text in zip(letters_of(choices), choices, strict=True)
    }


def score_letters(sample: Sample, logprobs: Mapping[str, float]) -> Score:
    """The most probable letter is the answer; of equal ones the first."""
    probabilities = {letter: math.exp(value) for letter, value in logprobs.items()}
    return replace(score_texts(sample, logprobs), probabilities=probabilities)


def score_texts(sample: Sample, logprobs: Mapping[str, float]) -> Score:
    """The most likely text is the answer; of equal ones the first."""
    answer = max(logprobs, key=lambda letter: logprobs[letter])
    return Score(sample.id, answer, tallies(sample, answer), logprobs=dict(logprobs))
