"""Trains a very small Llama on the CPU with transformers' Trainer: real checkpoints whose scores rise, and two tests.

    scripts/bench/train_tiny.py OUT_DIR --steps 400 --every 50

Writes OUT_DIR/run/checkpoint-N (the first is of step 1: as good as untrained), OUT_DIR/quiz.yaml (multiple choice:
which word is of a kind, what follows what, sums) and OUT_DIR/names.yaml (people and places; some words are both), each
with the rows of its test and train splits. All are written by rule: the facts of the test are those of the training,
but none of its questions (with options and their order) and none of its sentences. Training asks as localeval does, to
the token. The same seed, steps and machine give the same files.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Container, Sequence
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

from localeval.config import load_config
from localeval.datasets.spec import find_spec
from localeval.jobs import Job, load_job
from localeval.offline import go_offline
from localeval.prompts import Prompter
from localeval.schema import Sample
from localeval.tasks import ner

BATCH, RATE = 64, 3e-3
VOCABULARY = 640

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
    "animal": "dog cat horse sheep mouse lion tiger bear wolf fox",
    "fruit": "apple pear plum grape lemon melon peach cherry orange banana",
    "colour": "red blue green white black brown pink grey yellow purple",
    "tool": "hammer saw drill spade rake knife axe chisel pliers wrench",
    "metal": "iron gold silver copper zinc tin lead nickel steel bronze",
    "dress": "shirt coat hat shoe glove scarf belt sock skirt jacket",
}
ORDERS = [
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "January February March April May June July August September October November December",
    "one two three four five six seven eight nine ten eleven twelve",
]

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

Row = dict[str, Any]
Sentence = list[tuple[str, str]]


# --- rows ---


def _kind(draw: random.Random) -> tuple[str, str, list[str]]:
    """A question, its answer, and all that would be wrong."""
    kind = draw.choice(list(KINDS))
    wrong = [word for other, words in KINDS.items() if other != kind for word in words.split()]
    return f"Which one is a {kind}?", draw.choice(KINDS[kind].split()), wrong


def _successor(draw: random.Random) -> tuple[str, str, list[str]]:
    order = draw.choice(ORDERS).split()
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


def _quiz(draw: random.Random, count: int, taken: Container[str]) -> list[Row]:
    """Questions whose key is not taken; topics and right letters take turns, then all are shuffled."""
    rows: list[Row] = []
    while len(rows) < count:
        topic = list(TOPICS)[len(rows) % 3]
        question, answer, wrong = TOPICS[topic](draw)
        letter = len(rows) // 3 % 4
        options = draw.sample(wrong, 3)
        options.insert(letter, answer)
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
            sentence.append((draw.choice(ORDERS[0].split()) if word == "D" else word, "O"))
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


def write_datasets(folder: Path, train: int, seed: int) -> None:
    """The two YAML files, and the rows of their splits. train: rows of each train split."""
    quiz = _quiz(random.Random(f"quiz, test, {seed}"), QUESTIONS, ())
    names = _names(random.Random(f"names, test, {seed}"), SENTENCES, ())
    splits = {
        "test": (quiz, names),
        "train": (
            _quiz(random.Random(f"quiz, train, {seed}"), train, {_key(row) for row in quiz}),
            _names(random.Random(f"names, train, {seed}"), train, {_text(sentence) for sentence in names}),
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
    """A byte-level BPE in which the words of the tasks are a token each; saved to the folder."""
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
    write_datasets(folder, steps * BATCH // 2, seed)
    jobs = training_jobs(folder)
    tokenizer = make_tokenizer(folder / "tokenizer", jobs)
    examples = make_examples(jobs, Prompter(folder / "tokenizer"))
    set_seed(seed)
    model = make_model(tokenizer)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens, {len(examples):,} examples", flush=True)
    arguments = TrainingArguments(
        output_dir=str(folder / "run"),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
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
    go_offline()
    start = time.perf_counter()
    train(options.out_dir, options.steps, options.every, options.seed, options.sleep)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
