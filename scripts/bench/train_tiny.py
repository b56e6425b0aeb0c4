"""Trains a very small Llama on the CPU with transformers' Trainer: real checkpoints whose scores rise, and two tests.

    scripts/bench/train_tiny.py OUT_DIR --steps 400 --every 50

Writes OUT_DIR/run/checkpoint-N (the first is of step 1: as good as untrained), OUT_DIR/quiz.yaml (multiple choice:
food, cities, primes) and OUT_DIR/names.yaml (people and places; some words are both), each with the rows of its test
and train splits. The test asks facts and names that the training shows, there to be memorised, but its questions (by
options and their order) and its sentences are others. Training asks as localeval does, to the token.
The same seed, steps and machine give the same files.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.utils.logging import disable_progress_bar

from localeval.config import load_config
from localeval.datasets.spec import find_spec
from localeval.jobs import Job, load_job
from localeval.offline import go_offline
from localeval.prompts import Prompter
from localeval.schema import Sample
from localeval.tasks.ner import task as ner

BATCH_QUIZ, BATCH_NAMES = 24, 16
"""Rows of each dataset in a batch, on average."""

RATE = 3e-3
SPREAD = 0.09
"""The standard deviation of the first weights, about hidden_size ** -0.5: with the usual 0.02 learning begins later."""

SKEW = 1.0
"""How unevenly the train split shows the facts that the test split asks evenly: rare ones are learnt late."""

LIMIT = 1000
"""Primes are asked for below it. Most of the numbers are a token each; the rarest are two."""

VOCABULARY = 1200

QUESTIONS, SENTENCES = 240, 80
"""Rows of the test splits."""

CONTEXT = 512
PAD, BOS, EOS, START, END = SPECIAL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

QUIZ_YAML = """\
title: "Food, cities and primes, by rule"
task: mcq
path: quiz
columns: {question: question, choices: options, answer: answer, answer_is: letter}
groups: {topic: topic}
prompt: "Say ANSWER: and a letter.\\n{question}\\n{choices}"
shot: "{question}\\n{choices}\\nANSWER: {answer}"
shots_prompt: "{shots}\\n\\n{prompt}"
"""

NAMES_YAML = """\
title: "People and places in short sentences, by rule"
task: ner
path: names
entities:
  - {label: PER, tag: person, description: people}
  - {label: LOC, tag: place, description: places}
