"""The types that flow through localeval, and nothing else.

    row -> Sample -> Request -> Completion -> Score -> Report

All are frozen. Counts are stored and added; ratios are derived from counts, never stored and averaged. This module
imports nothing of localeval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol


class LocalevalError(Exception):
    """The command, its data or its model is wrong: the message says what, where, and what to do. Exit status 2."""


class RunFailed(Exception):
    """Work that began did not finish: the message says what was kept and how to go on. Exit status 1."""


@dataclass(frozen=True, slots=True)
class Span:
    """A labelled stretch, half-open: ``start <= i < end``. The unit (tokens, characters) is the holder's."""

    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of a dataset.

    id: ``<subset>:<row index>``. text: the question, or the sentence (tokens joined by one space).
    tokens: the sentence's tokens (NER). choices: the option texts in order (MCQ).
    gold: the right letter, alone in a tuple (MCQ), or one IOB2 tag a token (NER).
    meta: what the report groups by, such as ``{"domain": "Science"}``.
    """

    id: str
    subset: str
    text: str
    gold: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. The default is greedy. ``top_k`` 0 means all tokens."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None


Mode = Literal["generate", "constrained", "logprob", "cloze"]
"""How a dataset is asked: by a free reply, by one that is held to a grammar, by the probability of each option's
letter, or by that of its text. docs/modes.md describes them for users."""


def title_of(dataset: str, mode: Mode) -> str:
    """A dataset's name, with how it was asked where that is not the usual way."""
    return dataset if mode == "generate" else f"{dataset}, {mode}"


class Constraint(Protocol):
    """What a reply may be (``grammar.py`` makes them): a frozen dataclass, so that it can be compared and recorded."""

    def term(self) -> Any:
        """The ``outlines`` term that an engine is told."""
        ...

    def accepts(self, text: str) -> bool:
        """Whether a whole reply is one that may be."""
        ...

    @property
    def longest(self) -> int:
        """The most bytes that an answer has, without reasoning before it."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """What an engine is asked: a reply, or how probable some continuations of the prompt are.

    dataset, sample_id: what it asks. key: over all that its reply depends on (``identity.request_key``).
    prompt_token_ids: the prompt, chat template and BOS included; held in 4 bytes an id (``array('I')``).
    max_tokens: at most so many new tokens. stop: strings that end the reply, kept in its text.
    wanted_logprobs: how many best tokens to report at each position; 0 for none.
    constraint: what the reply may be; None for anything. allowed_token_ids: the tokens that it is made of; all if none.
    continuations: name -> token ids. Where there are any, their log probabilities are the answer, and what is generated
    beside them (one token) is not.
    copies: whether the reply is expected to repeat part of the prompt, word for word; a hint, no reply depends on it.
    keeps_special: whether special tokens stay in the reply's text, because the model's reasoning stands between some;
    the one that ends the reply does not, unless there are stop strings.
    then: the most tokens that a second request adds to prompt and reply, where an unread reply is asked once more.
    forced: whether it is such a second request, and its answer is no reply to the sample but a forced answer.
    """

    dataset: str
    sample_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    wanted_logprobs: int = 0
    constraint: Constraint | None = None
    allowed_token_ids: tuple[int, ...] = ()
    continuations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    copies: bool = False
    keeps_special: bool = False
    then: int = 0
    forced: bool = False
    key: str = ""

    @property
    def length(self) -> int:
        """The most tokens that a sequence of this request has, or of the second one that may follow it."""
        longest = max(map(len, self.continuations.values()), default=0)
        return len(self.prompt_token_ids) + max(self.max_tokens + self.then, longest + 1)


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply. finish_reason: ``stop`` (it ended by itself), ``length`` (it was cut), or the engine's own word.

    prompt_tokens: of all sequences that the engine was given for it. cached_tokens: those of them that it did not have
    to compute, for another request began with the same.
    logprobs: one mapping ``{token id: natural logarithm of its probability}`` a new token, where asked. Of a
    constrained reply it is the probability among the tokens that its grammar allows.
    continuations: name -> natural logarithm of the probability that the prompt goes on with it, where asked.
    """

    sample_id: str
    text: str
    finish_reason: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[Mapping[int, float], ...] | None = None
    continuations: Mapping[str, float] | None = None
    key: str = ""


