"""A finished run, sample by sample: what was asked, what came back, how it was read. Reads the run folder alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from localeval.samples import AskedSample, read_samples
from localeval.schema import Completion, LocalevalError, Score
from localeval.store import PREDICTIONS, SCORES, Scored, completion_of, read_scores


@dataclass(frozen=True, slots=True)
class SampleResult:
    """One sample of a finished run.

    text: the question, or the sentence (``tokens`` joined by one space). choices: the options in order (MCQ).
    gold: the right letter, or IOB2 tags joined by one space, as ``score.parsed``.
    prompt: the text that the model was given; where ``rendered`` is False, the user's message alone.
    completion: the reply. score: how it was read and judged.
    """

    sample_id: str
    subset: str
    groups: Mapping[str, str]
    text: str
    tokens: tuple[str, ...]
    choices: tuple[str, ...]
    gold: str
    prompt: str
    rendered: bool
    completion: Completion
    score: Score

    @property
    def right(self) -> bool:
        """Whether the answer is right; of a sentence, whether it could be read and every entity is found and no other.

        Tokens need not be looked at: where all entities agree, so do the tags.
        """
        counts = [tally for name, tally in self.score.tallies.items() if name == "answer" or name.startswith("entity:")]
        return self.score.parsed is not None and all(t.correct == t.predicted == t.gold for t in counts)


def read_results(folder: Path) -> Iterator[SampleResult]:
    """The samples of a finished run, in their order, one at a time.

    Raises LocalevalError that names the file, where one is missing or broken, or where two are not of one run.
    """
    pairs = zip_longest(read_samples(folder), read_scores(folder / SCORES))
    path = folder / PREDICTIONS
    places = _places(path)
    with path.open("rb") as file:
        for asked, scored in pairs:
            if asked is None or scored is None or asked.sample.id != scored.score.sample_id:
                raise LocalevalError(f"{folder}: its samples and its scores are not of one run: {_AGAIN}")
            sample_id = asked.sample.id
            if sample_id not in places:
                raise LocalevalError(f"{path}: sample {sample_id} has a score and no reply: {_AGAIN}")
            file.seek(places[sample_id])
            yield _result(asked, completion_of(file.readline(), f"{path}, sample {sample_id}"), scored)


_AGAIN = "run the command again, and it makes what is missing"


def _places(path: Path) -> dict[str, int]:
    """Where in predictions.jsonl each sample's reply begins; of several, the last."""
    places: dict[str, int] = {}
    at = 0
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    places[json.loads(line)["sample_id"]] = at
                at += len(line)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LocalevalError(f"{path}, byte {at}: can't be read ({error!r}); {_AGAIN}") from error
    return places


def _result(asked: AskedSample, completion: Completion, scored: Scored) -> SampleResult:
    sample = asked.sample
    return SampleResult(
        sample_id=sample.id,
        subset=sample.subset,
        groups=sample.meta,
        text=sample.text,
        tokens=sample.tokens,
        choices=sample.choices,
        gold=" ".join(sample.gold),
        prompt=asked.prompt,
        rendered=asked.rendered,
        completion=completion,
        score=scored.score,
    )
