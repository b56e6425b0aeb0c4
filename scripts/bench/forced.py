"""What --force-answer costs: free replies alone, and with forced answers, by turns in one engine.

    scripts/bench/forced.py --dataset-dir DIR --limit 10

The cache of prompts is emptied before each round; what a round asks is read and written as in a run.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trial import Child, Way, as_table, take_turns

from localeval.config import TaskConfig, load_config
from localeval.engines.base import EngineConfig
from localeval.engines.sizing import work_of
from localeval.forcing import second_request, with_answers
from localeval.jobs import load_jobs
from localeval.metrics import mcq
from localeval.model_names import load_models
from localeval.offline import go_offline
from localeval.order import arranged
from localeval.plan import Plan, keyed, plan_requests
from localeval.prompts import Prompter, context_length
from localeval.receiving import Receiver
from localeval.schema import Completion, Score
from localeval.scoring import judge_of
from localeval.store import RunFolder
from localeval.weights import Sources, find_weights


@dataclass
class Round:
    """Asks a plan, with forced answers where it has them, in a folder of its own each time."""

    plan: Plan
    prompter: Prompter
    child: Child
    scores: list[Score]

    def replies(self) -> Iterator[Completion]:
        """The replies, then the forced answers; each is written and scored before this ends."""
        judge = judge_of(self.plan.job, {"thinking": self.prompter.thinking, "reasoning_opened": False})
        force = None if self.plan.answers is None else functools.partial(second_request, self.plan, self.prompter)
        with tempfile.TemporaryDirectory() as place:
            folder = RunFolder(Path(place))
            folder.open(set(), forced=force is not None)
            with Receiver([self.plan], [folder], [judge], [force]) as receiver:
                yield from receiver.ask(self.child.engine.generate, arranged(self.plan.requests))
                receiver.finish()
                self.scores[:] = receiver.jobs[0].whole()
            yield from folder.forced_rows()
            folder.close()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dataset", default="milu")
    parser.add_argument("--dataset-dir", required=True)
    parser.add_argument("--limit", type=int, default=10, help="rows of each subset")
    parser.add_argument("--max-tokens", type=int, help="of a reply; the usual budget where it is not said")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    go_offline()
    fields = {"model": options.model, "datasets": [options.dataset], "dataset_dir": options.dataset_dir}
    generation = {} if options.max_tokens is None else {"max_tokens": options.max_tokens}
    config = load_config({**fields, "limit": options.limit, "generation_config": generation})
    folder = find_weights(options.model, Sources(load_models()), print).folder
    prompter = Prompter(folder)
    plain, forced = _plans(config, folder, prompter)
    requests = arranged(forced.requests)
    engine = EngineConfig(folder, max(request.length for request in requests), work=work_of(requests))
    with Child(engine) as child:
        rounds = {name: Round(plan, prompter, child, []) for name, plan in {"free": plain, "forced": forced}.items()}
        ways = [Way(name, each.replies, child.engine.forget_prompts) for name, each in rounds.items()]
        print(as_table(take_turns(options.dataset, ways, options.rounds)))
    _print_forced(ways[1], rounds["forced"].scores)


def _plans(config: TaskConfig, folder: Path, prompter: Prompter) -> tuple[Plan, Plan]:
    (job,) = load_jobs(config)
    context = context_length(folder)
    plain = plan_requests(job, config, prompter, context)
    return keyed(plain, "", {}), keyed(with_answers(plain, prompter, context), "", {})


def _print_forced(way: Way, scores: list[Score]) -> None:
    answers = [reply for reply in way.replies.values() if reply.continuations is not None]
    prompt, cached = (sum(getattr(reply, f"{side}_tokens") for reply in answers) for side in ("prompt", "cached"))
    print(
        f"{len(answers):,} forced answers: {prompt:,} prompt tokens, {cached:,} of them from the cache; accuracy "
        f"{mcq.accuracy(scores).value:.4f} as read, {mcq.with_forced(scores).value:.4f} with them"
    )


if __name__ == "__main__":
    main()
