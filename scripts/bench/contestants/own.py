"""localeval through its command line, and the vLLM underneath it alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contestants.asked import Work
from contestants.envs import LOCALEVAL, ON_CPU, VARIABLES
from contestants.measure import Failed
from contestants.told import Ask, Place, Told
from localeval.engines.settings import environment, runs_on_cpu
from localeval.schema import Completion, Request


def localeval(*further: str) -> Ask:
    """A run of localeval a job, with further options. ``work`` is its own clock's ``generate``, of run.json."""

    def ask(works: Sequence[Work], place: Place) -> list[Told]:
        (work,) = works
        whole = place.run([str(LOCALEVAL / "localeval"), *_options(work.fields, place.folder / "runs"), *further], {})
        facts, report = (_only(place.folder, f"runs/*/*/{name}.json") for name in ("run", "report"))
        metric = "accuracy" if work.job.task == "mcq" else "f1"
        seconds, tokens = facts["seconds"], facts["tokens"]
        own = sum(len(request.prompt_token_ids) for request in work.requests)
        same = facts["first_prompt"]["token_ids"] == list(work.requests[0].prompt_token_ids)
        told = Told(
            start=whole - seconds["generate"],
            work=seconds["generate"],
            loading=seconds["start"],
            prompt_tokens=tokens["prompt"],
            output_tokens=tokens["output"],
            score=report["metrics"][metric]["value"],
            prompts="same" if same and own == tokens["prompt"] else "differ",
            further={"seconds": seconds, "tokens": tokens, "engine": facts["engine"]},
        )
        return [told]

    return ask


def _options(fields: Mapping[str, Any], runs: Path) -> list[str]:
    return [
        *("--model", fields["model"]),
        *("--datasets", *fields["datasets"]),
        *("--dataset-dir", fields["dataset_dir"]),
        *("--dataset-args", json.dumps(fields["dataset_args"])),
        *("--limit", str(fields["limit"])),
        *("--generation-config", json.dumps(fields["generation_config"])),
        *("--mcq", fields["mcq"]),
        *("--work-dir", str(runs)),
    ]


def _only(folder: Path, pattern: str) -> Any:
    (path,) = folder.glob(pattern)
    return json.loads(path.read_text(encoding="utf-8"))


def vllm_alone(works: Sequence[Work], place: Place) -> list[Told]:
    """``LLM.generate`` over localeval's token ids, with its engine's settings and variables: the floor."""
    if place.engine is None:
        raise Failed("takes its settings from localeval's run.json: ask localeval too")
    return _vllm(works, place, place.engine, {**VARIABLES, **environment(runs_on_cpu())})


def vllm_as_it_comes(works: Sequence[Work], place: Place) -> list[Told]:
    """The same with vLLM's own choices in everything but the precision and the length, which all contestants share."""
    longest = max(work.longest for work in works)
    engine = {"model": str(works[0].model), "dtype": "float32", "max_model_len": longest, **ON_CPU}
    return _vllm(works, place, engine, VARIABLES)


def _vllm(works: Sequence[Work], place: Place, engine: Mapping[str, Any], variables: Mapping[str, str]) -> list[Told]:
    jobs = [
        {
            "prompts": [list(request.prompt_token_ids) for request in work.requests],
            "params": [_params(request) for request in work.requests],
        }
        for work in works
    ]
    whole, told = place.program(Path(sys.executable), "in_vllm", {"engine": engine, "jobs": jobs}, variables)
    start = whole - sum(job["work"] for job in told["jobs"])
    return [_told(work, start, told["loading"], job) for work, job in zip(works, told["jobs"], strict=True)]


def _told(work: Work, start: float, loading: float, job: Mapping[str, Any]) -> Told:
    replies = [_completion(*pair) for pair in zip(work.requests, job["replies"], strict=True)]
    return Told(
        start=start,
        work=job["work"],
        loading=loading,
        prompt_tokens=sum(reply.prompt_tokens for reply in replies),
        output_tokens=sum(reply.output_tokens for reply in replies),
        score=work.judge(replies),
        prompts="same",  # it is handed localeval's own ids
    )


def _params(request: Request) -> dict[str, Any]:
    params: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": 0.0, "include_stop_str_in_output": True}
    if request.stop:
        params["stop"] = list(request.stop)
    if request.continuations:
        params["logprob_token_ids"] = sorted(token for (token,) in request.continuations.values())
    return params


def _completion(request: Request, reply: Mapping[str, Any]) -> Completion:
    logprobs = reply["logprobs"]
    asked = request.continuations
    return Completion(
        sample_id=request.sample_id,
        text=reply["text"],
        finish_reason=reply["finish_reason"],
        prompt_tokens=reply["prompt_tokens"],
        output_tokens=reply["output_tokens"],
        continuations={name: logprobs[str(token)] for name, (token,) in asked.items()} if asked else None,
    )


def completions(requests: Sequence[Request], texts: Sequence[str]) -> list[Completion]:
    """Texts as replies, for localeval to judge where their maker has no score for them."""
    return [Completion(request.sample_id, text, "stop") for request, text in zip(requests, texts, strict=True)]
