#!/usr/bin/env python3
"""localeval beside other evaluators, and beside the vLLM underneath it: the same model, rows and prompts, in one go.

    scripts/bench/peers.py --dataset-dir DIR                    all jobs, all contestants, one after another
    scripts/bench/peers.py --dataset-dir DIR --jobs letters --only localeval lm-eval-vllm

The jobs: ``milu`` and ``conllpp`` ask for replies (a letter; a tagged sentence), ``letters`` for the probability of
each letter after ``ANSWER:``. Weights are float32, sampling is greedy, and budgets are the same for all. The peers are
installed at the first run, each into an environment of its own under --envs; nothing is downloaded while measuring.

Seconds: *work* goes from the first request to the last reply, by the contestant's own clock or around its own
functions. *start* is all else of the command, seen from outside: imports, reading rows, loading the model; and, which
is little, scoring and ending. What is started once for all jobs has its start shown in each. *memory* is the most that
all processes of a contestant had at one time, shared pages counted once. *prompts* says whether what reached the model
was the same; ``contestants/`` says how that is seen.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contestants import own, with_evalscope, with_lm_eval
from contestants.asked import Sizes, Work, load_work
from contestants.measure import Failed, Meter
from contestants.told import Ask, Place, Told

from localeval.offline import go_offline
from localeval.report.text import number, table
from localeval.schema import LocalevalError

JOBS = {
    "milu": "milu: replies",
    "letters": "milu: probabilities of the letters",
    "conllpp": "conllpp: replies",
}
REPLIES = ("milu", "conllpp")


@dataclass(frozen=True, slots=True)
class Contestant:
    """jobs: those that it can do. usual: those that it does unless it is asked for by name; all where empty.

    together: one command does all of them, with one start.
    """

    name: str
    ask: Ask
    jobs: tuple[str, ...] = tuple(JOBS)
    usual: tuple[str, ...] = ()
    together: bool = False


CONTESTANTS = [
    Contestant("localeval", own.localeval()),
    Contestant("localeval-drafts", own.localeval("--speculation", "on"), REPLIES, ("conllpp",)),
    Contestant("localeval-constrained", own.localeval("--constrain"), REPLIES, ("conllpp",)),
    Contestant("vllm", own.vllm_alone),
    Contestant("vllm-defaults", own.vllm_as_it_comes, together=True),
    Contestant("evalscope", with_evalscope.evalscope, REPLIES),
    Contestant("evalscope-server", with_evalscope.evalscope_server, REPLIES, together=True),
    Contestant("lm-eval-hf", with_lm_eval.lm_eval("hf"), usual=("letters",), together=True),
    Contestant("lm-eval-vllm", with_lm_eval.lm_eval("vllm"), usual=("letters",), together=True),
]


@dataclass(frozen=True, slots=True)
class Result:
    """One contestant in one job; ``told`` or why there is nothing."""

    job: str
    contestant: str
    rows: int
    peak: int = 0
    told: Told | None = None
    failed: str = ""


def main() -> None:
    options = _options()
    go_offline()
    sizes = Sizes(options.rows_mcq, options.rows_ner, options.tokens_mcq, options.tokens_ner)
    works = [load_work(name, options.model, options.dataset_dir, sizes) for name in options.jobs]
    results: list[Result] = []
    for one in CONTESTANTS:
        if (options.only is None or one.name in options.only) and one.name not in options.without:
            jobs = one.usual if one.usual and options.only is None else one.jobs
            results += _ask(one, [work for work in works if work.name in jobs], options, results)
    for work in works:
        if of_job := [each for each in results if each.job == work.name]:
            print(f"{JOBS[work.name]}, {work.rows} rows\n\n{_table(of_job)}\n")
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(each) for each in results], indent=1), encoding="utf-8")
    sys.exit(any(each.failed for each in results))


def _options() -> argparse.Namespace:
    names = [one.name for one in CONTESTANTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dataset-dir", required=True)
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--without", nargs="+", choices=names, metavar="NAME", default=[], help="all but these")
    parser.add_argument("--rows-mcq", type=int, default=40)
    parser.add_argument("--rows-ner", type=int, default=12)
    parser.add_argument("--tokens-mcq", type=int, default=64, help="the most new tokens of a reply to a question")
    parser.add_argument("--tokens-ner", type=int, default=96, help="the same of a sentence")
    parser.add_argument("--envs", type=Path, default=_cache() / "localeval" / "bench-envs", help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=400, help="seconds that a contestant has for a job")
    parser.add_argument("--json", metavar="FILE", help="write all figures there too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the contestants' files and logs there")
    return parser.parse_args()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _ask(one: Contestant, works: Sequence[Work], options: argparse.Namespace, before: Sequence[Result]) -> list[Result]:
    engines = {each.job: each.told.further["engine"] for each in before if each.contestant == "localeval" and each.told}
    results = []
    for jobs in [works] if one.together and works else [[work] for work in works]:
        with tempfile.TemporaryDirectory(prefix="peers-") as temporary, Meter() as meter:
            folder = (options.keep or Path(temporary)) / one.name / "-".join(work.name for work in jobs)
            folder.mkdir(parents=True)
            place = Place(folder, options.envs, meter, options.timeout, engines.get(jobs[0].name))
            told, reason = _tell(one, jobs, place)
            print(f"{one.name}: {reason or ', '.join(map(_done, jobs, told))}", file=sys.stderr, flush=True)
        found: list[Told | None] = [*told] or [None for _ in jobs]
        results += [
            Result(work.name, one.name, work.rows, meter.peak, each, reason)
            for work, each in zip(jobs, found, strict=True)
        ]
    return results


def _done(work: Work, told: Told) -> str:
    return f"{work.name} {told.start:.1f} + {told.work:.1f} s"


def _tell(one: Contestant, works: Sequence[Work], place: Place) -> tuple[list[Told], str]:
    """What a contestant told of each job, or nothing and the reason."""
    try:
        return one.ask(works, place), ""
    except Failed as error:
        return [], str(error)
    except (LocalevalError, LookupError, ValueError, OSError) as error:
        return [], f"what it left can't be read: {error!r}"


def _table(results: Sequence[Result]) -> str:
    header = ["", "start", "work", "all", "to localeval", "prompt tokens", "output tokens", "rows/s", "memory"]
    own = next((each.told.work for each in results if each.contestant == "localeval" and each.told), None)
    rows = [_row(each, own) for each in results]
    failures = [f"{each.contestant}: {each.failed}" for each in results if each.failed]
    return "\n".join([table([*header, "score", "prompts"], rows), *failures])


def _row(result: Result, own: float | None) -> list[str]:
    told = result.told
    if told is None:
        return [result.contestant, "failed", *["–"] * 9]
    return [
        result.contestant,
        f"{told.start:.1f} s",
        f"{told.work:.1f} s",
        f"{told.start + told.work:.1f} s",
        f"{told.work / own:.2f}" if own else "–",
        f"{told.prompt_tokens:,}",
        f"{told.output_tokens:,}",
        f"{result.rows / told.work:.2f}",
        f"{result.peak / 2**30:.1f} GiB",
        number(told.score),
        told.prompts,
    ]


if __name__ == "__main__":
    main()
