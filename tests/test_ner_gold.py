"""Gold replies read back: as they are, and disturbed as models disturb them. Each must give every tag."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import pytest

from localeval import score_tags, tags_from_reply
from localeval.datasets.rows import load_dataset
from localeval.datasets.spec import find_spec
from localeval.schema import Sample
from localeval.tasks.ner import task as ner


@pytest.mark.parametrize(
    ("dataset", "split", "sentences"),
    [
        ("conllpp", "train", 14041),
        ("conllpp", "test", 3453),
        ("mit_movie_trivia", "train", 6816),
        ("mit_movie_trivia", "test", 1953),
    ],
)
def test_gold_read_back_is_perfect(shared: Path, dataset: str, split: str, sentences: int) -> None:
    spec = find_spec(dataset).model_copy(update={"split": split})
    samples = load_dataset(spec, dataset_dir=str(shared / "data")).samples
    assert len(samples) == sentences
    said = [tags_from_reply(ner.target(sample, spec.tags), sample.tokens, spec.tags) for sample in samples]
    scores = score_tags([sample.gold for sample in samples], said)
    assert (scores.precision, scores.recall, scores.f1, scores.accuracy) == (1.0, 1.0, 1.0, 1.0)


# --- disturbed ---


class Gold:
    """A gold reply in parts: the sentence, and the tagged sentence."""

    def __init__(self, sample: Sample, entities: Mapping[str, str]) -> None:
        self.plain = sample.text
        self.tagged = ner.target(sample, entities).removeprefix("<response>").removesuffix("</response>")
        self.labels = {tag: label for label, tag in entities.items()}
        self.tag = re.compile(f"<(/?)({'|'.join(entities.values())})>")

    def text(self, change: Callable[[str], str]) -> str:
        """Change what stands between the tags."""
        parts = self.tag.split(self.tagged)
        tags = [f"<{closes}{name}>" for closes, name in zip(parts[1::3], parts[2::3], strict=True)]
        texts = map(change, parts[::3])
        return next(texts) + "".join(tag + text for tag, text in zip(tags, texts, strict=True))

    def tags(self, start: str, end: str) -> str:
        """Write the tags in another way; {name} and {label} stand for those of each."""
        return self.tag.sub(
            lambda tag: (end if tag[1] else start).replace("{name}", tag[2]).replace("{label}", self.labels[tag[2]]),
            self.tagged,
        )


def block(text: str) -> str:
    return f"<response>{text}</response>"


def without_marks(text: str) -> str:
    return "".join(x for x in unicodedata.normalize("NFD", text) if not 0x300 <= ord(x) < 0x370)


def full_width(text: str) -> str:
    return "".join(chr(ord(x) + 0xFEE0) if "!" <= x <= "~" else x for x in text)


def between(what: str) -> Callable[[str], str]:
    return lambda text: re.sub(r"(?<=\w)(?=\w)", what, text)


ANOTHER = "<person>Zoltan Quux</person> visited <location>Vaduz</location> with a <year>1733</year> clock"
DISTURBED: dict[str, Callable[[Gold], str]] = {
    # the text
    "small letters": lambda g: block(g.text(str.lower)),
    "capitals": lambda g: block(g.text(str.upper)),
    "capitals and small ones swapped": lambda g: block(g.text(str.swapcase)),
    "usual spelling": lambda g: block(g.text(lambda t: re.sub(r" (?=[.,;:?!')])|(?<=\() ", "", t))),
    "two spaces": lambda g: block(g.text(lambda t: t.replace(" ", "  "))),
    "no-break spaces": lambda g: block(g.text(lambda t: t.replace(" ", "\xa0"))),
    "tabs": lambda g: block(g.text(lambda t: t.replace(" ", "\t"))),
    "a word a line": lambda g: block(g.text(lambda t: t.replace(" ", "\n"))),
    "Windows line ends": lambda g: f"<response>\r\n{g.tagged}\r\n</response>\r\n",
    "spaces within the tags": lambda g: block(g.tags("<{name}> ", " </{name}>")),
    "spaces around the tags": lambda g: block(g.tags(" <{name}> ", " </{name}> ")),
    "tags on lines of their own": lambda g: block(g.tags("\n<{name}>\n", "\n</{name}>\n")),
    "zero width spaces": lambda g: block(g.text(between("\u200b"))),
    "soft hyphens": lambda g: block(g.text(between("\u00ad"))),
    "word joiners": lambda g: block(g.text(between("\u2060"))),
    "variation selectors": lambda g: block(g.text(between("\ufe0f"))),
    "byte order mark": lambda g: f"\ufeff<response>\ufeff{g.tagged}</response>",
    "decomposed": lambda g: block(g.text(lambda t: unicodedata.normalize("NFD", t))),
    "no accents": lambda g: block(g.text(without_marks)),
    "accents": lambda g: block(g.text(lambda t: re.sub(r"[aeiou]", lambda x: x[0] + "\u0301", t))),
    "full width": lambda g: block(g.text(full_width)),
    "curly quotes": lambda g: block(g.text(lambda t: t.replace('"', "“").replace("'", "’"))),
    "quotes of old corpora": lambda g: block(g.text(lambda t: t.replace('"', "``"))),
    "en dashes": lambda g: block(g.text(lambda t: t.replace("-", "–"))),
    "minus signs": lambda g: block(g.text(lambda t: t.replace("-", "−"))),
    "HTML entities": lambda g: block(g.text(html.escape)),
    "numbers of HTML": lambda g: block(g.text(lambda t: t.replace("'", "&#39;").replace('"', "&#x22;"))),
    # the tags
    "tags in capitals": lambda g: block(g.tag.sub(lambda tag: tag[0].upper(), g.tagged)).replace("resp", "RESP"),
    "labels as tags": lambda g: block(g.tags("<{label}>", "</{label}>")),
    "attributes": lambda g: block(g.tags("<{name} id=\"1\" confidence='0.9'>", "</{name}>")),
    "spaces in the tags": lambda g: block(g.tags("< {name} >", "</ {name} >")),
    "plural tags": lambda g: block(g.tags("<{name}s>", "</{name}s>")),
    "hyphens": lambda g: block(g.tags("<{name}>", "</{name}>").replace("_name>", "-name>")),
    "British spelling": lambda g: block(g.tagged.replace("organization>", "organisation>")),
    "entity elements": lambda g: block(g.tags('<entity type="{name}">', "</entity>")),
    "entity elements, labels": lambda g: block(g.tags("<ent label={label}>", "</ent>")),
    "span elements": lambda g: block(g.tags('<span class="entity {name}">', "</span>")),
    "square brackets": lambda g: block(g.tags("[{name}]", "[/{name}]")),
    "escaped as HTML": lambda g: block(g.tags("&lt;{name}&gt;", "&lt;/{name}&gt;")),
    "all escaped as HTML": lambda g: html.escape(block(g.tagged), quote=False),
    "escaped slashes": lambda g: block(g.tags("<{name}>", r"<\/{name}>")),
    "escaped brackets": lambda g: block(g.tags(r"\<{name}\>", r"\</{name}\>")),
    "start tags for end tags": lambda g: block(g.tags("<{name}>", "<{name}>")),
    "empty elements for end tags": lambda g: block(g.tags("<{name}>", "<{name}/>")),
    "end tags without a name": lambda g: block(g.tags("<{name}>", "</>")),
    "types repeated in brackets": lambda g: block(g.tags("<{name}>", "</{name}> ({name})")),
    "bold within": lambda g: block(g.tags("<{name}>**", "**</{name}>")),
    "bold around": lambda g: block(g.tags("**<{name}>", "</{name}>**")),
    "code around": lambda g: block(g.tags("`<{name}>", "</{name}>`")),
    # what stands around
    "no block": lambda g: g.tagged,
    "block not closed": lambda g: f"<response>{g.tagged}",
    "block not opened": lambda g: f"{g.tagged}</response>",
    "another block's name": lambda g: f"<answer>{g.tagged}</answer>",
    "fence": lambda g: f"```xml\n{block(g.tagged)}\n```",
    "fence in the block": lambda g: f"<response>\n```\n{g.tagged}\n```\n</response>",
    "code": lambda g: f"`{block(g.tagged)}`",
    "quoted": lambda g: f"> {g.tagged}",
    "in quotes": lambda g: f'The result is: "{g.tagged}"',
    "JSON": lambda g: json.dumps({"response": g.tagged}).replace("</", "<\\/"),
    "JSON beside the text": lambda g: f"```json\n{json.dumps({'text': g.plain, 'tagged': g.tagged}, indent=1)}\n```",
    "comment before": lambda g: f"Sure! Here is the text with all named entities marked:\n\n{g.tagged}",
    "comment before on the line": lambda g: block(f"The tagged sentence is: {g.tagged}"),
    "comment after": lambda g: f"{g.tagged}\n\nI marked every entity that I could find.",
    "comment after on the line": lambda g: block(f"{g.tagged} (all entities found)"),
    "explanation": lambda g: f"{block(g.tagged)}\n\n**Why:**\n- Names are <person> or <actor> entities.",
    "instruction quoted": lambda g: f"I wrap it in <response>...</response> tags.\n{block(g.tagged)}",
    "reasoning": lambda g: f"<think>Draft: {block(g.plain)}</think>\n{block(g.tagged)}",
    "twice in a block": lambda g: block(f"{g.plain}\n{g.tagged}"),
    "twice on a line": lambda g: block(f"{g.plain} => {g.tagged}"),
    "tagged, then plain": lambda g: block(f"{g.tagged}\n{g.plain}"),
    "draft, then answer": lambda g: f"{block(g.plain)}\nWait, I must tag it:\n{block(g.tagged)}",
    "input and output": lambda g: f"Input: {g.plain}\nOutput: {g.tagged}",
    "a loop that is cut": lambda g: 3 * f"{block(g.tagged)}\n" + f"<response>{g.tagged[: len(g.tagged) // 2]}",
    "another sentence after": lambda g: f"{block(g.tagged)}\n\nInput:\n{ANOTHER}\n\nOutput:\n{block(ANOTHER)}",
    "end of turn": lambda g: f"{g.tagged}<|im_end|>\n<|im_start|>user\nThanks",
}  # fmt: skip


@lru_cache
def gold_of(data: str, dataset: str) -> list[tuple[Sample, Gold, dict[str, str]]]:
    spec = find_spec(dataset)
    samples = load_dataset(spec, dataset_dir=data).samples
    return [(sample, Gold(sample, spec.tags), dict(spec.tags)) for sample in samples[:: len(samples) // 150]]


@pytest.mark.parametrize("dataset", ["conllpp", "mit_movie_trivia"])
@pytest.mark.parametrize("kind", DISTURBED)
def test_disturbed_gold_is_perfect(shared: Path, kind: str, dataset: str) -> None:
    wrong = []
    for sample, gold, entities in gold_of(str(shared / "data"), dataset):
        reply = DISTURBED[kind](gold)
        tags = tags_from_reply(reply, sample.tokens, entities)
        if tags != list(sample.gold):
            wrong.append((reply, tags, sample.gold))
    assert wrong == []
