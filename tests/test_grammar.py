"""Grammars: what they accept, by their own check, by llguidance as vLLM compiles them, and by writing out all of it."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localeval.config import load_config
from localeval.datasets.spec import FOLDER
from localeval.grammar import Choice, TaggedSentence
from localeval.jobs import load_jobs
from localeval.schema import Constraint, Sample
from localeval.tasks.mcq import task as mcq
from localeval.tasks.ner import task as ner
from tests.fakes import make_tokenizer


@dataclass(frozen=True)
class Compiler:
    """llguidance with a tokenizer of one token a byte, told of a grammar as outlines' adapter tells vLLM."""

    tokenizer: Any

    def __call__(self, constraint: Constraint) -> Compiled:
        import llguidance
        from outlines.models.vllm_offline import VLLMOfflineTypeAdapter

        ((kind, text),) = VLLMOfflineTypeAdapter().format_output_type(constraint.term()).items()
        matcher = llguidance.LLMatcher(self.tokenizer, llguidance.grammar_from(kind, text))
        assert matcher.get_error() == ""
        return Compiled(self.tokenizer, matcher)


@dataclass(frozen=True)
class Compiled:
    tokenizer: Any
    matcher: Any

    def accepts(self, text: str) -> bool:
        self.matcher.reset()
        ids = self.tokenizer.tokenize_str(text)
        taken = self.matcher.try_consume_tokens(ids)
        return bool(taken == len(ids) and self.matcher.is_accepting())


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    import llguidance.hf
    from transformers import AutoTokenizer

    folder = make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Compiler(llguidance.hf.from_tokenizer(AutoTokenizer.from_pretrained(folder), eos_token=1))


# --- multiple choice ---


@pytest.mark.parametrize("letters", ["AB", "ABC", "ABCD", "ABCDE", "ABCDEFGHIJ"])
def test_a_letter_of_the_row_and_nothing_else(compiler: Compiler, letters: str) -> None:
    choice = Choice(letters)
    compiled = compiler(choice)
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        right = letter in letters
        assert choice.accepts(f"ANSWER: {letter}") is right
        assert compiled.accepts(f"ANSWER: {letter}") is right
    for text in ["", "ANSWER: ", "ANSWER:A", "ANSWER: a", "ANSWER: AB", " ANSWER: A", "ANSWER: A\n", "A", "answer: A"]:
        assert not choice.accepts(text)
        assert not compiled.accepts(text)
    assert choice.longest == len(b"ANSWER: A")


def test_rows_of_one_number_of_options_share_a_grammar() -> None:
    rows = [Sample(f"d:{n}", "d", "?", ("A",), choices=("x", "y", "z")) for n in range(2)]
    assert mcq.constraint(rows[0], False) == mcq.constraint(rows[1], False) == Choice("ABC")


def test_reasoning_is_free_before_a_letter(compiler: Compiler) -> None:
    choice = Choice("AB", after_reasoning=True)
    compiled = compiler(choice)
    for text, right in [
        ("<think>\nIt is C, or ANSWER: D.\n</think>\n\nANSWER: A", True),
        ("</think>ANSWER: B", True),
        ("so B\n</think>\n\nANSWER: B", True),
        ("<think>so</think>\n\nANSWER: C", False),
        ("<think>so</think> well, ANSWER: A", False),
        ("<think>so</think> x </think>ANSWER: A", False),  # the first end tag ends it
        ("ANSWER: A", False),
        ("<think>so", False),
        ("<think>so</think>" + "\n" * 9 + "ANSWER: A", False),  # no white space without end
    ]:
        assert choice.accepts(text) is right, text
        assert compiled.accepts(text) is right, text


# --- sentences ---


def written_out(tokens: Sequence[str], tags: Sequence[str]) -> set[str]:
    """Every string that is allowed, from the definition: the sentence cut into runs in each way, each bare or tagged.

    A bare run is one token, so that every way is met once.
    """
    found = set()

    def go(position: int, text: str) -> None:
        if position == len(tokens):
            found.add(f"<response>{text}</response>")
            return
        between = " " if position else ""
        go(position + 1, text + between + tokens[position])
        for end in range(position + 1, len(tokens) + 1):
            run = " ".join(tokens[position:end])
            for tag in tags:
                go(end, f"{text}{between}<{tag}>{run}</{tag}>")

    go(0, "")
    return found


SMALL = [
    ["EU"],
    ["EU", "rejects", "German"],
    ["a", "a", "a"],
    ["<person>", "x"],  # tokens that look like tags
    ["x", "</person>"],
    ["<person>x</person>", "y"],
    ["<person>", "</person>"],
    ["</response>", "x"],
    ["<", ">"],
    ["person", "person>"],
    ["a b", "b"],  # a space inside a token is no edge
]


