"""localeval: offline evaluation of open-weight language models.

from localeval import run_task, TaskConfig

result = run_task(TaskConfig(model="Qwen/Qwen2.5-0.5B-Instruct", datasets=["milu"], limit=100))
print(result.runs[0].metrics)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localeval.config import TaskConfig
    from localeval.loading import load_runs
    from localeval.metrics.ner import score_tags
    from localeval.results import read_results
    from localeval.run import run_task
    from localeval.schema import LocalevalError, RunFailed
    from localeval.scoring import score_run
    from localeval.tasks.mcq.parse import parse_choice
    from localeval.tasks.ner.parse import tags_from_reply

__all__ = [
    "LocalevalError",
    "RunFailed",
    "TaskConfig",
    "load_runs",
    "parse_choice",
    "read_results",
    "run_task",
    "score_run",
    "score_tags",
    "tags_from_reply",
]

_HOMES = {
    "LocalevalError": "schema",
    "RunFailed": "schema",
    "TaskConfig": "config",
    "load_runs": "loading",
    "parse_choice": "tasks.mcq.parse",
    "read_results": "results",
    "run_task": "run",
    "score_run": "scoring",
    "score_tags": "metrics.ner",
    "tags_from_reply": "tasks.ner.parse",
}


def __getattr__(name: str) -> Any:
    """Imports on first use, so that ``import localeval`` and ``localeval --help`` cost nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'localeval' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"localeval.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
