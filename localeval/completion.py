"""``localeval completion SHELL``: a script for the shell's own completion, made of the parsers by shtab.

Knows what a word may be by its option: a file, a folder, a dataset, a model, a choice.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from localeval import command_options, options
from localeval.datasets.spec import builtin_names
from localeval.model_names import load_models

PARSERS: Mapping[str, Callable[[], argparse.ArgumentParser]] = {
    "eval": options.eval_parser,
    "watch": command_options.watch_parser,
    "compare": command_options.compare_parser,
    "score": command_options.score_parser,
    "report": command_options.report_parser,
    "view": command_options.view_parser,
    "export": command_options.export_parser,
    "doctor": options.doctor_parser,
    "fetch": command_options.fetch_parser,
    "list": command_options.list_parser,
    "init": command_options.init_parser,
    "bundle": command_options.bundle_parser,
    "completion": command_options.completion_parser,
}
"""Command -> its options."""

_WORDS = {
    "--engine": ["auto", "vllm", "transformers", "replay:"],
    "--mcq": ["generate", "logprob", "cloze", "generate,logprob"],
    "--baseline": ["first", "best"],
}
"""What an option that is parsed elsewhere may be."""

# "files" in a function's name tells shtab that folders are to end in a slash.
_BASH = """\
_localeval_option() {{  # after a first value a next option may come, too
  local word="${{COMP_WORDS[COMP_CWORD]}}"
  [[ "$word" == -* ]] && compgen -W "${{current_option_strings[*]}}" -- "$word"
}}
_localeval_files() {{ compgen -f -- "$1"; }}  # shtab's own take a name apart at its spaces
_localeval_dirs() {{ compgen -d -- "$1"; }}
_localeval_datasets_or_files() {{
  _localeval_option && return
  compgen -W "{datasets}" -- "$1"
  compgen -f -X '!*.yaml' -- "$1"
  compgen -f -X '!*.yml' -- "$1"
  compgen -d -- "$1"
}}
_localeval_models_or_files() {{
  _localeval_option && return
  compgen -W "{models}" -- "$1"
  compgen -f -X '!*.gguf' -- "$1"
  compgen -d -- "$1"
}}
"""
_ZSH = """\
_localeval_datasets() {{
  _alternative 'datasets:dataset:({datasets})' 'files:YAML file:_files -g "*.(yaml|yml)"'
}}
_localeval_models() {{
  _alternative 'models:model:({models})' 'files:folder or .gguf file:_files -g "*(/)|*.gguf"'
}}
"""


def script(shell: str) -> str:
    """The script. Raises LocalevalError for a models.yaml that can't be read."""
    import shtab

    names = {"datasets": " ".join(builtin_names()), "models": " ".join(load_models(None))}
    preamble = {"bash": _BASH.format(**names), "zsh": _ZSH.format(**names)}.get(shell, "")
    text: str = shtab.complete(_tree(names), shell=shell, preamble=preamble)
    return text


def _tree(names: Mapping[str, str]) -> argparse.ArgumentParser:
    """All commands as one parser: those of a run stand there without a command, too."""
    tree = options.eval_parser()
    commands = tree.add_subparsers()
    for name, make in PARSERS.items():
        parser = make()
        commands.add_parser(name, parents=[parser], add_help=False, help=parser.description or name)
    for parser in [tree, *commands.choices.values()]:
        for action in parser._actions:
            _tell(action, names)
    return tree


def _tell(action: argparse.Action, names: Mapping[str, str]) -> None:
    """Marks an action with what its words may be."""
    import shtab

    kind = action.metavar
    option = action.option_strings[0] if action.option_strings else ""
    complete: Any = None
    if option in _WORDS:
        action.choices = _WORDS[option]
    elif kind == "D" or action.dest == "dataset":
        complete = {
            "bash": "_localeval_datasets_or_files",
            "zsh": "_localeval_datasets",
            "tcsh": f"({names['datasets']})",
        }
    elif kind == "M":
        complete = {"bash": "_localeval_models_or_files", "zsh": "_localeval_models", "tcsh": f"({names['models']})"}
    elif kind in ("FILE", "ROWS"):
        complete = {**shtab.FILE, "bash": "_localeval_files"}
    elif kind == "DIR" or action.dest in ("run_dir", "folder"):
        complete = {**shtab.DIRECTORY, "bash": "_localeval_dirs"}
    if complete is not None:
        action.complete = complete  # type: ignore[attr-defined]
