"""Trains a very small Llama on the CPU with transformers' Trainer: real checkpoints whose scores go up, and their tests.

    scripts/bench/train_tiny.py OUT_DIR --steps 400 --every 50

Writes OUT_DIR/run/checkpoint-N (the first is of step 1: as good as untrained), OUT_DIR/quiz.yaml (multiple choice: which
word is of a kind, what follows what, sums) and OUT_DIR/names.yaml (people and places, some words of which are both), each
with the rows of its train and test splits. All are written by rule: the facts of the test are those of the training, but
none of its questions, as to options and their order, and none of its sentences. Training asks as localeval does, to the
token. The same seed, steps and machine give the same files.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from localeval.config import load_config
from localeval.datasets.spec import find_spec
from localeval.jobs import Job, load_job
from localeval.offline import go_offline
from localeval.prompts import Prompter
from localeval.schema import Sample
from localeval.tasks import ner

BATCH = 64
"""Half of them questions, half sentences; no row is shown twice."""

QUESTIONS, SENTENCES = 240, 80
"""Rows of the test splits."""

CONTEXT = 512
PAD, BOS, EOS, START, END = SPECIAL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

QUIZ_YAML = """\
title: "Kinds, successors and sums, written by rule"
task: mcq
path: quiz
columns: {question: question, choices: options, answer: answer, answer_is: letter}
groups: {topic: topic}
prompt: "Say ANSWER: and a letter.\\n{question}\\n{choices}"
shot: "{question}\\n{choices}\\nANSWER: {answer}"
shots_prompt: "{shots}\\n\\n{prompt}"
"""

NAMES_YAML = """\
title: "People and places in short sentences, written by rule"
task: ner
path: names
entities:
  - {label: PER, tag: person, description: people}
  - {label: LOC, tag: place, description: places}
prompt: "Mark {entity_list} in <response>:\\n{text}"
shot: "{text}\\n{target}"
shots_prompt: "{shots}\\n\\n{prompt}"
"""

KINDS = {
    "animal": "dog cat horse sheep mouse lion tiger bear wolf fox".split(),
    "fruit": "apple pear plum grape lemon melon peach cherry orange banana".split(),
    "colour": "red blue green white black brown pink grey yellow purple".split(),
    "tool": "hammer saw drill spade rake knife axe chisel pliers wrench".split(),
    "metal": "iron gold silver copper zinc tin lead nickel steel bronze".split(),
    "dress": "shirt coat hat shoe glove scarf belt sock skirt jacket".split(),
}
ORDERS = [
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "January February March April May June July August September October November December".split(),
    "one two three four five six seven eight nine ten eleven twelve".split(),
]

FIRST = "Ann Ben Carl Dora Emil Fay Gus Hana Ivan Jane Karl Lena Max Nora Otto Paul".split()
LAST = "Adams Brown Cole Dunn Ellis Ford Gray Hall King Lowe".split()
PLACES = "Rome Oslo Cairo Lima Delhi Kyoto Berlin Madrid Dublin Prague Lagos Quito".split()
BOTH = "Jordan Austin Sydney Chelsea Georgia Florence".split()
FORMS = [
    "P met P in L .",
    "P lives in L .",
    "P went from L to L .",
    "yesterday P left L .",
    "L is far from L .",
    "in L it rained .",
    "P and P slept .",
    "a train to L was late , said P .",
    "we saw P near L with P .",
    "nobody came to the party .",
]

Row = dict[str, Any]
Sentence = list[tuple[str, str]]


# --- rows ---


def _kind(draw: random.Random) -> tuple[str, str, list[str]]:
    """A question, its answer, and all that would be wrong."""
    kind = draw.choice(list(KINDS))
    wrong = [word for other, words in KINDS.items() if other != kind for word in words]
    return f"Which one is a {kind}?", draw.choice(KINDS[kind]), wrong


def _successor(draw: random.Random) -> tuple[str, str, list[str]]:
    order = draw.choice(ORDERS)
    place = draw.randrange(len(order))
    answer = order[(place + 1) % len(order)]
    return f"What follows {order[place]}?", answer, [word for word in order if word != answer]


def _sum(draw: random.Random) -> tuple[str, str, list[str]]:
    left, right = draw.randrange(1, 8), draw.randrange(1, 8)
    return f"What is {left} + {right}?", str(left + right), [str(n) for n in range(2, 15) if n != left + right]


TOPICS: dict[str, Callable[[random.Random], tuple[str, str, list[str]]]] = {
    "kinds": _kind,
    "order": _successor,
    "sums": _sum,
}


def _quiz(draw: random.Random, count: int, known: Container[str] = ()) -> dict[str, Row]:
    """Questions by what makes them up, none of them known; topics and right letters in turn, then shuffled."""
    found: dict[str, Row] = {}
    while len(found) < count:
        topic = list(TOPICS)[len(found) % 3]
        question, answer, wrong = TOPICS[topic](draw)
        letter = len(found) // 3 % 4
        options = draw.sample(wrong, 3)
        options.insert(letter, answer)
        key = " ".join([question, *options])
        if key not in known and key not in found:
            found[key] = {"question": question, "options": options, "answer": "ABCD"[letter], "topic": topic}
    keys = list(found)
    draw.shuffle(keys)
    return {key: found[key] for key in keys}


def _sentence(draw: random.Random) -> Sentence:
    """Tokens with their IOB2 tags."""
    sentence: Sentence = []
    for word in draw.choice(FORMS).split():
        if word == "P":
            sentence.append((draw.choice(FIRST + BOTH), "B-PER"))
            if draw.random() < 0.4:
                sentence.append((draw.choice(LAST), "I-PER"))
        elif word == "L":
            if draw.random() < 0.25:
                sentence += [("New", "B-LOC"), (draw.choice(PLACES + BOTH), "I-LOC")]
            else:
                sentence.append((draw.choice(PLACES + BOTH), "B-LOC"))
        else:
            sentence.append((word, "O"))
    return sentence


def _names(draw: random.Random, count: int, known: Container[str] = ()) -> dict[str, Sentence]:
    """Sentences by their text, none of them known."""
    found: dict[str, Sentence] = {}
    for _ in range(count):
        while (text := " ".join(token for token, _ in (sentence := _sentence(draw)))) in known:
            pass
        found[text if not known else f"{len(found)} {text}"] = sentence
    return found
