"""run.json -> what was measured, in words: enough to repeat the run. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def identity(facts: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Heading -> name -> text; last what may differ when the same is run again. facts: run.json, at the run's end."""
    return {
        "Model": _model(facts),
        "Data": _data(facts),
        "How it was asked": _asked(facts),
        "Engine": _engine(facts),
        "Software": {
            "packages": ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
            **({"git": facts["git"]} if facts["git"] else {}),
        },
        "This run": _this_run(facts),
    }


def in_one_line(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What tells one result from another, name -> text, short enough to stand beside the result's name."""
    engine, versions = str(facts["model"]["identity"]["engine"]), facts["versions"]
    version = versions.get(engine) or versions.get(f"{engine}-cpu", "")
    commit = f" ({facts['git'][:_SHORT]}{'+changes' if '+' in facts['git'] else ''})" if facts["git"] else ""
    return [
        ("checkpoint", facts["model"]["fingerprint"][:_SHORT]),
        ("asked", facts["asked"][:_SHORT]),
        ("settings", facts["settings"][:_SHORT]),
        ("engine", f"{engine} {version}".strip()),
        ("localeval", f"{versions['localeval']}{commit}"),
    ]


_SHORT = 8


def _model(facts: Mapping[str, Any]) -> dict[str, str]:
    model = facts["model"]
    found = {"name": model["name"], "fingerprint": model["fingerprint"], "folder": model.get("folder") or "none"}
    if model.get("adapter"):
        found["adapter"] = model["adapter"]
    if model.get("bundle"):
        found["from"] = _json(model["bundle"])
    return found


def _data(facts: Mapping[str, Any]) -> dict[str, str]:
    dataset = facts["dataset"]
    found = {"dataset": str(dataset["asked_as"])}
    if dataset.get("bundle"):
        found["from"] = _json(dataset["bundle"])
    digests = [f"{part} {digest[:_HEX]}" for part, digest in dataset["fingerprints"].items()]
    more = [f"{len(digests) - _FILES:,} further files, see run.json"] if len(digests) > _FILES else []
    return found | {"SHA-256": ", ".join([*digests[:_FILES], *more])}


_FILES, _HEX = 150, 16


def _asked(facts: Mapping[str, Any]) -> dict[str, str]:
    config = facts["config"]
    generation = {name: value for name, value in config["generation_config"].items() if value not in (None, [])}
    return {
        "mode": facts["mode"],
        "shots": str(dataset_shots(facts)),
        "limit": "none" if config["limit"] is None else f"{config['limit']:,} rows of each subset",
        "sampling": "greedy" if facts["greedy"] else _json(generation),
        "thinking": str(facts["thinking"] or "none"),
        "prompts, shots, rows": f"{facts['asked'][:_HEX]} (runs with this digest have asked the same)",
        "all settings": facts["settings"][:_HEX],
    }


def dataset_shots(facts: Mapping[str, Any]) -> int:
    """How many examples stand before each question."""
    return int(facts["dataset"]["shots"])


_SERVED = {
    "started": "loaded into an engine of its own",
    "swapped": "put into a running engine in place of another checkpoint's, and proven there",
    "adapter": "an adapter over a base model that was loaded before",
    "same": "those that the engine had",
}


def weights_came(facts: Mapping[str, Any]) -> dict[str, str]:
    """How the weights came into the engine, with the reason for a new one; nothing where none was asked."""
    served = facts.get("served")
    if not served:
        return {}
    because = f" ({served['because']})" if served.get("because") else ""
    return {"weights": _SERVED[served["how"]] + because}


def _engine(facts: Mapping[str, Any]) -> dict[str, str]:
    found = {"engine": str(facts["model"]["identity"]["engine"]), **weights_came(facts)}
    settings = dict(facts.get("engine", {}))
    reasons = settings.pop("reasons", {})
    for name, value in settings.items():
        text = value if isinstance(value, str) else _json(value)
        found[name] = f"{text} ({reasons[name]})" if name in reasons else text
    return {**reasons, **found}


def _this_run(facts: Mapping[str, Any]) -> dict[str, str]:
    """What depends on the machine, and on where a run was interrupted."""
    hardware, tokens, seconds = facts.get("hardware") or {}, facts.get("tokens") or {}, facts.get("seconds") or {}
    found = {}
    if hardware:
        gpus = ", ".join(map(str, hardware.get("gpus", ()))) or "no GPU"
        found["hardware"] = f"{gpus}; {hardware['cores']} cores, {hardware['memory_gib']} GiB, {hardware['machine']}"
    if tokens:
        found["tokens"] = ", ".join(f"{side} {number:,}" for side, number in tokens.items())
    if seconds:
        found["seconds"] = ", ".join(f"{phase} {number:.1f}" for phase, number in seconds.items())
    return found | {"replies of an earlier run": f"{facts['reused']:,}"}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
