"""The words of a command line -> options. What is wrong is one line that names the nearest right word."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from localeval.nearest import nearest
from localeval.schema import LocalevalError

_OPTION = re.compile(r"(--?[A-Za-z][\w-]*)(=.*)?", re.DOTALL)
_CHOICE = re.compile(r"(.*invalid choice: '?(.*?)'?) \(choose from (.*)\)", re.DOTALL)


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Raises LocalevalError, where argparse would print all options and end the process."""

    def refuse(message: str) -> NoReturn:
        choice = _CHOICE.fullmatch(message)
        known = [word.strip("' ") for word in choice[3].split(",")] if choice else []
        said = f"{choice[1]}{nearest(choice[2], known)}; choose from {', '.join(known)}" if choice else message
        raise LocalevalError(f"{said} ({parser.prog} --help)")

    known = parser._option_string_actions
    for word in _before_the_end(words):
        option = _OPTION.fullmatch(word)
        if option and option[1] not in known:
            raise LocalevalError(f"there is no option {option[1]}{nearest(option[1], known)} ({parser.prog} --help)")
    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_args(words)


def _before_the_end(words: Sequence[str]) -> Sequence[str]:
    return words[: list(words).index("--")] if "--" in words else words
