"""The command line -> TaskConfig -> run_task. No logic of its own; imports nothing heavy before it is needed."""

from __future__ import annotations

import argparse
import difflib
import io
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localeval.options import (
    add_answering,
    add_asking,
    add_several,
    bundle_parser,
    doctor_parser,
    eval_parser,
    fetch_parser,
    init_parser,
)
from localeval.stopping import STATUS, stoppable
from localeval.visible import tell

if TYPE_CHECKING:
    from localeval.scoring import RunResult

_JSON_OPTIONS = ("dataset_args", "generation_config", "chat_template_args", "model_args", "engine_args")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    from localeval.schema import LocalevalError, RunFailed

    _open_streams()
    commands = {
        "eval": _evaluate,
        "watch": _watch,
        "compare": _compare,
        "score": _score,
        "report": _report,
        "doctor": _doctor,
        "fetch": _fetch,
        "list": _list,
        "init": _init,
        "bundle": _bundle,
    }
    try:
        with stoppable():
            if words and words[0] in commands:
                return commands[words[0]](words[1:])
            if words and not words[0].startswith("-"):
                close = difflib.get_close_matches(words[0], commands, n=1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                raise LocalevalError(f"there is no command {words[0]!r}{hint}; commands: {', '.join(commands)}")
            return _evaluate(words)
    except LocalevalError as error:
        tell(f"localeval: error: {error}", sys.stderr)
        return 2
    except RunFailed as error:
        tell(f"localeval: failed: {error}", sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        by = f" by {stop.args[0]}" if stop.args else ""
        tell(f"localeval: interrupted{by}; the same command goes on from there", sys.stderr)
        return STATUS
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain once more at exit
        return 1
    except OSError as error:  # what the system refuses, it names: the file, and why
        tell(f"localeval: error: {error}", sys.stderr)
        return 2
    except ImportError as error:
        tell(f"localeval: error: a package can't be imported: {error}; localeval doctor says what mends it", sys.stderr)
        return 2


def _open_streams() -> None:
    """Makes the standard streams such that no word ends a run."""
    # A file that is opened would get the number of one that is closed, and what a library prints would land in it.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no "·"
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _evaluate(words: Sequence[str]) -> int:
    parser = eval_parser()
    if not words:
        parser.print_help()
        return 2
    options = parser.parse_args(words)
    if options.version:
        return _version()
    from localeval.run import run_task

    config = _config(vars(options))
    if isinstance(config.get("model"), list) and len(config["model"]) == 1:
        (config["model"],) = config["model"]
    return _print_result(run_task(config))


def _print_result(result: RunResult) -> int:
    tell(result.report_text)
    return 1 if result.failed or result.below else 0


def _watch(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="localeval watch",
        description="Evaluate every checkpoint that appears in a folder, once, when it is whole: all its files are "
        "there, none is cut, and nothing changes any more. The same command goes on where it was.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", help="where a training run writes checkpoint-500, checkpoint-1000, ...")
    when = parser.add_argument_group("when")
    when.add_argument("--newest-first", action="store_true", help="of several that wait, take the last one")
    when.add_argument("--until-step", type=int, metavar="N", help="end when step N and all before it are evaluated")
    when.add_argument("--idle-exit", type=float, metavar="S", help="end when nothing new has come for S seconds")
    when.add_argument("--every", type=float, default=10.0, metavar="S", help="look every S seconds (default 10)")
    add_asking(parser.add_argument_group("what is asked"))
    add_answering(parser)
    add_several(parser)
    options = vars(parser.parse_args(words))
    from localeval.watch import Watching, watch

    names = ("newest_first", "until_step", "idle_exit", "every")
    watching = Watching(**{name: options.pop(name) for name in names})
    options["model"] = options.pop("folder")
    return _print_result(watch(_config(options), watching))


def _compare(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="localeval compare",
        description="Compare finished runs of several models on the samples that they share: the difference with its "
        "interval, whether chance explains it, what so many samples could have shown, and which samples flipped.",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", nargs="+", help="run folders, or folders that hold some")
    parser.add_argument(
        "--baseline", default="first", metavar="B", help="first (default), best of each dataset, or a run folder"
    )
    parser.add_argument(
        "--force", action="store_true", help="compare also runs that did not ask the same; the result is stamped"
    )
    parser.add_argument(
        "--fail-below-baseline",
        type=float,
        metavar="P",
        help="exit status 1 where a result is more than P percentage points below the baseline's",
    )
    parser.add_argument("--output", metavar="DIR", help="where comparison.json, .md and flips.jsonl are written")
    options = parser.parse_args(words)
    from localeval.compare import compare_paths
    from localeval.report.comparison import comparison_text
    from localeval.schema import LocalevalError
    from localeval.series import write_comparison

    points = options.fail_below_baseline
    if points is not None and not 0 <= points < math.inf:
        raise LocalevalError(f"--fail-below-baseline {points}: expected percentage points, 0 or more")
    comparison = compare_paths(options.run_dir, options.baseline, options.force)
    tell(comparison_text(comparison))
    if options.output is not None:
        write_comparison(Path(options.output), comparison)
    below = comparison.below(points) if points is not None else []
    for line in below:
        tell(f"not passed: {line}")
    return 1 if below else 0


def _config(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, over the fields of ``--config``."""
    from localeval.config import parse_json_option, read_config_file

    given = {name: value for name, value in options.items() if value is not None and value is not False}
    given.pop("version", None)
    file = given.pop("config", None)
    for name in _JSON_OPTIONS:
        if name in given:
            given[name] = parse_json_option(f"--{name.replace('_', '-')}", given[name])
    if given.pop("no_stop", False):
        given["stop_at_end_tag"] = False
    config = {**(read_config_file(file) if file else {}), **given}
    if config.pop("trust_remote_code", False):
        config["model_args"] = {**(config.get("model_args") or {}), "trust_remote_code": True}
    return config


def _version() -> int:
    import importlib.metadata

    tell(f"localeval {importlib.metadata.version('localeval')}")
    return 0


def _score(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="localeval score",
        description="Read and score the replies of a run again; needs no model. Of several runs, one that can't be "
        "scored is named, and the others are.",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", help="a run folder, or a folder that holds some")
    parser.add_argument("--dataset-dir", metavar="DIR", help="where the data is now, if it has moved")
    parser.add_argument("--bundle", metavar="DIR", help="the bundle that holds it now (default: LOCALEVAL_HOME)")
    parser.add_argument("--parquet", action="store_true", help="write scores.parquet and samples.parquet, too")
    options = parser.parse_args(words)
    from localeval.scoring import score_run

    return _print_result(score_run(Path(options.run_dir), options.dataset_dir, options.bundle, options.parquet))


def _report(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="localeval report",
        description="Finished runs side by side: one table for each model and set of samples, one column for each way "
        "it was asked (generate, constrained, logprob, cloze).",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", nargs="+", help="run folders, or folders that hold some")
    options = parser.parse_args(words)
    from localeval.scoring import report_runs

    tell(report_runs(options.run_dir))
    return 0


def _doctor(words: Sequence[str]) -> int:
    options = vars(doctor_parser().parse_args(words))
    json, deep = options.pop("json"), options.pop("deep")
    from localeval.doctor.check import as_json, as_text, status_of
    from localeval.doctor.examine import examine

    checks = examine(lambda: _config(options), deep)
    tell(as_json(checks) if json else as_text(checks))
    return status_of(checks)


def _fetch(words: Sequence[str]) -> int:
    options = vars(fetch_parser().parse_args(words))
    from localeval.fetch import fetch
    from localeval.requested import fetching

    tell(fetch(fetching(options)))
    return 0


def _list(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="localeval list",
        description="The datasets and models that have names; with DATASET, one dataset.",
        allow_abbrev=False,
    )
    parser.add_argument("dataset", nargs="?", help="a built-in name, or the path of a YAML file")
    parser.add_argument("--stats", action="store_true", help="read the rows and measure the prompts, in characters")
    parser.add_argument("--dataset-dir", metavar="DIR", help="holds <dataset>/..., or is the dataset itself")
    parser.add_argument("--bundle", metavar="DIR", help="a folder of localeval fetch (default: LOCALEVAL_HOME)")
    parser.add_argument("--dataset-args", metavar="JSON", help='\'{"milu": {"few_shot_num": 2}}\'')
    parser.add_argument("--samples", action="store_true", help="the rows that ship with localeval")
    parser.add_argument("--models", metavar="FILE", help="a YAML file of further named models")
    options = parser.parse_args(words)
    if options.stats and not options.dataset:
        parser.error("--stats needs a DATASET")
    from localeval import listing

    if options.stats:
        asked = (options.dataset, options.dataset_dir, options.dataset_args, options.samples, options.bundle)
        tell(listing.statistics(*asked))
    elif options.dataset:
        tell(listing.dataset(options.dataset))
    else:
        tell(listing.everything(options.models))
    return 0


def _init(words: Sequence[str]) -> int:
    options = init_parser().parse_args(words)
    from localeval.drafting.draft import Wish, draft
    from localeval.drafting.questions import Named

    named = Named(options.question, tuple(options.choices), options.answer, options.answer_is)
    tell(draft(Wish(options.name, options.rows, options.task, named, tuple(options.tag_names))))
    return 0


def _bundle(words: Sequence[str]) -> int:
    options = bundle_parser().parse_args(words)
    from localeval.contents import contents, verify

    bundle = Path(options.bundle)
    if options.what == "list":
        tell(contents(bundle))
        return 0
    wrong, figures = verify(bundle)
    tell("\n".join([*wrong, figures]))
    return 1 if wrong else 0
