"""The picture of the house, held: who imports whom, and what is loaded when."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "localeval"

# A module may import those of its own row and of the rows above it that it names.
ALLOWED = {
    "schema": set(),
    "templates": {"nearest"},
    "reply": set(),
    "grammar": set(),
    "options": set(),
    "command_options": {"options"},
    "completion": {"command_options", "datasets", "model_names", "options"},
    "offline": set(),
    "visible": set(),
    "nearest": set(),
    "parsing": {"nearest", "schema"},
    "strict": {"schema", "nearest"},
    "engine_args": set(),
    "remote_code": set(),
    "progress": {"visible"},
    "stopping": set(),
    "bundle": {"schema"},
    "wheels": {"schema", "bundle", "progress"},
    "spans": {"schema"},
    "metrics": {"schema", "spans", "metrics"},
    "datasets": {
        "schema", "bundle", "datasets", "identity", "nearest", "progress", "reply", "strict", "tasks", "templates",
    },
    "tasks": {"schema", "templates", "reply", "spans", "grammar", "metrics", "tasks"},
    "prompts": {"schema", "remote_code", "reply"},
    "engines": {"schema", "identity", "offline", "progress", "remote_code", "engines"},
    "locks": {"schema"},
    "appending": {"schema"},
    "store": {"schema", "appending", "identity", "locks"},
    "samples": {"schema", "store"},
    "results": {"schema", "samples", "store"},
    "identity": {"schema"},
    "config": {"schema", "nearest", "engine_args", "progress", "strict"},
    "model_names": {"schema", "engine_args", "strict"},
    "tensors": {"schema", "identity"},
    "checkpoints": {"schema", "tensors"},
    "unpacking": {"schema", "identity", "model_names"},
    "weights": {
        "schema", "bundle", "checkpoints", "datasets", "identity", "model_names", "nearest", "progress", "tensors",
        "unpacking",
    },
    "report": {"schema", "identity", "metrics", "results", "spans", "visible", "report"},
    "jobs": {"schema", "nearest", "config", "datasets", "identity", "progress", "reply", "tasks", "templates"},
    "plan": {"schema", "config", "grammar", "identity", "jobs", "progress", "prompts", "tasks"},
    "forcing": {"schema", "identity", "plan", "prompts", "reply", "tasks"},
    "model": {
        "schema", "config", "engines", "grammar", "identity", "jobs", "model_names", "progress", "prompts", "reply",
        "tensors", "weights",
    },
    "record": {"bundle", "config", "datasets", "jobs", "model", "plan", "report"},
    "order": {"schema", "identity"},
    "receiving": {"schema", "identity", "plan", "store"},
    "noise": {"schema", "jobs", "metrics", "receiving", "store"},
    "rereading": {"schema", "report", "store"},
    "scoring": {
        "schema", "config", "identity", "jobs", "nearest", "noise", "offline", "progress", "record", "reply", "report",
        "rereading", "results", "samples", "store", "tables",
    },
    "tables": {"schema", "checkpoints", "metrics", "progress", "report", "results", "store"},
    "loading": {"schema", "report", "scoring", "tables"},
    "export": {"schema", "export", "metrics", "progress", "report", "results", "scoring", "store", "tasks"},
    "compare": {"schema", "metrics", "progress", "report", "scoring", "store"},
    "together": {"schema", "checkpoints", "compare", "report", "samples", "scoring", "store"},
    "evaluation": {
        "schema", "config", "datasets", "engines", "forcing", "identity", "jobs", "model", "noise", "order", "plan",
        "progress", "prompts", "receiving", "record", "samples", "scoring", "store",
    },
    "series": {
        "schema", "checkpoints", "config", "engines", "identity", "noise", "progress", "report", "scoring",
        "store", "together",
    },
    "run": {
        "schema", "checkpoints", "config", "engines", "evaluation", "identity", "model", "model_names", "offline",
        "progress", "scoring", "series", "weights",
    },
    "dry_run": {
        "schema", "checkpoints", "config", "doctor", "engines", "evaluation", "identity", "jobs", "model",
        "model_names", "offline", "order", "report", "run",
    },
    "view": {
        "schema", "offline", "progress", "report", "results", "scoring", "series", "store", "together", "view",
        "visible",
    },
    "watch": {
        "schema", "checkpoints", "config", "evaluation", "identity", "offline", "progress", "run", "scoring", "series",
    },
    "retry": {"schema", "progress"},
    "hubs": {"schema", "retry"},
    "transfer": {"schema", "retry"},
    "needed": {"schema", "datasets"},
    "requested": {"schema", "config", "datasets", "hubs", "model_names", "nearest", "needed", "progress", "strict"},
    "fetch": {
        "schema", "bundle", "checkpoints", "hubs", "offline", "progress", "requested", "transfer", "wheels",
    },
    "contents": {"bundle", "progress", "report"},
    "showing": {
        "schema", "config", "datasets", "doctor", "jobs", "model", "offline", "plan", "progress", "prompts",
    },
    "drafting": {"schema", "datasets", "drafting", "jobs", "nearest", "progress", "report", "strict", "templates"},
    "listing": {"config", "datasets", "jobs", "model_names", "offline", "progress", "report"},
    "doctor": {
        "schema", "bundle", "checkpoints", "config", "datasets", "doctor", "engines", "identity", "jobs", "model",
        "model_names", "offline", "plan", "prompts", "tensors", "unpacking", "weights",
    },
    "cli": {
        "schema", "command_options", "compare", "completion", "config", "contents", "doctor", "drafting", "dry_run",
        "export", "fetch", "listing", "nearest", "options", "parsing", "report", "requested", "run", "scoring",
        "series", "showing", "stopping", "together", "view", "visible", "watch",
    },
}  # fmt: skip


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "localeval" else [f"localeval.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("localeval.")}
    return found


def test_arrows_go_one_way() -> None:
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue
        assert _imports(path) <= ALLOWED[part], f"{path} imports {_imports(path) - ALLOWED[part]}"


def test_only_one_file_imports_vllm() -> None:
    importers = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "vllm" for alias in node.names))
    ]
    assert set(importers) == {"engines/vllm.py"}


@pytest.mark.parametrize("statement", ["import localeval", "import localeval.cli as c; c.main(['--help'])"])
def test_nothing_heavy_is_loaded(statement: str) -> None:
    heavy = ("torch", "vllm", "transformers", "pandas", "outlines", "pyarrow", "numpy", "datasets", "pydantic")
    code = f"""
import sys
try:
    {statement}
except SystemExit:
    pass
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_public_names_resolve() -> None:
    import localeval

    assert all(getattr(localeval, name) is not None for name in localeval.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = localeval.nothing


def test_offline_before_anything_is_imported() -> None:
    code = (
        "from localeval.offline import go_offline; go_offline();"
        "import huggingface_hub.constants as constants; print(constants.HF_HUB_OFFLINE)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
