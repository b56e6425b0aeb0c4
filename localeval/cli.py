"""The command line -> TaskConfig -> run_task. No logic of its own; imports nothing heavy before it is needed."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localeval.scoring import RunResult

_EPILOG = """\
commands:
  localeval --model M --datasets D [D ...]    evaluate (the same as: localeval eval ...); several models are compared
  localeval watch DIR --datasets D [D ...]    evaluate every checkpoint that appears in a folder, once it is whole
  localeval compare RUN_DIR RUN_DIR [...]     differences between models on the same samples, with what chance explains
  localeval score RUN_DIR                     read and score the replies of a run again; needs no model
  localeval report RUN_DIR [RUN_DIR ...]      runs of a model side by side, by how they were asked
  localeval list [DATASET]                    the datasets and models that have names; --stats measures prompts

examples:
  localeval --model Qwen/Qwen2.5-0.5B-Instruct --datasets milu --dataset-dir data
  localeval --model ./checkpoint-500 --datasets conllpp mit_movie_trivia --dataset-dir data --limit 100
  localeval --model smollm2-135m --datasets milu conllpp mit_movie_trivia --samples
  localeval --model base 'runs/x/checkpoint-*' --datasets milu --dataset-dir data --mcq logprob
  localeval watch runs/x --datasets milu --dataset-dir data --mcq logprob --until-step 20000
  localeval --engine replay:replies.jsonl --datasets ./my.yaml