@pytest.mark.parametrize("tokens", SMALL, ids=" ".join)
def test_accepts_what_is_allowed_and_nothing_else(compiler: Compiler, tokens: list[str]) -> None:
    """Against all of the language, over strings made of the same pieces."""
    tags = ("person", "org")
    allowed = written_out(tokens, tags)
    constraint = TaggedSentence(tuple(tokens), tags)
    compiled = compiler(constraint)
    for text in allowed:
        assert constraint.accepts(text)
        assert compiled.accepts(text), text
    draw = random.Random(0)
    pieces = [*tokens, " ", "<person>", "</person>", "<org>", "</org>", "<PER>", "<response>", "</response>", "x"]
    tried = {_spoil(text, draw) for text in sorted(allowed) for _ in range(12)}
    for body in itertools.chain.from_iterable(itertools.product(pieces, repeat=n) for n in range(4)):
        tried.add(f"<response>{''.join(body)}</response>")
    assert len(tried - allowed) > 500
    for text in tried:
        assert constraint.accepts(text) is (text in allowed), text
    for text in draw.sample(sorted(tried), 400):
        assert compiled.accepts(text) is (text in allowed), text


def _spoil(text: str, draw: random.Random) -> str:
    """One piece of it taken out, doubled, moved or replaced."""
    pieces = re.findall(r"</?\w+>|\s+|[^<>\s]+|.", text)
    at = draw.randrange(len(pieces))
    kind = draw.randrange(4)
    if kind == 0:
        del pieces[at]
    elif kind == 1:
        pieces.insert(at, pieces[at])
    elif kind == 2:
        pieces.insert(draw.randrange(len(pieces)), pieces.pop(at))
    else:
        pieces[at] = draw.choice(["<person>", "</person>", "<org>", "</org>", "x", " ", ""])
    return "".join(pieces)


def test_the_budget_is_every_token_tagged_alone() -> None:
    constraint = TaggedSentence(("Zoë", "Lee"), ("person", "miscellaneous"))
    widest = "<response><miscellaneous>Zoë</miscellaneous> <miscellaneous>Lee</miscellaneous></response>"
    assert constraint.accepts(widest)
    assert constraint.longest == len(widest.encode()) == 91
    assert constraint.longest == max(len(text.encode()) for text in written_out(constraint.tokens, constraint.tags))


@pytest.mark.parametrize(
    ("tokens", "tags"),
    [((), ("a",)), (("x", ""), ("a",)), (("x",), ()), (("x",), tuple(map(str, range(257)))), (("\ud83d",), ("a",))],
)
def test_what_no_grammar_can_be_made_of(tokens: tuple[str, ...], tags: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"sentence|grammar|surrogates"):
        TaggedSentence(tokens, tags)


def test_the_longest_sentence_and_the_most_types(compiler: Compiler) -> None:
    """Every token tagged alone, at the limit: a row of llguidance's parser holds no more than 2,000 items."""
    tags = tuple(f"type{n}" for n in range(256))
    tokens = tuple(f"word{n % 40}" for n in range(480))
    compiled = compiler(TaggedSentence(tokens, tags))
    sentence = " ".join(tokens)
    assert compiled.accepts(f"<response>{sentence}</response>")
    assert compiled.accepts(f"<response><type255>{sentence}</type255></response>")
    assert not compiled.accepts(f"<response><type255>{sentence}</type254></response>")
    assert not compiled.accepts(f"<response>{sentence} word0</response>")
    alone = " ".join(f"<type{n % 256}>{token}</type{n % 256}>" for n, token in enumerate(tokens))
    assert compiled.accepts(f"<response>{alone}</response>")
    with pytest.raises(ValueError, match="up to 480 tokens and 1 to 256 tags, not 481 and 1"):
        TaggedSentence((*tokens, "more"), ("a",))


def test_reasoning_is_free_before_a_sentence(compiler: Compiler) -> None:
    constraint = TaggedSentence(("x", "y"), ("person",), after_reasoning=True)
    compiled = compiler(constraint)
    for text, right in [
        ("<think> <response>z </think>\n\n<response>x <person>y</person></response>", True),
        ("<think> hm </think>\n\n<response>x <person>y</response>", False),
        ("<response>x y</response>", False),
    ]:
        assert constraint.accepts(text) is right
        assert compiled.accepts(text) is right


# --- sentences of every script, and hostile ones ---

