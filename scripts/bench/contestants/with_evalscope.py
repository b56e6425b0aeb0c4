"""EvalScope, as published: over a local checkpoint, and as the client of a vLLM server on this machine.

Its benchmarks milu and conllpp are its own, with its own prompts; the rows are the same first ones, written in the
layout that its loader reads (one folder of splits, for milu with its subset named in the folder's card). That it asks
the same is read from what it writes down: the user's message of each prediction must be localeval's, and so must the
number of tokens of the whole prompt, which the model (or the server) reports.

Its local way is transformers, one row at a time by default; its server way sends 8 at a time by default.
"""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contestants import envs
from contestants.asked import Work, write_rows
from contestants.measure import Failed, last_words, started
from contestants.told import Place, Told

SERVED = "model"
"""The name that the server gives to the model."""
_CARD = """---
configs:
- config_name: {subset}
  data_files:
  - split: test
    path: test.jsonl
---
"""


def evalscope(works: Sequence[Work], place: Place) -> list[Told]:
    """A local checkpoint through transformers."""
    (work,) = works
    asked = {
        "model": str(work.model),
        "eval_type": "llm_ckpt",
        "model_args": {"precision": "torch.float32"},
        "generation_config": {"max_tokens": work.max_tokens, "do_sample": False, "stop_seqs": work.stop or None},
    }
    return [_client(work, place, asked)]


def evalscope_server(works: Sequence[Work], place: Place) -> list[Told]:
    """``vllm serve`` for all jobs, and EvalScope as its client. Loading is the server's, until it answers."""
    port = _free_port()
    log = place.folder / "server.txt"
    begun = time.perf_counter()
    with started(_server(works, place, port), place.meter, log, envs.VARIABLES) as server:
        while not _answers(port):
            if server.poll() is not None:
                raise Failed(f"the server ended: {last_words(log)}")
            if time.perf_counter() - begun > place.timeout:
                raise Failed(f"the server did not answer within {place.timeout:.0f} s")
            time.sleep(0.2)
        loading = time.perf_counter() - begun
        told = [_client(work, _within(place, work.name), _of_server(work, port)) for work in works]
    return [replace(each, start=loading + each.start, loading=loading) for each in told]


def _of_server(work: Work, port: int) -> dict[str, Any]:
    return {
        "model": SERVED,
        "eval_type": "openai_api",
        "api_url": f"http://127.0.0.1:{port}/v1",
        "generation_config": {
            "max_tokens": work.max_tokens,
            "temperature": 0.0,
            "stop_seqs": work.stop or None,
            "extra_body": {"include_stop_str_in_output": True},
        },
    }


def _within(place: Place, name: str) -> Place:
    folder = place.folder / name
    folder.mkdir()
    return replace(place, folder=folder)


def _client(work: Work, place: Place, asked: Mapping[str, Any]) -> Told:
    python = envs.python_of(envs.EVALSCOPE, place.envs)
    variables = {"HF_DATASETS_CACHE": str(place.folder / "cache"), "NO_PROXY": "127.0.0.1"}
    whole, told = place.program(python, "in_evalscope", {**_asked(work, place.folder), **asked}, variables)
    return _told(work, place, whole, told)


def _asked(work: Work, folder: Path) -> dict[str, Any]:
    rows = folder / "rows"
    rows.mkdir()
    name = work.job.name
    own: dict[str, Any] = {"local_path": str(rows), "few_shot_num": work.job.shots}
    if name == "milu":
        (subset,) = work.job.dataset.subsets
        own["subset_list"] = [subset]
        (rows / "README.md").write_text(_CARD.format(subset=subset), encoding="utf-8")
        write_rows(rows / "test.jsonl", _questions(work))
    else:
        write_rows(rows / "test.jsonl", _sentences(work.job.dataset.samples))
        write_rows(rows / "train.jsonl", _sentences(work.job.shots_of(work.job.dataset.samples[0])))
    return {
        "datasets": [name],
        "dataset_args": {name: own},
        "limit": work.rows,
        "work_dir": str(folder / "out"),
        "no_timestamp": True,
    }


def _questions(work: Work) -> list[dict[str, Any]]:
    return [
        {
            "question": sample.text,
            **{f"option{number}": text for number, text in enumerate(sample.choices, 1)},
            "target": f"option{gold + 1}",
        }
        for sample, gold in zip(work.job.dataset.samples, work.gold, strict=True)
    ]


def _sentences(samples: Any) -> list[dict[str, Any]]:
    return [{"tokens": list(sample.tokens), "ner_tags": list(sample.gold)} for sample in samples]


def _told(work: Work, place: Place, whole: float, told: Mapping[str, Any]) -> Told:
    (predictions,) = place.folder.glob("out/predictions/*/*.jsonl")
    (report,) = place.folder.glob("out/reports/*/*.json")
    rows = [json.loads(line) for line in predictions.read_text(encoding="utf-8").splitlines()]
    usage = [row["model_output"]["usage"] for row in rows]
    messages = [next(each["content"] for each in row["messages"] if each["role"] == "user") for row in rows]
    asked = [(message, used["input_tokens"]) for message, used in zip(messages, usage, strict=True)]
    return Told(
        start=whole - told["work"],
        work=told["work"],
        loading=told["loading"],
        prompt_tokens=sum(used["input_tokens"] for used in usage),
        output_tokens=sum(used["output_tokens"] for used in usage),
        score=_score(json.loads(report.read_text(encoding="utf-8")), work),
        prompts=work.same_messages(asked),
    )


def _score(report: Mapping[str, Any], work: Work) -> float:
    scores = {metric["identity"]["name"]: float(metric["score"]) for metric in report["metrics"]}
    return scores["accuracy" if work.job.task == "mcq" else "f1"]


def _server(works: Sequence[Work], place: Place, port: int) -> list[str]:
    """What is needed on a CPU, eager so that nothing is compiled, and the model's length as in every contestant.

    It is the vLLM of lm-eval's environment: ``vllm serve`` asks for its own version by the name ``vllm``, too.
    """
    return [
        *(str(envs.python_of(envs.LM_EVAL, place.envs).with_name("vllm")), "serve", str(works[0].model)),
        *("--served-model-name", SERVED),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32"),
        *("--max-model-len", str(max(work.longest for work in works))),
        *("--generation-config", "vllm"),
        *(word for name, value in envs.ON_CPU.items() for word in (f"--{name.replace('_', '-')}", str(value))),
        "--enforce-eager",
    ]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):  # not yet
        return False
