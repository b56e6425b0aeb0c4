"""What a run of many rows takes: replayed replies, so that no model stands beside the figures.

    scripts/bench/memory.py --rows 25000 50000 100000 200000
    scripts/bench/memory.py --rows 100000 --resumed

Peak memory is the whole process's, as the kernel counts it (``ru_maxrss``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from localeval.report.text import table

MCQ = """\
name: quiz
task: mcq
path: rows
columns: {question: question, choices: options, answer: answer, answer_is: letter}
prompt: "{question}\\n{choices}\\nOne of {letters}."
"""
NER = """\
name: names
task: ner
path: rows
entities:
  - {label: PER, tag: person, description: people}
  - {label: LOC, tag: location, description: places}
prompt: "Mark {entity_list} ({entities}):\\n{text}\\n"
"""
WORDS = [
    "Ann",
    "Lee",
    "of",
    "Paris",
    "saw",
    "the",
    "old",
    "bridge",
    "and",
    "did",
    "not",
    "stop",
    "there",
    "before",
    "noon",
    ".",
]
TAGS = ["B-PER", "I-PER", "O", "B-LOC", *["O"] * 12]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[25_000, 50_000, 100_000, 200_000])
    parser.add_argument("--characters", type=int, default=1_000, help="of a reply, beside its answer")
    parser.add_argument("--resumed", action="store_true", help="every second reply is there already, in another order")
    options = parser.parse_args()
    rows = []
    for task in ("mcq", "ner"):
        for count in options.rows:
            with tempfile.TemporaryDirectory() as folder:
                rows.append([task, f"{count:,}", *_measured(Path(folder), task, count, options)])
            print(f"{task}, {count:,} rows: done", file=sys.stderr, flush=True)
    header = ["task", "rows", "GiB of replies", "peak GiB", "seconds", "rows a second", "reading and scoring, of CPU"]
    print(table(header, rows))


def _measured(folder: Path, task: str, count: int, options: argparse.Namespace) -> list[str]:
    dataset, replies = (_quiz if task == "mcq" else _names)(folder, count, options.characters)
    words = ["--engine", f"replay:{replies}", "--datasets", str(dataset), "--work-dir", str(folder / "runs")]
    seconds, usage = _run(folder, words)
    (facts,) = (folder / "runs").glob("*/*/run.json")
    if options.resumed:
        predictions = facts.with_name("predictions.jsonl")
        rows = predictions.read_bytes().splitlines(keepends=True)
        predictions.write_bytes(b"".join(reversed(rows[::2])))
        whole = _report(facts)
        seconds, usage = _run(folder, words)
        if _report(facts) != whole:
            sys.exit("the resumed run has another report")
    beside = json.loads(facts.read_text())["seconds"]["beside"]
    return [
        f"{replies.stat().st_size / 2**30:.2f}",
        f"{usage.ru_maxrss / 2**20:.2f}",
        f"{seconds:.1f}",
        f"{count / seconds:,.0f}",
        f"{beside:.1f} s",
    ]


def _run(folder: Path, words: list[str]) -> tuple[float, resource.struct_rusage]:
    start = time.perf_counter()
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen([sys.executable, "-m", "localeval", *words], stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit((folder / "said").read_text())
    return time.perf_counter() - start, usage


def _report(facts: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(facts.with_name("report.json").read_text())
    del report["counts"]["reused"]
    return report


def _quiz(folder: Path, count: int, characters: int) -> tuple[Path, Path]:
    rows = (
        {
            "question": f"Question {n}?",
            "options": [f"{word} {n}" for word in ("one", "two", "three")],
            "answer": "ABC"[n % 3],
        }
        for n in range(count)
    )
    filling = "Let me think. " * (characters // 14)
    replies = ({"sample_id": f"default:{n}", "text": f"{filling}\nANSWER: A"} for n in range(count))
    return _written(folder, MCQ, rows, replies)


def _names(folder: Path, count: int, characters: int) -> tuple[Path, Path]:
    rows = ({"tokens": [*WORDS[:-1], str(n)], "ner_tags": TAGS} for n in range(count))
    filling = "Let me think. " * (characters // 14)
    marked = "<response><person>Ann Lee</person> of <location>Paris</location> " + " ".join(WORDS[4:-1])
    replies = ({"sample_id": f"default:{n}", "text": f"{filling}\n{marked} {n}</response>"} for n in range(count))
    return _written(folder, NER, rows, replies)


def _written(folder: Path, dataset: str, rows: object, replies: object) -> tuple[Path, Path]:
    (folder / "rows").mkdir()
    for path, values in ((folder / "rows" / "test.jsonl", rows), (folder / "replies.jsonl", replies)):
        with path.open("w") as file:
            file.writelines(json.dumps(value) + "\n" for value in values)  # type: ignore[attr-defined]
    (folder / "dataset.yaml").write_text(dataset)
    return folder / "dataset.yaml", folder / "replies.jsonl"


if __name__ == "__main__":
    main()
