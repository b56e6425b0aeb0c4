"""Building and tokenising a dataset's prompts, against the bare tokenizer over the same texts: seconds, ratio, memory.

    scripts/bench/prompts.py --model smollm2-135m --dataset milu --dataset-dir DIR

Both are timed piece by piece in turn, so that a slow moment of the machine meets both. The memory is the peak of a
process of its own that only builds and keeps every prompt.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from array import array
from typing import Any

from localeval.config import load_config
from localeval.jobs import Job, load_jobs
from localeval.model_names import load_models
from localeval.offline import go_offline
from localeval.progress import say
from localeval.prompts import BATCH, Prompter
from localeval.weights import Sources, find_weights

PIECE = 4096


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dataset", default="milu")
    parser.add_argument("--dataset-dir", required=True)
    parser.add_argument("--limit", type=int, help="rows of each subset")
    parser.add_argument(
        "--memory", action="store_true", help="only build and keep all prompts, and print the peak memory"
    )
    options = parser.parse_args()
    go_offline()
    prompter, job = _load(options)
    if options.memory:
        kept = list(prompter.encode(job.messages()))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{len(kept):,} prompts kept, {sum(map(len, kept)):,} tokens, peak memory {peak:.2f} GiB")
        return
    ours, bare, tokens = _time(prompter, job)
    print(f"{len(job.dataset.samples):,} prompts, {tokens:,} tokens")
    print(f"build and tokenise  {ours:8.1f} s")
    print(f"bare tokenizer      {bare:8.1f} s")
    print(f"ratio               {ours / bare:8.3f}")
    subprocess.run([sys.executable, __file__, *sys.argv[1:], "--memory"], check=True)


def _load(options: Any) -> tuple[Prompter, Job]:
    start = time.monotonic()
    config = load_config(
        {
            "model": options.model,
            "datasets": [options.dataset],
            "dataset_dir": options.dataset_dir,
            "limit": options.limit,
        }
    )
    (job,) = load_jobs(config)
    say(f"{len(job.dataset.samples):,} rows read and checked in {time.monotonic() - start:.1f} s")
    weights = find_weights(options.model, Sources(load_models()), say)
    return Prompter(weights.folder), job


def _messages(job: Job, start: int, end: int) -> list[str]:
    return [job.message(sample) for sample in job.dataset.samples[start:end]]


def _time(prompter: Prompter, job: Job) -> tuple[float, float, int]:
    ours = bare = 0.0
    tokens = 0
    backend = prompter.bare_tokenizer
    for number, start in enumerate(range(0, len(job.dataset.samples), PIECE)):
        texts = prompter.render(_messages(job, start, start + PIECE))

        def build(start: int = start) -> list[array[int]]:
            return list(prompter.encode(_messages(job, start, start + PIECE)))

        def bare_tokenizer(texts: list[str] = texts) -> None:
            for at in range(0, len(texts), BATCH):
                backend.encode_batch_fast(texts[at : at + BATCH], add_special_tokens=False)

        for first in (number % 2 == 0, number % 2 == 1):
            begin = time.perf_counter()
            if first:
                tokens += sum(map(len, build()))
                ours += time.perf_counter() - begin
            else:
                bare_tokenizer()
                bare += time.perf_counter() - begin
    return ours, bare, tokens


if __name__ == "__main__":
    main()
