"""The options of the command line, as parsers. Imports nothing of ours: the help must come at once."""

from __future__ import annotations

import argparse

_EPILOG = """\
commands:
  localeval --model M --datasets D [D ...]    evaluate (the same as: localeval eval ...); several models are compared
  localeval watch DIR --datasets D [D ...]    evaluate every checkpoint that appears in a folder, once it is whole
  localeval compare RUN_DIR RUN_DIR [...]     differences between models on the same samples, with what chance explains
  localeval score RUN_DIR                     read and score the replies of a run again; needs no model
  localeval report RUN_DIR [RUN_DIR ...]      runs of a model side by side, by how they were asked
  localeval view [RUN_DIR ...]                runs and all their samples in a browser on this machine; any compared
  localeval export --to evalscope|lm-eval RUN_DIR     the results in that tool's own files
  localeval doctor [options of a run]         is everything here, will it fit, and what mends what is missing
  localeval fetch --datasets D --models M --to DIR    bring datasets, weights and packages for a machine with no network
  localeval bundle verify|list DIR            every byte of what was fetched against its SHA-256; what is in it
  localeval completion bash|zsh|tcsh          makes a shell complete all this: eval "$(localeval completion bash)"
  localeval list [DATASET]                    the datasets and models that have names; --show N shows prompts
  localeval init NAME --from ROWS             looks at a file of rows, and writes the YAML file of a dataset of your own

examples:
  localeval --model Qwen/Qwen2.5-0.5B-Instruct --datasets milu --dataset-dir data
  localeval --model ./checkpoint-500 --datasets conllpp mit_movie_trivia --dataset-dir data --limit 100
  localeval --model smollm2-135m --datasets milu conllpp mit_movie_trivia --samples
  localeval --model base 'runs/x/checkpoint-*' --datasets milu --dataset-dir data --mcq logprob
  localeval watch runs/x --datasets milu --dataset-dir data --mcq logprob --until-step 20000
  localeval --engine replay:replies.jsonl --datasets ./my.yaml

exit status: 0 done, 1 a run failed, is incomplete or is below the baseline, 2 the command or its data is wrong,
130 interrupted (Ctrl-C, SIGTERM or SIGHUP); what is finished is kept, and the same command goes on from there
"""


def eval_parser() -> argparse.ArgumentParser:
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
    add_asking(what)
    add_answering(parser)
    add_several(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="all but the asking: data, models and prompts are checked; how many rows, tokens and bytes it would be",
    )
    return parser


def doctor_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="localeval doctor",
        description="Is everything here that a run needs? Packages, GPUs, memory, disk, the environment, datasets and "
        "models, each with the command that mends it. Put `doctor` before the options of a run, and what that run "
        "would load and ask is held against the memory. Opens no network, starts no engine, writes nothing.",
        epilog="exit status: 0 nothing is wrong (notes may stand there), 1 something would keep a run from working, "
        "2 the command itself is wrong",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON, for scripts")
    parser.add_argument("--deep", action="store_true", help="import vLLM too, in another process (10 s and more)")
    what = parser.add_argument_group("what would be asked of whom")
    what.add_argument("--model", nargs="+", metavar="M", help="does it fit? as for a run")
    add_asking(what)
    add_answering(parser)
    add_several(parser)
    return parser


def add_asking(what: argparse._ArgumentGroup) -> None:
    what.add_argument("--datasets", nargs="+", metavar="D", help="built-in names, or paths of YAML files of your own")
    what.add_argument("--dataset-dir", metavar="DIR", help="holds <dataset>/..., or is the dataset itself")
    what.add_argument(
        "--bundle",
        metavar="DIR",
        help="a folder that localeval fetch has filled: datasets and models by their names (default: LOCALEVAL_HOME)",
    )
    what.add_argument(
        "--samples", action="store_true", help="ask the few rows that ship with localeval (comparable with nothing)"
    )
    what.add_argument("--limit", type=int, metavar="N", help="at most N rows of each subset")
    what.add_argument(
        "--dataset-args", metavar="JSON", help='by dataset: \'{"milu": {"subset_list": ["Hindi"], "few_shot_num": 2}}\''
    )


def add_answering(parser: argparse.ArgumentParser) -> None:
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
    how.add_argument(
        "--reasoning-tags",
        nargs=2,
        action="append",
        metavar=("OPEN", "CLOSE"),
        help="the model reasons between these, too; <think>, [THINK], gpt-oss's channels and others are known",
    )
    how.add_argument(
        "--read",
        choices=["lists"],
        help="lists: also read entity replies that are a JSON list or lines 'text (TYPE)'; the report says so",
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
        "--force-answer",
        action="store_true",
        help="ask each multiple-choice reply that can't be read once more, for its letter alone; reported apart",
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
    weights.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run Python code that comes with the model; none is run without it",
    )
    weights.add_argument(
        "--allow-pickle",
        action="store_true",
        help="load pickled weights (.bin, .pt) where there are no safetensors; unpickling can run code",
    )
    weights.add_argument("--model-args", metavar="JSON", help='\'{"revision": "...", "dtype": "bfloat16"}\'')
    weights.add_argument(
        "--speculation",
        choices=("auto", "on", "off"),
        help="whether tokens are drafted from the prompt and checked several at once; greedy replies stay the same but "
        "for rounding (default: where it pays)",
    )
    weights.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="so many engines side by side, through Ray (needs localeval[ray]); default with --ray: as many as fit",
    )
    weights.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="the Ray cluster on which they are: host:port of its head; without it the one of this machine, or a new "
        "one for this run",
    )
    weights.add_argument("--engine-args", metavar="JSON", help="handed to vLLM: '{\"tensor_parallel_size\": 2}'")
    where = parser.add_argument_group("where it goes")
    where.add_argument("--work-dir", metavar="DIR", help="holds the run folders (default: runs)")
    where.add_argument(
        "--use-cache", metavar="DIR", help="take over replies of another run folder that were made alike"
    )
    where.add_argument(
        "--parquet", action="store_true", help="write scores.parquet and samples.parquet into each run folder, too"
    )
    where.add_argument("--config", metavar="FILE", help="a YAML file of these fields; options go before it")


def add_several(parser: argparse.ArgumentParser) -> None:
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
