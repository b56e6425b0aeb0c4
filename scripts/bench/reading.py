"""Reading and scoring the replies to a whole entity dataset: seconds.

    scripts/bench/reading.py --dataset conllpp --dataset-dir DIR

The replies are the gold ones, every tenth of them spoilt as models spoil them: a word changed, a tag left open, an
entity invented, another case, no reading at all.
"""

from __future__ import annotations

import argparse
import statistics
import time

from localeval.config import load_config
from localeval.jobs import Job, load_jobs
from localeval.report.build import Asked, build_report
from localeval.schema import Completion, Report
from localeval.tasks.ner import task as ner

RUNS = 7


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="conllpp")
    parser.add_argument("--dataset-dir", required=True)
    options = parser.parse_args()
    config = load_config({"engine": "replay:", "datasets": [options.dataset], "dataset_dir": options.dataset_dir})
    (job,) = load_jobs(config)
    replies = [_spoilt(ner.target(sample, job.dataset.spec.tags), n) for n, sample in enumerate(job.dataset.samples)]
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        report = score(job, replies)
        seconds.append(time.perf_counter() - start)
    print(f"{len(replies):,} replies read and scored, F1 {report.metrics['f1'].value:.4f}, {dict(report.counts)}")
    print(f"seconds: min {min(seconds):.3f}, median {statistics.median(seconds):.3f}, max {max(seconds):.3f} of {RUNS}")


def _spoilt(reply: str, number: int) -> str:
    if number % 10:
        return reply
    words = reply.split(" ")
    match number // 10 % 5:
        case 0:
            words[len(words) // 2] = "changed"
            return " ".join(words)
        case 1:
            return reply.replace("</", "<", 1)
        case 2:
            return reply.replace("</response>", " <person>Nobody Here</person></response>")
        case 3:
            return reply.upper()
        case _:
            return "I can't help with that."


def score(job: Job, replies: list[str]) -> Report:
    """What a run does after its replies are there, but for writing files."""
    samples = job.dataset.samples
    asked = Asked(
        dataset=job.name,
        model="bench",
        task=job.task,
        mode=job.mode,
        subsets=job.dataset.subsets,
        group_names=[],
        labels=job.labels,
        limited=False,
        comparable=True,
        reused=0,
    )
    said = [Completion(sample.id, reply, "stop") for sample, reply in zip(samples, replies, strict=True)]
    scores = [job.judge(sample, reply, None, False) for sample, reply in zip(samples, said, strict=True)]
    return build_report(asked, samples, scores)


if __name__ == "__main__":
    main()
