"""Multiple choice: how a question is asked, what a constrained reply may be, how a reading is scored."""

from __future__ import annotations

from collections.abc import Sequence

from localeval.grammar import Choice
from localeval.schema import Sample, Score, Tally
from localeval.tasks.mcq.letters import letters_of
from localeval.tasks.mcq.parse import Reading
from localeval.templates import Templates, fill


def ask(sample: Sample, shots: Sequence[Sample], templates: Templates) -> str:
    """The user's message: the question with its lettered options, after the examples if there are any."""
    prompt = fill(templates.prompt, _values(sample))
    if not shots:
        return prompt
    examples = "\n\n".join(fill(templates.shot, {**_values(shot), "answer": shot.gold[0]}) for shot in shots)
    return fill(templates.shots_prompt, {"shots": examples, "prompt": prompt})


def constraint(sample: Sample, after_reasoning: bool) -> Choice:
    """What a constrained reply may be: one of the row's own letters."""
    return Choice(letters_of(sample.choices), after_reasoning)


def _values(sample: Sample) -> dict[str, str]:
    letters = letters_of(sample.choices)
    options = "\n".join(f"{letter}) {choice}" for letter, choice in zip(letters, sample.choices, strict=True))
    return {"letters": ",".join(letters), "question": sample.text, "choices": options}


def score(sample: Sample, reading: Reading, finish_reason: str = "stop") -> Score:
    """An answer that can't be read is not predicted, and wrong."""
    notes = {
        "unparsed": int(reading.letter is None),
        "truncated": int(finish_reason == "length"),
        "label_mismatch": int(reading.label_mismatch),
    }
    counted = {name: count for name, count in notes.items() if count}
    return Score(sample.id, reading.letter, tallies(sample, reading.letter), counted, unparsed_reason=reading.reason)


def tallies(sample: Sample, letter: str | None) -> dict[str, Tally]:
    """``answer``, and one for each letter that is the answer or the gold one (``letter:B``)."""
    (gold,) = sample.gold
    letters = sorted({gold} if letter is None else {gold, letter})
    return {
        "answer": Tally(int(letter == gold), int(letter is not None), 1),
        **{f"letter:{x}": Tally(int(x == letter == gold), int(x == letter), int(x == gold)) for x in letters},
    }