def log_probabilities(value: Any) -> dict[str, float]:
    """``{name: log probability}`` out of JSON. Raises ValueError that names what is none; 1e-6 is left for rounding."""
    if not isinstance(value, Mapping):
        raise ValueError(f"continuations is {value!r}; expected {{text: log probability}}")
    for name, number in value.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not -math.inf < number <= 1e-6:
            raise ValueError(f"continuations: {name!r} is {number!r}; a log probability is a finite number up to 0")
    return {str(name): float(number) for name, number in value.items()}


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of one kind of thing: how many are in the gold, how many were predicted, how many agree."""

    correct: int = 0
    predicted: int = 0
    gold: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.correct + other.correct, self.predicted + other.predicted, self.gold + other.gold)

    @property
    def precision(self) -> float | None:
        """Correct / predicted; None where nothing was predicted."""
        return self.correct / self.predicted if self.predicted else None

    @property
    def recall(self) -> float | None:
        """Correct / gold; None where there is no gold. For answers and tokens this is the accuracy."""
        return self.correct / self.gold if self.gold else None

    @property
    def f1(self) -> float | None:
        """2TP / (2TP + FP + FN), that is 2 correct / (predicted + gold); None where both are 0."""
        total = self.predicted + self.gold
        return 2 * self.correct / total if total else None


class Invented(NamedTuple):
    """An entity that a reply has tagged and of which no character stands in the sentence."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Score:
    """A reply, read and judged.

    parsed: the letter, or the IOB2 tags joined by one space; None where the reply could not be read.
    tallies: by kind: ``answer`` (MCQ); ``token`` and one an entity label, as ``entity:PER`` (NER).
    notes: how often each thing worth counting happened: unparsed, truncated, label_mismatch, malformed, text_changed,
    invented, constraint_violations.
    logprobs: letter -> natural logarithm of its option's likelihood, where options are scored and nothing is generated:
    of the letter (logprob), or of the option's text, per character (cloze).
    probabilities: letter -> its probability (logprob).
    invented: the entities that the reply has made up (NER); ``notes`` counts them.
    unparsed_reason: why ``parsed`` is None, in the task's words (``several``, ``cut``, ...); None where it is not.
    forced, forced_probability: the letter that an unread reply gives when it is forced to answer, and its probability
    among all tokens. ``parsed`` and ``tallies`` stay as read.
    """

    sample_id: str
    parsed: str | None
    tallies: Mapping[str, Tally]
    notes: Mapping[str, int] = field(default_factory=dict)
    logprobs: Mapping[str, float] = field(default_factory=dict)
    probabilities: Mapping[str, float] = field(default_factory=dict)
    invented: tuple[Invented, ...] = ()
    unparsed_reason: str | None = None
    forced: str | None = None
    forced_probability: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric with its 95% interval; None for what is not defined."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The part of a report that speaks of some of the samples, or of one entity type."""

    n: int
    metrics: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Bin:
    """One row of a reliability table: the answers whose confidence is in ``[low, high)`` (the last: ``[low, high]``).

    confidence: their confidences, summed; correct: how many of them are right.
    """

    low: float
    high: float
    n: int
    correct: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Confused:
    """How often one answer stood in place of another; the right ones are among them.

    gold, predicted: letters (MCQ), or entity types (NER). predicted is None for a question whose reply could not be
    read, and for an entity that was missed; gold is None for an entity where there is none, invented ones included.
    exact: whether both ends agree; where not, the two entities only overlap, or one of them is not there.
    """

    gold: str | None
    predicted: str | None
    exact: bool
    n: int


@dataclass(frozen=True, slots=True)
class Forced:
    """The accuracy where each unread reply counts by its forced answer; beside the accuracy as read, never in it.

    n: forced answers. correct: how many of them are right. macro: the mean over subsets.
    """

    n: int
    correct: int
    accuracy: Estimate
    macro: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """One dataset's result. ``macro`` names what it is a mean over: ``subsets`` (MCQ) or ``types`` (NER).

    letters: each option letter's answers against gold (MCQ). reliability: confidence against accuracy (logprob).
    confusion: what was answered in place of what. forced: None where no answer is forced. unparsed: by reason how many
    replies could not be read, 0 included; empty where no reply is read, and in a report of before there were reasons.
    """

    dataset: str
    model: str
    task: str
    mode: Mode
    n: int
    limited: bool
    comparable: bool
    metrics: Mapping[str, Estimate]
    macro_over: str
    macro: Mapping[str, float | None]
    subsets: Mapping[str, Group]
    groups: Mapping[str, Mapping[str, Group]]
    types: Mapping[str, Group]
    letters: Mapping[str, Tally]
    reliability: tuple[Bin, ...]
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()
    confusion: tuple[Confused, ...] = ()
    forced: Forced | None = None
    unparsed: Mapping[str, int] = field(default_factory=dict)
