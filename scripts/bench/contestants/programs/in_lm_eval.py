"""Runs inside lm-evaluation-harness's environment: in_lm_eval.py ASKED.json TOLD.json

Asked are the back end, its arguments, a folder with the tasks' YAML files, and the tasks, one a job. ``loading`` is the
making of the back end's object (import of vLLM or transformers included); ``work`` is the object's own
``loglikelihood`` or ``generate_until`` over all rows. Tokens are counted where the back end hands them to its engine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WATCHED = ("loglikelihood", "generate_until", "_loglikelihood_tokens", "_model_call", "_model_generate")


class Counts:
    """What went through a back end.

    contexts: the ids of each pair's first part. sequences: the ids of each sequence that a reply was made for.
    """

    def __init__(self) -> None:
        self.work = 0.0
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.contexts: list[list[int]] = []
        self.sequences: list[list[int]] = []

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.work += time.perf_counter() - begun

        return call

    def of_pairs(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``_loglikelihood_tokens``: a text, the context's ids, the continuation's."""

        def call(requests: list[tuple[Any, list[int], list[int]]], *args: Any, **kwargs: Any) -> Any:
            self.contexts += [list(context) for _, context, _ in requests]
            return function(requests, *args, **kwargs)

        return call

    def of_vllm(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``_model_generate`` of the vLLM back end."""

        def call(*args: Any, **kwargs: Any) -> Any:
            outputs = function(*args, **kwargs)
            self.prompt_tokens += sum(len(output.prompt_token_ids) for output in outputs)
            self.sequences += [list(output.prompt_token_ids) for output in outputs]
            self.output_tokens += sum(len(output.outputs[0].token_ids) for output in outputs)
            return outputs

        return call

    def of_forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``_model_call`` of the transformers back end: one pass over a batch, its padding included."""

        def call(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self.prompt_tokens += inputs.numel()
            return function(inputs, *args, **kwargs)

        return call

    def of_transformers(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``_model_generate`` of the transformers back end, padding included."""

        def call(*, context: Any, **kwargs: Any) -> Any:
            output = function(context=context, **kwargs)
            self.prompt_tokens += context.numel()
            self.sequences += context.tolist()
            self.output_tokens += output.numel() - context.numel()
            return output

        return call


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from lm_eval import simple_evaluate  # type: ignore[import-not-found]
    from lm_eval.api.registry import get_model  # type: ignore[import-not-found]
    from lm_eval.tasks import TaskManager  # type: ignore[import-not-found]

    begun = time.perf_counter()
    model = get_model(asked["backend"])(**asked["arguments"])
    loading = time.perf_counter() - begun
    tasks = TaskManager(include_path=asked["folder"], include_defaults=False)
    own = {name: getattr(model, name, None) for name in WATCHED}
    jobs = []
    for task in asked["tasks"]:
        counts = Counts()
        _watch(model, own, counts, asked["backend"])
        found = simple_evaluate(model, tasks=[task], task_manager=tasks, bootstrap_iters=0)
        samples = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
        jobs.append(
            {
                "work": counts.work,
                "prompt_tokens": counts.prompt_tokens,
                "output_tokens": counts.output_tokens,
                "prompts": counts.contexts or counts.sequences,
                "replies": [sample["resps"][0][0] for sample in samples],
                "results": found["results"][task],
            }
        )
    Path(sys.argv[2]).write_text(json.dumps({"loading": loading, "jobs": jobs}), encoding="utf-8")


def _watch(model: Any, own: dict[str, Any], counts: Counts, backend: str) -> None:
    """Puts the counting around the model's own methods; of vLLM, empties what another job has left in its cache."""
    model.loglikelihood = counts.timed(own["loglikelihood"])
    model.generate_until = counts.timed(own["generate_until"])
    model._loglikelihood_tokens = counts.of_pairs(own["_loglikelihood_tokens"])
    if backend == "vllm":
        model.model.reset_prefix_cache()
        model._model_generate = counts.of_vllm(own["_model_generate"])
    else:
        model._model_call = counts.of_forward(own["_model_call"])
        model._model_generate = counts.of_transformers(own["_model_generate"])


if __name__ == "__main__":  # vLLM's own processes import this file again
    main()