SCRIPTS = {
    "English": "Ann Lee met John at the U.N. in New York .",
    "Bengali": "রবীন্দ্রনাথ ঠাকুর কলকাতায় জন্মগ্রহণ করেন ।",
    "Gujarati": "મહાત્મા ગાંધી પોરબંદરમાં જન્મ્યા હતા .",
    "Hindi": "महात्मा गांधी का जन्म क्‍या पोरबंदर में हुआ ।",
    "Kannada": "ಬೆಂಗಳೂರು ಕರ್ನಾಟಕದ ರಾಜಧಾನಿ ನಗರ ಆಗಿದೆ .",
    "Malayalam": "തിരുവനന്തപുരം കേരളത്തിന്റെ തലസ്ഥാനമാണ് അവന്‍ .",
    "Marathi": "छत्रपती शिवाजी महाराज पुण्यात राहत होते .",
    "Odia": "ଭୁବନେଶ୍ୱର ଓଡ଼ିଶାର ରାଜଧାନୀ ଅଟେ ।",
    "Punjabi": "ਅੰਮ੍ਰਿਤਸਰ ਪੰਜਾਬ ਦਾ ਸ਼ਹਿਰ ਹੈ ।",
    "Tamil": "சென்னை தமிழ்நாட்டின் தலைநகரம் ஆகும் .",
    "Telugu": "హైదరాబాద్ తెలంగాణ రాజధాని నగరం .",
    "signs": "AT&T < IBM > 5 \" ' \\ \\n {x} [y] (z) $a$ `b` %if eq([0:8], 0) /r/ # * + ? | ^ ~ @",
    "emoji": "😀 👩‍👩‍👧 🇮🇳 é e\u0301 ﷽ \u200d \u200b \ufeff x\u0301\u0302",
    "controls": "\x01 \x1f \x7f \x80 \x9f \u2028 \xa0",
    "tags": "<person> </person> <b> </response> <response> <think> &lt;person&gt; <person/> << >>",
}


def hostile_tokens(text: str) -> tuple[str, ...]:
    return tuple(text.split(" "))


def changes(tokens: Sequence[str], tags: Sequence[str], draw: random.Random) -> Iterator[tuple[str, str]]:
    """Replies that must be refused, each with what is wrong. For sentences whose tokens hold no tag."""
    n = len(tokens)
    at = draw.randrange(n)
    tag, other = tags[0], tags[-1]

    def reply(words: Sequence[str]) -> str:
        return f"<response>{' '.join(words)}</response>"

    def with_token(word: str) -> str:
        return reply([*tokens[:at], word, *tokens[at + 1 :]])

    token = tokens[at]
    letter = draw.randrange(len(token))
    yield "a changed letter", with_token(token[:letter] + ("Q" if token[letter] != "Q" else "R") + token[letter + 1 :])
    yield "a nested tag", with_token(f"<{other}><{tag}>{token}</{tag}></{other}>")
    yield "an unclosed tag", with_token(f"<{tag}>{token}")
    yield "a tag that was never opened", with_token(f"{token}</{tag}>")
    yield "an undeclared tag", with_token(f"<nothing>{token}</nothing>")
    yield "another case", with_token(f"<{tag.upper()}>{token}</{tag.upper()}>")
    yield "an end tag of another type", with_token(f"<{tag}>{token}</{other}>")
    yield "an empty tag", with_token(f"<{tag}></{tag}>{token}")
    yield "a space inside a tag", with_token(f"<{tag}> {token}</{tag}>")
    yield "a missing token", reply([*tokens[:at], *tokens[at + 1 :]])
    yield "a second token", reply([*tokens[:at], token, *tokens[at:]])
    yield "no end", reply(tokens).removesuffix("</response>")
    yield "more after the end", reply(tokens) + " "
    yield "more before", " " + reply(tokens)
    if len(token) > 1:
        cut = draw.randrange(1, len(token))
        yield "a tag inside a token", with_token(f"{token[:cut]}<{tag}>{token[cut:]}</{tag}>")
        yield "an end tag inside a token", with_token(f"<{tag}>{token[:cut]}</{tag}>{token[cut:]}")


def random_gold(tokens: Sequence[str], labels: Sequence[str], draw: random.Random) -> tuple[str, ...]:
    tags: list[str] = []
    while len(tags) < len(tokens):
        if draw.random() < 0.5:
            tags.append("O")
        else:
            label, length = draw.choice(list(labels)), draw.randint(1, 3)
            tags += [f"B-{label}", *[f"I-{label}"] * (length - 1)]
    return tuple(tags[: len(tokens)])


