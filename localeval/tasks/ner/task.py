"""Named entities: how a sentence is asked, what a constrained reply may be, how a reading is scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localeval.grammar import CLOSE, OPEN, TaggedSentence
from localeval.schema import Sample, Score, Tally
from localeval.spans import spans_from_tags
from localeval.tasks.ner.parse import Reading
from localeval.templates import Templates, fill


@dataclass(frozen=True, slots=True)
class EntityType:
    """A kind of entity. label: its name in data and report; tag: in prompt and reply; description: in the prompt."""

    label: str
    tag: str
    description: str


def ask(sample: Sample, shots: Sequence[Sample], templates: Templates, types: Sequence[EntityType]) -> str:
    """Return the user's message: the instruction and the sentence, after the examples if there are any."""
    values = {
        "entities": ", ".join(f"{kind.tag} ({kind.description})" for kind in types),
        "entity_list": ", ".join(f"<{kind.tag}>" for kind in types),
        "text": sample.text,
    }
    prompt = fill(templates.prompt, values)
    if not shots:
        return prompt
    entities = {kind.label: kind.tag for kind in types}
    examples = "\n\n".join(
        fill(templates.shot, {"text": shot.text, "target": target(shot, entities)}) for shot in shots
    )
    return fill(templates.shots_prompt, {"shots": examples, "prompt": prompt})


def target(sample: Sample, entities: Mapping[str, str]) -> str:
    """Return the reply that is exactly right: the sentence with its gold tags, in ``<response>``."""
    pieces = list(sample.tokens)
    for span in spans_from_tags(sample.gold):
        name = entities[span.label]
        pieces[span.start] = f"<{name}>{pieces[span.start]}"
        pieces[span.end - 1] = f"{pieces[span.end - 1]}</{name}>"
    return f"{OPEN}{' '.join(pieces)}{CLOSE}"


def constraint(sample: Sample, entities: Mapping[str, str], after_reasoning: bool) -> TaggedSentence:
    """Return what a constrained reply may be: the sentence, with whole tokens tagged."""
    return TaggedSentence(sample.tokens, tuple(entities.values()), after_reasoning)


def stop_of(sample: Sample) -> tuple[str, ...]:
    """Return the string that ends a reply; none if the sentence itself holds it."""
    return () if CLOSE in sample.text else (CLOSE,)


def score(sample: Sample, reading: Reading, entities: Mapping[str, str], finish_reason: str = "stop") -> Score:
    """Count entities by label (``entity:PER``) and tokens (``token``).

    A reply that can't be read finds no entity and has every token wrong; an invented entity counts as predicted.
    """
    gold = set(spans_from_tags(sample.gold))
    predicted = set(spans_from_tags(reading.tags)) if reading.tags is not None else set()
    in_both = Counter(span.label for span in gold & predicted)
    in_reply = Counter([span.label for span in predicted] + [each.label for each in reading.invented])
    in_gold = Counter(span.label for span in gold)
    tallies = {
        f"entity:{label}": Tally(in_both[label], in_reply[label], in_gold[label])
        for label in entities
        if label in in_reply or label in in_gold
    }
    right = sum(a == b for a, b in zip(sample.gold, reading.tags or (), strict=False))
    tallies["token"] = Tally(right, len(reading.tags or ()), len(sample.gold))
    notes = {
        "unparsed": int(reading.tags is None),
        "truncated": int(finish_reason == "length"),
        "malformed": reading.malformed,
        "text_changed": int(reading.text_changed),
        "invented": len(reading.invented),
    }
    parsed = None if reading.tags is None else " ".join(reading.tags)
    counted = {name: count for name, count in notes.items() if count}
    return Score(sample.id, parsed, tallies, counted, invented=reading.invented, unparsed_reason=reading.reason)