exit status: 0 done, 1 a run failed, is incomplete or is below the baseline, 2 the command or its data is wrong,
130 interrupted
"""


def _eval_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval",
        description="Evaluate open-weight language models offline: load them in process, ask whole datasets, score.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    what = parser.add_argument_group("what is asked of whom")
    what.add_argument(
        "--model",
        nargs="+",
        metavar="M",
        help="Hugging Face id (local cache), folder, LoRA adapter, .gguf file, or a name in models.yaml; several, a "
        "pattern ('runs/x/checkpoint-*') or a folder of checkpoints: one after another, in one engine where possible",
    )
    _add_asking(what)
    _add_answering(parser)
    _add_several(parser)
    return parser


def _add_asking(what: argparse._ArgumentGroup) -> None:
    what.add_argument("--datasets", nargs="+", metavar="D", help="built-in names, or paths of YAML files of your own")
    what.add_argument("--dataset-dir", metavar="DIR", help="holds <dataset>/..., or is the dataset itself")
    what.add_argument(
        "--samples", action="store_true", help="ask the few rows that ship with localeval (comparable with nothing)"
    )
    what.add_argument("--limit", type=int, metavar="N", help="at most N rows of each subset")
    what.add_argument(
        "--dataset-args", metavar="JSON", help='by dataset: \'{"milu": {"subset_list": ["Hindi"], "few_shot_num": 2}}\''
    )


def _add_answering(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how it answers")
    how.add_argument("--engine", metavar="E", help="auto (vllm, else transformers), vllm, transformers, replay:FILE")
    how.add_argument(
        "--generation-config", metavar="JSON", help='\'{"max_tokens": 64, "temperature": 0.7}\'; greedy by default'
    )
    how.add_argument(
        "--thinking",
        choices=["on", "off"],
        help="switch the chat template's reasoning (default: its own; off with --constrain and --mcq logprob)",
    )
    how.add_argument("--chat-template-args", metavar="JSON", help="handed to the chat template")
    how.add_argument(
        "--no-stop", action="store_true", help="entity replies go on after </response>, to the model's own end"
    )
    how.add_argument(
        "--constrain",
        action="store_true",
        help="hold replies to a grammar: a letter of the row, or the sentence with its tags; thinking is then off",
    )
    how.add_argument(
        "--mcq",
        metavar="WAY[,WAY]",
        help="how multiple choice is asked: generate (default), logprob (one token), cloze (base models)",
    )
    how.add_argument(
        "--on-overflow", choices=["error", "drop-shots"], help="what is done about a prompt that is too long"
    )
    how.add_argument("--logprobs", type=int, metavar="K", help="store the K best tokens at each position (up to 20)")
    how.add_argument("--seed", type=int, metavar="N", help="for sampling (default 0)")
    how.add_argument(
        "--noise", type=int, metavar="N", help="ask N times, in other orders, to see how much a score moves by itself"
    )
    how.add_argument(
        "--batch-invariant",
        action="store_true",
        help="vLLM's mode in which a reply does not depend on what runs beside it (GPUs; slower)",
    )
    weights = parser.add_argument_group("how it is loaded")
    weights.add_argument("--base", metavar="M", help="the base model of LoRA adapters, instead of the one they name")
    weights.add_argument("--models", metavar="FILE", help="a YAML file of further named models")
    weights.add_argument("--model-args", metavar="JSON", help='\'{"revision": "...", "dtype": "bfloat16"}\'')
    weights.add_argument("--engine-args", metavar="JSON", help="handed to vLLM: '{\"tensor_parallel_size\": 2}'")
    where = parser.add_argument_group("where it goes")
    where.add_argument("--work-dir", metavar="DIR", help="holds the run folders (default: runs)")
    where.add_argument(
        "--use-cache", metavar="DIR", help="take over replies of another run folder that were made alike"
    )
    where.add_argument("--config", metavar="FILE", help="a YAML file of these fields; options go before it")


def _add_several(parser: argparse.ArgumentParser) -> None:
    several = parser.add_argument_group("several models")
    several.add_argument(
        "--baseline",
        metavar="B",
        help="what the others are compared with: first (default), best, or a run folder",
    )
    several.add_argument(
        "--fail-below-baseline",
        type=float,
        metavar="P",
        help="exit status 1 where a result is more than P percentage points below the baseline's",
    )
    several.add_argument(
        "--tensorboard", action="store_true", help="write the curve as event files too (needs localeval[tensorboard])"
    )


_JSON_OPTIONS = ("dataset_args", "generation_config", "chat_template_args", "model_args", "engine_args")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    from localeval.schema import LocalevalError, RunFailed

    for stream in (sys.stdout, sys.stderr):  # a terminal that knows no "·" must not end a run
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    commands = {
        "eval": _evaluate,
        "watch": _watch,
        "compare": _compare,
        "score": _score,
        "report": _report,
        "list": _list,
    }
    try:
        if words and words[0] in commands:
            return commands[words[0]](words[1:])
        if words and not words[0].startswith("-"):
            close = difflib.get_close_matches(words[0], commands, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise LocalevalError(f"there is no command {words[0]!r}{hint}; commands: {', '.join(commands)}")
        return _evaluate(words)
    except LocalevalError as error:
        print(f"localeval: error: {error}", file=sys.stderr)
        return 2
    except RunFailed as error:
        print(f"localeval: failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("localeval: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain once more at exit
        return 1
    except OSError as error:  # what the system refuses, it names: the file, and why
        print(f"localeval: error: {error}", file=sys.stderr)
        return 2


def _evaluate(words: Sequence[str]) -> int:
    parser = _eval_parser()
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
    print(result.report_text, flush=True)
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
    _add_asking(parser.add_argument_group("what is asked"))
    _add_answering(parser)
    _add_several(parser)
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
    from localeval.series import write_comparison

    comparison = compare_paths(options.run_dir, options.baseline, options.force)
    print(comparison_text(comparison), flush=True)
    if options.output is not None:
        write_comparison(Path(options.output), comparison)
    points = options.fail_below_baseline
    below = comparison.below(points) if points is not None else []
    for line in below:
        print(f"below the baseline: {line}", flush=True)
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
    return {**(read_config_file(file) if file else {}), **given}


def _version() -> int:
    import importlib.metadata

    print(f"localeval {importlib.metadata.version('localeval')}")
    return 0


def _score(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="localeval score",
        description="Read and score the replies of a run again; needs no model.",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", help="a run folder, or a folder that holds some")
    parser.add_argument("--dataset-dir", metavar="DIR", help="where the data is now, if it has moved")
    options = parser.parse_args(words)
    from localeval.scoring import score_run

    print(score_run(Path(options.run_dir), options.dataset_dir).report_text, flush=True)
    return 0


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

    print(report_runs(options.run_dir), flush=True)
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
    parser.add_argument("--dataset-args", metavar="JSON", help='\'{"milu": {"few_shot_num": 2}}\'')
    parser.add_argument("--samples", action="store_true", help="the rows that ship with localeval")
    parser.add_argument("--models", metavar="FILE", help="a YAML file of further named models")
    options = parser.parse_args(words)
    if options.stats and not options.dataset:
        parser.error("--stats needs a DATASET")
    from localeval import listing

    if options.stats:
        print(listing.statistics(options.dataset, options.dataset_dir, options.dataset_args, options.samples))
    elif options.dataset:
        print(listing.dataset(options.dataset))
    else:
        print(listing.everything(options.models))
    return 0