ENTITIES = {"PER": "person", "LOC": "location", "ORG": "organization"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_and_hostile_signs(compiler: Compiler, name: str) -> None:
    tokens = hostile_tokens(SCRIPTS[name])
    check_sentence(compiler, tokens, ENTITIES, random.Random(name), replies=6)


def check_sentence(
    compiler: Compiler, tokens: tuple[str, ...], entities: dict[str, str], draw: random.Random, replies: int
) -> None:
    """Right replies are accepted, read back as the gold they were made of, and spoilt ones are refused."""
    constraint = TaggedSentence(tokens, tuple(entities.values()))
    compiled = compiler(constraint)
    looks_like_tags = any(
        f"<{slash}{tag}>" in token for token in tokens for tag in constraint.tags for slash in ("", "/")
    )
    for _ in range(replies):
        gold = random_gold(tokens, list(entities), draw)
        sample = Sample("d:0", "d", " ".join(tokens), gold, tokens=tokens)
        reply = ner.target(sample, entities)
        assert constraint.accepts(reply)
        assert compiled.accepts(reply)
        assert len(reply.encode()) <= constraint.longest
    if looks_like_tags:
        return  # one string may then be read in two ways; test_accepts_what_is_allowed_and_nothing_else has all of them
    for wrong, text in changes(tokens, constraint.tags, draw):
        if wrong in ("a missing token", "a second token") and not text:
            continue
        assert not constraint.accepts(text), wrong
        assert not compiled.accepts(text), wrong


# --- all of the real data ---


def sentences(shared: Path, tmp_path: Path, name: str, split: str) -> tuple[list[Sample], dict[str, str]]:
    """One split of a built-in dataset, and its entities."""
    definition = (FOLDER / f"{name}.yaml").read_text().replace("\nsplit: test\n", f"\nsplit: {split}\nname: {name}\n")
    file = tmp_path / "split.yaml"
    file.write_text(definition)
    folder = str(shared / "data" / name)
    (job,) = load_jobs(load_config({"engine": "replay:", "datasets": [str(file)], "dataset_dir": folder}))
    return list(job.dataset.samples), job.dataset.spec.tags


@pytest.mark.parametrize(("name", "count"), [("conllpp", 3453), ("mit_movie_trivia", 1953)])
def test_all_gold_is_accepted_and_no_spoilt_reply(
    compiler: Compiler, shared: Path, tmp_path: Path, name: str, count: int
) -> None:
    """Every sentence: its gold, by both; every kind of mistake, by the check; two of them, in turn, by llguidance."""
    samples, entities = sentences(shared, tmp_path, name, "test")
    assert len(samples) == count
    draw = random.Random(0)
    kinds: set[str] = set()
    for number, sample in enumerate(samples):
        constraint = ner.constraint(sample, entities, False)
        gold = ner.target(sample, entities)
        assert constraint.accepts(gold), sample.id
        assert len(gold.encode()) <= constraint.longest
        wrong = list(changes(sample.tokens, constraint.tags, draw))
        for kind, text in wrong:
            assert not constraint.accepts(text), (sample.id, kind)
            kinds.add(kind)
        compiled = compiler(constraint)
        assert compiled.accepts(gold), sample.id
        for kind, text in (wrong[number % len(wrong)], wrong[(number + 7) % len(wrong)]):
            assert not compiled.accepts(text), (sample.id, kind)
    assert len(kinds) == 16


@pytest.mark.parametrize(("name", "count"), [("conllpp", 14041), ("mit_movie_trivia", 6816)])
def test_gold_of_the_train_splits(shared: Path, tmp_path: Path, name: str, count: int) -> None:
    samples, entities = sentences(shared, tmp_path, name, "train")
    assert len(samples) == count
    for sample in samples:
        gold = ner.target(sample, entities)
        constraint = ner.constraint(sample, entities, False)
        assert constraint.accepts(gold), sample.id
        assert not constraint.accepts(gold.replace("</response>", "x</response>")), sample.id


LANGUAGES = [name for name in SCRIPTS if name[0].isupper()]


@pytest.mark.parametrize("language", LANGUAGES)
def test_real_text_of_every_script(compiler: Compiler, shared: Path, language: str) -> None:
    """40 of MILU's questions in each language, cut at white space."""
    config = {
        "engine": "replay:",
        "datasets": ["milu"],
        "dataset_dir": str(shared / "data" / "milu_layout"),
        "dataset_args": {"milu": {"subset_list": [language]}},
        "limit": 2000,
    }
    (job,) = load_jobs(load_config(config))
    draw = random.Random(language)
    for sample in draw.sample(job.dataset.samples, 40):
        tokens = tuple(sample.text.split())[:40]
        if tokens:
            check_sentence(compiler, tokens, ENTITIES, draw, replies=1)
