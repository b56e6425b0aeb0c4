"""Every way of asking, on the same rows and in one engine: seconds, tokens and score.

    scripts/bench/modes.py --model smollm2-135m --dataset-dir DIR --limit 20

The ways are run one after another, round after round, the cache of prompts emptied before each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, field

from trial import report_of

from localeval.config import load_config
from localeval.engines.base import EngineConfig
from localeval.engines.vllm import VllmEngine
from localeval.jobs import Job, load_jobs
from localeval.model_names import load_models
from localeval.offline import go_offline
from localeval.plan import Plan, keyed, plan_requests
from localeval.prompts import Prompter, context_length
from localeval.report.build import headline
from localeval.report.text import number, table
from localeval.schema import Completion, Report
from localeval.weights import Sources, find_weights


@dataclass
class Measured:
    """One way of asking one dataset. seconds: one a round."""

    job: Job
    plan: Plan
    prompter: Prompter
    seconds: list[float] = field(default_factory=list)
    replies: dict[str, Completion] = field(default_factory=dict)

    def report(self) -> Report:
        """What a run says of the replies."""
        return report_of(self.job, self.prompter, [self.replies[request.key] for request in self.plan.requests])


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dataset-dir", required=True)
    parser.add_argument("--datasets", nargs="+", default=["milu", "conllpp", "mit_movie_trivia"])
    parser.add_argument("--subsets", nargs="+", default=["English", "Hindi"], help="of milu")
    parser.add_argument("--limit", type=int, default=20, help="rows of each subset")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    go_offline()
    measured = _plans(options)
    requests = [request for one in measured for request in one.plan.requests]
    folder = find_weights(options.model, Sources(load_models()), print).folder
    config = EngineConfig(folder, max(request.length for request in requests), constrained=True)
    engine = VllmEngine(config)
    for one in measured:  # what is made at the first request of a kind is no part of the figures
        list(engine.generate(one.plan.requests[:1]))
    for _ in range(options.rounds):
        for one in measured:
            engine.forget_prompts()
            start = time.perf_counter()
            one.replies = {reply.key: reply for reply in engine.generate(one.plan.requests)}
            one.seconds.append(time.perf_counter() - start)
            print(f"{one.job.title}: {one.seconds[-1]:.1f} s", file=sys.stderr, flush=True)
    engine.close()
    print(_table(measured))


def _plans(options: argparse.Namespace) -> list[Measured]:
    fields = {
        "model": options.model,
        "datasets": options.datasets,
        "dataset_dir": options.dataset_dir,
        "limit": options.limit,
        "dataset_args": {"milu": {"subset_list": options.subsets}} if "milu" in options.datasets else {},
        "mcq": "generate,logprob,cloze",
    }
    free = load_config(fields)
    held = load_config({**fields, "constrain": True, "mcq": "generate"})
    weights = find_weights(options.model, Sources(load_models()), print)
    context = context_length(weights.folder)
    prompter = Prompter(weights.folder)
    found = []
    for config in (free, held):
        for job in load_jobs(config):
            own = prompter.without_template() if job.mode == "cloze" else prompter.without_thinking()
            found.append(Measured(job, keyed(plan_requests(job, config, own, context), "", {}), own))
    order = ("generate", "constrained", "logprob", "cloze")
    return sorted(found, key=lambda one: (options.datasets.index(one.job.name), order.index(one.job.mode)))


def _table(measured: list[Measured]) -> str:
    header = ["asked", "rows", "prompt tokens", "output tokens", "seconds", "to free", "metric", "score", "unparsed"]
    rows = []
    for one in measured:
        free = next(other for other in measured if (other.job.name, other.job.mode) == (one.job.name, "generate"))
        report = one.report()
        seconds = statistics.median(one.seconds)
        rows.append(
            [
                f"{one.job.name}, {one.job.mode}",
                f"{report.n:,}",
                f"{sum(reply.prompt_tokens for reply in one.replies.values()):,}",
                f"{sum(reply.output_tokens for reply in one.replies.values()):,}",
                f"{seconds:.1f}",
                f"{seconds / statistics.median(free.seconds):.2f}",
                headline(report),
                number(report.metrics[headline(report)].value),
                str(report.counts.get("unparsed", "–")),
            ]
        )
    return table(header, rows)


if __name__ == "__main__":
    main()