prompt: "Mark {entity_list} in <response>:\\n{text}"
shot: "{text}\\n{target}"
shots_prompt: "{shots}\\n\\n{prompt}"
"""

FOOD = "apple pear plum grape lemon melon peach cherry orange banana bread rice cheese honey butter"
THINGS = "hammer saw drill spade rake knife axe chisel wrench shirt coat hat shoe glove scarf belt sock"
EUROPE = "Paris London Berlin Madrid Rome Vienna Lisbon Dublin Prague Warsaw Athens Oslo Stockholm Helsinki Bern Riga"
ELSEWHERE = "Cairo Lima Delhi Kyoto Lagos Quito Hanoi Seoul Tokyo Beijing Nairobi Bogota Havana Manila Ottawa Accra"

FIRST = "Ann Ben Carl Dora Emil Fay Gus Hana Ivan Jane Karl Lena Max Nora Otto Paul"
LAST = "Adams Brown Cole Dunn Ellis Ford Gray Hall King Lowe"
PLACES = "Rome Oslo Cairo Lima Delhi Kyoto Berlin Madrid Dublin Prague Lagos Quito"
BOTH = "Jordan Austin Sydney Chelsea Georgia Florence"
FORMS = [
    "P met P in L .",
    "P lives in L .",
    "P went from L to L .",
    "yesterday P left L .",
    "L is far from L .",
    "in L it rained .",
    "P and P slept on D .",
    "a train to L was late , said P .",
    "we saw P near L with P .",
    "nobody came to the party on D .",
]
"""P: a person. L: a place. D: a day."""

DAYS = "Monday Tuesday Wednesday Thursday Friday"

Row = dict[str, Any]
Sentence = list[tuple[str, str]]


# --- rows ---


def _facts() -> dict[str, tuple[str, list[str], list[str]]]:
    """By topic the question, what is right and what is wrong; the odd numbers in an order that tells nothing."""
    numbers = list(range(11, LIMIT, 2))
    random.Random(0).shuffle(numbers)
    parts: dict[str, list[str]] = {"prime": [], "other": []}
    for number in numbers:
        divided = any(number % divisor == 0 for divisor in range(3, 32, 2) if divisor < number)
        parts["other" if divided else "prime"].append(str(number))
    return {
        "food": ("Which can you eat?", FOOD.split(), THINGS.split()),
        "cities": ("Which is in Europe?", EUROPE.split(), ELSEWHERE.split()),
        "primes": ("Which is prime?", parts["prime"], parts["other"]),
    }


def _some(draw: random.Random, words: Sequence[str], count: int, skew: float) -> list[str]:
    """Different words, drawn with weights that fall as rank ** -skew."""
    times = [(draw.expovariate((place + 1) ** -skew), word) for place, word in enumerate(words)]
    return [word for _, word in sorted(times)[:count]]


def _quiz(draw: random.Random, count: int, taken: Container[str], skew: float) -> list[Row]:
    """Questions whose key is not taken; topics and right letters take turns, then all are shuffled."""
    facts = _facts()
    rows: list[Row] = []
    while len(rows) < count:
        topic = list(facts)[len(rows) % len(facts)]
        question, right, wrong = facts[topic]
        letter = len(rows) // len(facts) % 4
        options = _some(draw, wrong, 3, skew)
        options[letter:letter] = _some(draw, right, 1, skew)
        row = {"question": question, "options": options, "answer": "ABCD"[letter], "topic": topic}
        if _key(row) not in taken:
            rows.append(row)
    draw.shuffle(rows)
    return rows


def _key(row: Row) -> str:
    return " ".join([row["question"], *row["options"]])


def _sentence(draw: random.Random) -> Sentence:
    """Tokens with their IOB2 tags."""
    people, places = f"{FIRST} {BOTH}".split(), f"{PLACES} {BOTH}".split()
    sentence: Sentence = []
    for word in draw.choice(FORMS).split():
        if word == "P":
            sentence.append((draw.choice(people), "B-PER"))
            if draw.random() < 0.4:
                sentence.append((draw.choice(LAST.split()), "I-PER"))
        elif word == "L" and draw.random() < 0.25:
            sentence += [("New", "B-LOC"), (draw.choice(places), "I-LOC")]
        elif word == "L":
            sentence.append((draw.choice(places), "B-LOC"))
        else:
            sentence.append((draw.choice(DAYS.split()) if word == "D" else word, "O"))
    return sentence


def _names(draw: random.Random, count: int, taken: Container[str]) -> list[Sentence]:
    """Sentences whose text is not taken."""
    found: list[Sentence] = []
    while len(found) < count:
        sentence = _sentence(draw)
        if _text(sentence) not in taken:
            found.append(sentence)
    return found


def _text(sentence: Sentence) -> str:
    return " ".join(token for token, _ in sentence)


def write_datasets(folder: Path, steps: int, seed: int) -> None:
    """The two YAML files, and the rows of their splits: the train splits hold what so many steps take."""
    quiz = _quiz(random.Random(f"quiz, test, {seed}"), QUESTIONS, (), 0)
    names = _names(random.Random(f"names, test, {seed}"), SENTENCES, ())
    splits = {
        "test": (quiz, names),
        "train": (
            _quiz(random.Random(f"quiz, train, {seed}"), steps * BATCH_QUIZ, {_key(row) for row in quiz}, SKEW),
            _names(
                random.Random(f"names, train, {seed}"), steps * BATCH_NAMES, {_text(sentence) for sentence in names}
            ),
        ),
    }
    for name, yaml in (("quiz", QUIZ_YAML), ("names", NAMES_YAML)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(yaml)
    for split, (rows, sentences) in splits.items():
        (folder / "quiz" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        blocks = ("".join(f"{token} {tag}\n" for token, tag in sentence) for sentence in sentences)
        (folder / "names" / f"{split}.txt").write_text("\n".join(blocks))


# --- the model's text ---


def training_jobs(folder: Path) -> list[Job]:
    """The datasets as localeval asks them, but of the train split."""
    paths = [str(folder / "quiz.yaml"), str(folder / "names.yaml")]
    config = load_config({"model": "none", "datasets": paths})
    return [load_job(config, find_spec(path).model_copy(update={"split": "train"})) for path in paths]


def reply(job: Job, sample: Sample) -> str:
    """What is right, in the form that is asked for."""
    return f"ANSWER: {sample.gold[0]}" if job.task == "mcq" else ner.target(sample, job.dataset.spec.tags)


def make_tokenizer(folder: Path, jobs: Sequence[Job]) -> PreTrainedTokenizerFast:
    """A byte-level BPE in which most words of the tasks are a token; saved to the folder."""
    texts = [text for job in jobs for text in job.messages()]
    texts += [reply(job, sample) for job in jobs for sample in job.dataset.samples]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["user\n", "assistant\n", *texts], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[EOS, START],
        model_max_length=CONTEXT,
    )
    fast.chat_template = CHATML
    fast.save_pretrained(folder)
    return fast


def make_examples(jobs: Sequence[Job], prompter: Prompter) -> list[dict[str, list[int]]]:
    """Prompts as localeval tokenises them, each with the right reply, which alone is learnt."""
    examples = []
    for job in jobs:
        replies = [reply(job, sample) + END for sample in job.dataset.samples]
        prompts = prompter.encode(job.messages(), job.args.system_prompt)
        for prompt, said in zip(prompts, prompter.continuations("\n", replies), strict=True):
            assert said is not None, "the tokenizer joins the template's line break with a reply"
            examples.append({"input_ids": [*prompt, *said], "labels": [-100] * len(prompt) + list(said)})
    return examples


def padded(examples: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """One batch, each row as long as the longest."""
    longest = max(len(example["input_ids"]) for example in examples)
    rows = {"input_ids": 0, "labels": -100, "attention_mask": 0}
    batch: dict[str, list[list[int]]] = {name: [] for name in rows}
    for example in examples:
        for name, filler in rows.items():
            values = example.get(name) or [1] * len(example["input_ids"])
            batch[name].append(values + [filler] * (longest - len(values)))
    return {name: torch.tensor(values) for name, values in batch.items()}


# --- training ---


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama with random weights. vLLM's CPU kernels want its head size of 32."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    special = {"bos_token_id": ids[BOS], "eos_token_id": ids[END], "pad_token_id": ids[PAD]}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=SPREAD,
        **special,
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(**{**special, "eos_token_id": [ids[END], ids[EOS]]})
    return model


class Saving(TrainerCallback):  # type: ignore[misc]
    """Saves also the first step; says how training stands at each checkpoint, and then sleeps."""

    def __init__(self, sleep: float) -> None:
        self._sleep = sleep
        self._start, self._step = time.perf_counter(), 0

    def on_step_end(self, _args: Any, state: Any, control: Any, **_rest: Any) -> None:
        """Asks for a checkpoint of step 1."""
        control.should_save |= state.global_step == 1

    def on_save(self, _args: Any, state: Any, _control: Any, **_rest: Any) -> None:
        """Counts the seconds of a step without those of sleeping."""
        seconds = (time.perf_counter() - self._start) / (state.global_step - self._step)
        loss = next((f", loss {log['loss']:.3f}" for log in reversed(state.log_history) if "loss" in log), "")
        print(f"checkpoint-{state.global_step}{loss}, {seconds:.2f} s a step", flush=True)
        time.sleep(self._sleep)
        self._start, self._step = time.perf_counter(), state.global_step


def train(folder: Path, steps: int, every: int, seed: int, sleep: float) -> None:
    """Everything that is written, in order."""
    write_datasets(folder, steps, seed)
    jobs = training_jobs(folder)
    tokenizer = make_tokenizer(folder / "tokenizer", jobs)
    examples = make_examples(jobs, Prompter(folder / "tokenizer"))
    set_seed(seed)
    disable_progress_bar()
    model = make_model(tokenizer)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens, {len(examples):,} examples", flush=True)
    arguments = TrainingArguments(
        output_dir=str(folder / "run"),
        max_steps=steps,
        per_device_train_batch_size=BATCH_QUIZ + BATCH_NAMES,
        learning_rate=RATE,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, steps // 20),
        adam_beta2=0.98,
        weight_decay=0.01,
        logging_steps=every,
        save_steps=every,
        save_only_model=True,
        seed=seed,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=examples,
        data_collator=padded,
        processing_class=tokenizer,
        callbacks=[Saving(sleep)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def main() -> None:
    """Reads the options, and trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=50, help="steps from one checkpoint to the next")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sleep", type=float, default=0, help="seconds to wait after each checkpoint")
    options = parser.parse_args()
    if (options.out_dir / "run").exists():
        parser.error(f"{options.out_dir / 'run'} is there already")
    go_offline()
    start = time.perf_counter()
    train(options.out_dir, options.steps, options.every, options.seed, options.sleep)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
