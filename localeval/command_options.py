"""The options of the commands beside a run, as parsers. Imports nothing heavy: the help must come at once."""

from __future__ import annotations

import argparse

from localeval.options import add_answering, add_asking, add_several


def watch_parser() -> argparse.ArgumentParser:
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
    return parser


def compare_parser() -> argparse.ArgumentParser:
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
    parser.add_argument(
        "--output", metavar="DIR", help="where report.html, comparison.json, .md and flips.jsonl are written"
    )
    return parser


def score_parser() -> argparse.ArgumentParser:
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
    return parser


def report_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval report",
        description="Finished runs side by side: one table for each model and set of samples, one column for each way "
        "it was asked (generate, constrained, logprob, cloze).",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", nargs="+", help="run folders, or folders that hold some")
    parser.add_argument(
        "--html", metavar="FILE", help="write them as a page, too: leaderboard, comparison, ways of asking"
    )
    return parser


def view_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval view",
        description="Serve the pages of runs to a browser on this machine: of one run with all its samples, searched "
        "and filtered; of a work folder all runs, each with its page, and any of them compared.",
        epilog="It is served at 127.0.0.1 alone, under an address that is drawn at each start. From another machine: "
        "ssh -L PORT:127.0.0.1:PORT, and --port PORT here. Ctrl-C ends it, with exit status 0.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "run_dir", nargs="*", default=["runs"], help="run folders, or folders that hold some (default: runs)"
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port (default: a free one)")
    parser.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        help="open a browser, or don't (default: where there is a display and this is a terminal)",
    )
    return parser


def fetch_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval fetch",
        description="Bring datasets, models and packages from the hubs into one folder, a bundle, that is carried to a "
        "machine with no network: only the files that are needed, at one commit, each held against the hub's hash. "
        "Nothing is transferred before all is listed and open to you. After a break the same command goes on.",
        epilog="HF_TOKEN and MODELSCOPE_API_TOKEN hold tokens for what is gated; HF_ENDPOINT and MODELSCOPE_ENDPOINT "
        "name mirrors; HTTPS_PROXY a proxy, SSL_CERT_FILE its certificate. docs/air-gapped.md says more.",
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what is brought")
    what.add_argument("--datasets", nargs="+", default=[], metavar="D", help="built-in names, or your own YAML files")
    what.add_argument(
        "--models", "--model", nargs="+", default=[], metavar="M", help="ids, such as Qwen/Qwen3-8B, or named models"
    )
    what.add_argument("--wheels", choices=("cpu", "gpu"), help="the Python packages, and localeval itself")
    what.add_argument("--python", metavar="3.12", help="the Python that the wheels are for (default: this one)")
    what.add_argument("--to", required=True, metavar="DIR", help="the bundle")
    how = parser.add_argument_group("which of it, and from where")
    hubs = ("modelscope", "huggingface")
    how.add_argument("--dataset-hub", choices=hubs, help="default: each dataset's own; the built-in: modelscope")
    how.add_argument("--model-hub", choices=hubs, default="huggingface", help="default: huggingface")
    how.add_argument(
        "--dataset-args", metavar="JSON", help='fewer subsets: \'{"milu": {"subset_list": ["Hindi", "Tamil"]}}\''
    )
    how.add_argument(
        "--revision", nargs="+", default=[], metavar="NAME=REV", help="a branch, tag or commit of the item NAME"
    )
    how.add_argument("--models-file", metavar="FILE", help="a YAML file of further named models")
    how.add_argument("--trust-remote-code", action="store_true", help="bring models' own Python files too")
    how.add_argument("--update", action="store_true", help="ask the hub again about what is there already")
    return parser


def export_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval export",
        description="Write finished runs as another tool writes its own results, for its viewer and its readers: "
        "reports, and each sample's prompt, reply and score. docs/tables.md says what has a place there.",
        allow_abbrev=False,
    )
    parser.add_argument("run_dir", nargs="+", help="run folders, or folders that hold some")
    parser.add_argument("--to", required=True, choices=("evalscope", "lm-eval"), help="the tool")
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="that tool's output folder; nothing in it is replaced (default: exported/evalscope, exported/lm-eval)",
    )
    return parser


def bundle_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval bundle",
        description="A bundle that localeval fetch has filled: verify reads every byte and holds it against the "
        "manifest, list says what is in it.",
        epilog="exit status of verify: 0 all is whole, 1 each problem is a line that names the file",
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("verify", "list"))
    parser.add_argument("bundle", metavar="DIR")
    return parser


def list_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval list",
        description="The datasets and models that have names; with DATASET, one dataset.",
        allow_abbrev=False,
    )
    parser.add_argument("dataset", nargs="?", help="a built-in name, or the path of a YAML file")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stats", action="store_true", help="read the rows and measure the prompts, in characters")
    what.add_argument(
        "--show", type=int, metavar="N", help="N prompts with their gold, the first of each subset before any second"
    )
    parser.add_argument(
        "--model", metavar="M", help="with --show: the prompts as this model's chat template makes them"
    )
    parser.add_argument("--dataset-dir", metavar="DIR", help="holds <dataset>/..., or is the dataset itself")
    parser.add_argument("--bundle", metavar="DIR", help="a folder of localeval fetch (default: LOCALEVAL_HOME)")
    parser.add_argument("--dataset-args", metavar="JSON", help='\'{"milu": {"few_shot_num": 2}}\'')
    parser.add_argument("--samples", action="store_true", help="the rows that ship with localeval")
    parser.add_argument("--models", metavar="FILE", help="a YAML file of further named models")
    return parser


def init_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval init",
        description="Look at a file of rows, and write the YAML file that makes them a dataset: NAME.yaml, with a "
        "comment to each key. Every row is held against each way to read it; what can't be told is an error that names "
        "the columns. The rows are to lie beside the YAML file or below it.",
        epilog="then: localeval list ./NAME.yaml --show 3, and: localeval --model M --datasets ./NAME.yaml",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="of the dataset, as reports call it; a folder may stand before it")
    parser.add_argument(
        "--from",
        dest="rows",
        required=True,
        metavar="ROWS",
        help="a .jsonl, .json, .csv, .tsv or .parquet table, or a CoNLL or BIO text (.txt, .conll, .bio, .iob2, .tsv)",
    )
    decided = parser.add_argument_group("what the rows don't tell")
    decided.add_argument("--task", choices=("mcq", "ner"), help="multiple choice, or named entities")
    decided.add_argument("--question", metavar="COL", help="the column of the question")
    decided.add_argument("--choices", nargs="+", default=[], metavar="COL", help="the options' columns, or a list's")
    decided.add_argument("--answer", metavar="COL", help="the column of the right answer")
    decided.add_argument(
        "--answer-is",
        choices=("letter", "label", "column", "text", "index", "number"),
        help="how it names an option: B, its column, its text, its number from 0 (index) or from 1 (number)",
    )
    decided.add_argument(
        "--tag-names",
        nargs="+",
        default=[],
        metavar="TAG",
        help="where tags are numbers, their names from 0 on: O B-PER",
    )
    return parser


def completion_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval completion",
        description="Print what makes a shell complete commands, options, datasets and models of localeval.",
        epilog="switched on for good: echo 'eval \"$(localeval completion bash)\"' >> ~/.bashrc",
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    return parser
