"""The command line -> TaskConfig -> run_task. No logic of its own; imports nothing heavy before it is needed."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localeval.command_options import (
    bundle_parser,
    compare_parser,
    completion_parser,
    export_parser,
    fetch_parser,
    init_parser,
    list_parser,
    report_parser,
    score_parser,
    view_parser,
    watch_parser,
)
from localeval.nearest import nearest
from localeval.options import doctor_parser, eval_parser
from localeval.parsing import parse
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
    try:
        with stoppable():
            if words and words[0] in _COMMANDS:
                return _COMMANDS[words[0]](words[1:])
            if words and not words[0].startswith("-"):
                hint = nearest(words[0], _COMMANDS)
                raise LocalevalError(f"there is no command {words[0]!r}{hint}; commands: {', '.join(_COMMANDS)}")
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
    options = parse(parser, words)
    if options.version:
        return _version()
    asked = vars(options)
    rehearsed = asked.pop("dry_run")
    config = _config(asked)
    if isinstance(config.get("model"), list) and len(config["model"]) == 1:
        (config["model"],) = config["model"]
    if rehearsed:
        return _rehearse(config)
    from localeval.run import run_task

    return _print_result(run_task(config))


def _rehearse(config: dict[str, Any]) -> int:
    from localeval.dry_run import dry_run

    found = dry_run(config)
    tell(found.text)
    return 2 if found.failed else 0


def _print_result(result: RunResult) -> int:
    tell(result.report_text)
    return 1 if result.failed or result.below else 0


def _watch(words: Sequence[str]) -> int:
    options = vars(parse(watch_parser(), words))
    from localeval.watch import Watching, watch

    names = ("newest_first", "until_step", "idle_exit", "every")
    watching = Watching(**{name: options.pop(name) for name in names})
    options["model"] = options.pop("folder")
    return _print_result(watch(_config(options), watching))


def _compare(words: Sequence[str]) -> int:
    options = parse(compare_parser(), words)
    from localeval.compare import compare_paths
    from localeval.report.comparison import comparison_text
    from localeval.schema import LocalevalError
    from localeval.series import write_comparison
    from localeval.together import PAGE, write_page

    points = options.fail_below_baseline
    if points is not None and not 0 <= points < math.inf:
        raise LocalevalError(f"--fail-below-baseline {points}: expected percentage points, 0 or more")
    comparison = compare_paths(options.run_dir, options.baseline, options.force)
    tell(comparison_text(comparison))
    if options.output is not None:
        write_comparison(Path(options.output), comparison)
        named = [] if options.baseline in ("first", "best") else [options.baseline]
        write_page(Path(options.output) / PAGE, [*named, *options.run_dir], comparison)
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
    options = parse(score_parser(), words)
    from localeval.scoring import score_run

    return _print_result(score_run(Path(options.run_dir), options.dataset_dir, options.bundle, options.parquet))


def _report(words: Sequence[str]) -> int:
    options = parse(report_parser(), words)
    from localeval.scoring import report_runs

    tell(report_runs(options.run_dir))
    if options.html is not None:
        from localeval.together import write_page

        write_page(Path(options.html), options.run_dir)
    return 0


def _view(words: Sequence[str]) -> int:
    options = parse(view_parser(), words)
    from localeval.view.server import view

    view(options.run_dir, options.port, options.open)
    return 0


def _export(words: Sequence[str]) -> int:
    options = parse(export_parser(), words)
    from localeval.export.exporting import export_runs

    output = Path(options.output or Path("exported") / options.to)
    for path in export_runs(options.to, options.run_dir, output):
        tell(str(path))
    return 0


def _doctor(words: Sequence[str]) -> int:
    options = vars(parse(doctor_parser(), words))
    json, deep = options.pop("json"), options.pop("deep")
    from localeval.doctor.check import as_json, as_text, status_of
    from localeval.doctor.examine import examine

    checks = examine(lambda: _config(options), deep)
    tell(as_json(checks) if json else as_text(checks))
    return status_of(checks)


def _fetch(words: Sequence[str]) -> int:
    options = vars(parse(fetch_parser(), words))
    from localeval.fetch import fetch
    from localeval.requested import fetching

    tell(fetch(fetching(options)))
    return 0


def _list(words: Sequence[str]) -> int:
    options = vars(parse(list_parser(), words))
    named, stats, show = options.pop("dataset"), options.pop("stats"), options.pop("show")
    from localeval.schema import LocalevalError

    if named is None and (stats or show is not None):
        raise LocalevalError(f"{'--stats' if stats else '--show'} needs a DATASET: localeval list milu --show 3")
    from localeval import listing

    if stats:
        tell(listing.statistics(_config({**options, "datasets": [named]})))
    elif show is not None:
        from localeval.showing import prompts

        tell(prompts(_config({**options, "datasets": [named]}), show))
    else:
        tell(listing.everything(options["models"]) if named is None else listing.dataset(named))
    return 0


def _init(words: Sequence[str]) -> int:
    options = parse(init_parser(), words)
    from localeval.drafting.draft import Wish, draft
    from localeval.drafting.questions import Named

    named = Named(options.question, tuple(options.choices), options.answer, options.answer_is)
    tell(draft(Wish(options.name, options.rows, options.task, named, tuple(options.tag_names))))
    return 0


def _bundle(words: Sequence[str]) -> int:
    options = parse(bundle_parser(), words)
    from localeval.contents import contents, verify

    bundle = Path(options.bundle)
    if options.what == "list":
        tell(contents(bundle))
        return 0
    wrong, figures = verify(bundle)
    tell("\n".join([*wrong, figures]))
    return 1 if wrong else 0


def _completion(words: Sequence[str]) -> int:
    shell = parse(completion_parser(), words).shell
    from localeval.completion import script

    tell(script(shell))
    return 0


_COMMANDS = {
    "eval": _evaluate,
    "watch": _watch,
    "compare": _compare,
    "score": _score,
    "report": _report,
    "view": _view,
    "export": _export,
    "doctor": _doctor,
    "fetch": _fetch,
    "list": _list,
    "init": _init,
    "bundle": _bundle,
    "completion": _completion,
}
