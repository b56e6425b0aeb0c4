"""The command that repeats a run, out of its run.json. Pure; a test holds its options against the real parser."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

_ASKED = {"generate": (), "constrained": ("--constrain",), "logprob": ("--mcq", "logprob"), "cloze": ("--mcq", "cloze")}
_USUAL = {
    "engine": "auto", "speculation": "auto", "on_overflow": "error", "work_dir": "runs", "stop_at_end_tag": True,
}  # fmt: skip
"""What needs no option, beside what is null, false or empty."""
_ELSEWHERE = {"model", "datasets", "constrain", "mcq", "dataset_args", "generation_config"}
_SEVERAL = {"baseline", "fail_below_baseline", "tensorboard", "noise", "use_cache"}
"""About other models or earlier replies: nothing that this result depends on."""
_GENERATION = {"do_sample": None, "top_p": 1.0, "repetition_penalty": 1.0, "n": 1}


def command(facts: Mapping[str, Any]) -> str:
    """One line for a shell. facts: the content of run.json."""
    config, dataset = facts["config"], facts["dataset"]
    words = ["localeval"]
    if facts["model"]["asked_as"]:
        words += ["--model", _one_of(facts["model"])]
    words += ["--datasets", dataset["asked_as"], *_ASKED[facts["mode"]]]
    own = _given(config["dataset_args"].get(dataset["name"]) or {}, {})
    words += ["--dataset-args", _json({dataset["name"]: own})] if own else []
    generation = _given(config["generation_config"], _GENERATION)
    words += ["--generation-config", _json(generation)] if generation else []
    for name, value in _given(config, _USUAL).items():
        if name == "reasoning_tags":
            words += [word for pair in value for word in ("--reasoning-tags", *pair)]
        elif name not in _ELSEWHERE | _SEVERAL:
            words += _option(name, value)
    return shlex.join(words)


def _one_of(model: Mapping[str, Any]) -> str:
    """The one model of several, by its folder, else as it was asked for."""
    asked = [model["asked_as"]] if isinstance(model["asked_as"], str) else model["asked_as"]
    return str(asked[0] if len(asked) == 1 else model["folder"] or model["name"])


def _given(fields: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What is set, and not as usual; of what nests, too."""
    found = {name: _given(value, {}) if isinstance(value, Mapping) else value for name, value in fields.items()}
    return {
        name: value for name, value in found.items() if value not in (None, [], {}) and value != usual.get(name, False)
    }


def _option(name: str, value: Any) -> list[str]:
    if name == "stop_at_end_tag":
        return ["--no-stop"]
    option = "--" + name.replace("_", "-")
    if value is True:
        return [option]
    return [option, _json(value) if isinstance(value, Mapping) else str(value)]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
