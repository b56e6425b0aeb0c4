"""Runs inside EvalScope's environment: in_evalscope.py ASKED.json TOLD.json

Asked are the fields of its TaskConfig. Two of its functions are timed, and nothing is changed: ``loading`` is the
making of its model (the import of what it needs for that included), ``work`` goes from the first call of the model's
``generate`` to the end of the last one.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Timer:
    """From the beginning of the first call to the end of the last."""

    def __init__(self) -> None:
        self.begun: float | None = None
        self.ended = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.begun is None:
                self.begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.ended = time.perf_counter()

        return timed

    @property
    def seconds(self) -> float | None:
        return None if self.begun is None else self.ended - self.begun


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from evalscope import TaskConfig, run_task  # type: ignore[import-not-found]
    from evalscope.api.model import model  # type: ignore[import-not-found]

    loading, work = Timer(), Timer()
    model.get_model_with_task_config = loading.around(model.get_model_with_task_config)
    model.Model.generate = work.around(model.Model.generate)
    run_task(TaskConfig(**asked))
    told = {"loading": loading.seconds, "work": work.seconds}
    Path(sys.argv[2]).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main()
