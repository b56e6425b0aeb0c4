"""A SampleResult -> the row that the browser of samples shows and filters: plain JSON. Pure.

The rows inside a page and those that are served have this one shape:

    id, subset, groups      as in the run folder
    outcomes                right or wrong, what else is counted of it, and why it was not read (see ``outcomes``)
    confused                [gold, read, exact]: letters, or entity types; null for none (see ``confused``)
    text, choices, tokens   the question with its options, or the sentence
    gold, read              letters (MCQ)
    pairs, invented         entities, gold beside predicted, each [label, first token, token after the last] (NER)
    probabilities           letter -> [among the options, among all tokens] (logprob)
    likelihoods             letter -> that of its text, per character, between 0 and 1 (cloze)
    forced                  the letter of an unread reply's forced answer, and its probability (MCQ)
    prompt, rendered        the text that the model was given; only the user's message where rendered is false
    reply, finish           what came back, and why it ended
    asked, said             tokens of prompt and reply
    left_out                field -> [place, characters]: what is not in prompt, reply or text, and where it stood
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from localeval.metrics.ner import Pair, pairs
from localeval.report.build import OF_SAMPLES
from localeval.results import SampleResult
from localeval.schema import Span

OUTCOMES = ("wrong", "right", *OF_SAMPLES)
"""What a sample can be; after the first two are those that the report counts, and of them a sample can be several."""


def outcomes(result: SampleResult) -> tuple[str, ...]:
    """``right`` or ``wrong`` (unread ones are wrong), the report's counts that it is part of, why it was not read."""
    reason = result.score.unparsed_reason
    counted = [name for name in OF_SAMPLES if result.score.notes.get(name)]
    return ("right" if result.right else "wrong", *counted, *([reason] if reason else []))


def confused(result: SampleResult) -> list[tuple[str | None, str | None, bool]]:
    """What stood in place of what, as the report's ``confusion`` counts it: gold, read, and whether the ends agree."""
    if not result.tokens:
        return [(result.gold, result.score.parsed, True)]
    found = [
        (pair.gold.label if pair.gold else None, pair.predicted.label if pair.predicted else None, pair.exact)
        for pair in _pairs(result)
    ]
    return [*found, *((None, each.label, False) for each in result.score.invented)]


def row(result: SampleResult, longest: int | None = None) -> dict[str, Any]:
    """longest: of prompt, reply and text so many characters at most, from their beginning and their end."""
    left_out: dict[str, tuple[int, int]] = {}

    def held(field: str, text: str) -> str:
        if longest is None or len(text) <= longest:
            return text
        head = longest * 4 // 5
        left_out[field] = _utf16(text[:head]), len(text) - longest
        return text[:head] + text[len(text) - (longest - head) :]

    completion = result.completion
    found: dict[str, Any] = {
        "id": result.sample_id,
        "subset": result.subset,
        "groups": dict(result.groups),
        "outcomes": outcomes(result),
        "confused": confused(result),
        "text": held("text", result.text),
        **(_entities(result) if result.tokens else _options(result)),
        "prompt": held("prompt", result.prompt),
        "rendered": result.rendered,
        "reply": held("reply", completion.text),
        "finish": completion.finish_reason,
        "asked": completion.prompt_tokens,
        "said": completion.output_tokens,
    }
    return {**found, "left_out": left_out} if left_out else found


def _pairs(result: SampleResult) -> list[Pair]:
    parsed = result.score.parsed
    return pairs(result.gold.split(" "), None if parsed is None else parsed.split(" "))


def _entities(result: SampleResult) -> dict[str, Any]:
    return {
        "tokens": result.tokens,
        "pairs": [(_span(pair.gold), _span(pair.predicted)) for pair in _pairs(result)],
        "invented": [tuple(each) for each in result.score.invented],
    }


def _span(span: Span | None) -> tuple[str, int, int] | None:
    return None if span is None else (span.label, span.start, span.end)


def _options(result: SampleResult) -> dict[str, Any]:
    score = result.score
    found: dict[str, Any] = {"choices": result.choices, "gold": result.gold, "read": score.parsed}
    if score.probabilities:
        among = _among_options(score.logprobs)
        found["probabilities"] = {
            letter: (round(among[letter], 5), round(value, 7)) for letter, value in score.probabilities.items()
        }
    elif score.logprobs:
        found["likelihoods"] = {letter: round(math.exp(value), 5) for letter, value in score.logprobs.items()}
    if score.forced is not None and score.forced_probability is not None:
        found["forced"] = (score.forced, round(score.forced_probability, 7))
    return found


def _among_options(logprobs: Mapping[str, float]) -> dict[str, float]:
    top = max(logprobs.values())
    weights = {letter: math.exp(value - top) for letter, value in logprobs.items()}
    total = math.fsum(weights.values())
    return {letter: weight / total for letter, weight in weights.items()}


def _utf16(text: str) -> int:
    """The length as JavaScript counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


# --- the rows inside a page ---


def packed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with prompts as ``[n, middle, m]``: the first n and last m UTF-16 units of the prompt before it.

    Prompts of one dataset begin and end alike. samples.js undoes it.
    """
    before = ""
    found = []
    for each in rows:
        prompt = each["prompt"]
        head = _alike(before, prompt)
        tail = _alike(before[head:][::-1], prompt[head:][::-1])
        middle = prompt[head : len(prompt) - tail]
        found.append({**each, "prompt": (_utf16(prompt[:head]), middle, _utf16(prompt[len(prompt) - tail :]))})
        before = prompt
    return found


def _alike(one: str, other: str) -> int:
    """How many characters the two have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
