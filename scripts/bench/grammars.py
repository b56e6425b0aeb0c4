"""What grammars of sentences cost: making, checking, compiling, one step; memory; and how long the engine stands idle.

    scripts/bench/grammars.py --dataset-dir DIR

First every sentence of each dataset, with a real tokenizer, beside two other forms of the same language on every
twentieth. Then a tiny model of random weights with the same tokenizer, so that generation takes as little as it can, in
vLLM: free replies, and constrained ones with as many tokens, made ready ahead and not.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from localeval.config import load_config
from localeval.engines.base import EngineConfig
from localeval.grammar import TaggedSentence
from localeval.jobs import Job, load_jobs
from localeval.model_names import load_models
from localeval.offline import go_offline
from localeval.plan import keyed, plan_requests
from localeval.prompts import Prompter
from localeval.report.text import table
from localeval.schema import Request
from localeval.tasks.ner import task as ner
from localeval.weights import Sources, find_weights

KEPT = 1024
"""As many grammars as wait in the engine at most."""


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer is used")
    parser.add_argument("--dataset-dir", required=True)
    parser.add_argument("--datasets", nargs="+", default=["conllpp", "mit_movie_trivia"])
    parser.add_argument("--sentences", type=int, default=300, help="asked of the tiny model")
    parser.add_argument("--memory", metavar="DATASET", help="only keep compiled grammars, and print what they take")
    options = parser.parse_args()
    go_offline()
    folder = find_weights(options.model, Sources(load_models()), print).folder
    if options.memory:
        print(_memory(_job(options, options.memory), _tokenizer(folder)))
        return
    rows = []
    for name in options.datasets:
        job = _job(options, name)
        rows.append([f"{name}, all", *_cost(job, _tokenizer(folder), TaggedSentence.definition, 1)])
        for form, definition in FORMS.items():
            rows.append([f"{name}, {form}, 1 in 20", *_cost(job, _tokenizer(folder), definition, 20)])
    header = ["ms a sentence", "sentences", "bytes", "make", "check", "compile", "steps", "ms a step", "all"]
    print(table(header, rows), flush=True)
    for name in options.datasets:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--memory", name], check=True)
    print(_idle(_job(options, options.datasets[0]), folder, options.sentences))


def _job(options: argparse.Namespace, name: str) -> Job:
    fields = {"engine": "replay:", "datasets": [name], "dataset_dir": options.dataset_dir, "constrain": True}
    (job,) = load_jobs(load_config(fields))
    return job


def _tokenizer(folder: Path) -> Any:
    import llguidance.hf
    from transformers import AutoTokenizer

    return llguidance.hf.from_tokenizer(AutoTokenizer.from_pretrained(folder))


# --- one sentence ---


def _cost(job: Job, tokenizer: Any, form: Callable[[TaggedSentence], str], every: int) -> list[str]:
    """Mean milliseconds a sentence; the steps are those of its gold reply."""
    from llguidance import LLMatcher

    entities = job.dataset.spec.tags
    made = checked = compiled = stepped = 0.0
    size = steps = 0
    samples = job.dataset.samples[::every]
    for sample in samples:
        constraint = ner.constraint(sample, entities, False)
        ids = tokenizer.tokenize_str(ner.target(sample, entities))
        start = time.perf_counter()
        definition = form(constraint)
        made += time.perf_counter() - start
        grammar = LLMatcher.grammar_from_lark(definition)
        start = time.perf_counter()
        error = LLMatcher.validate_grammar(grammar, tokenizer)
        checked += time.perf_counter() - start
        start = time.perf_counter()
        matcher = LLMatcher(tokenizer, grammar)
        compiled += time.perf_counter() - start
        for token in ids:
            start = time.perf_counter()
            matcher.compute_bitmask()
            stepped += time.perf_counter() - start
            matcher.consume_token(token)
        if error or not matcher.is_accepting():
            raise SystemExit(f"{sample.id}: {error or matcher.get_error()}")
        size += len(definition)
        steps += len(ids)
    n = len(samples)
    each = [1000 * seconds / n for seconds in (made, checked, compiled)]
    return [
        f"{n:,}",
        f"{size / n:,.0f}",
        *(f"{value:.2f}" for value in each),
        f"{steps / n:.0f}",
        f"{1000 * stepped / steps:.3f}",
        f"{sum(each) + 1000 * stepped / n:.2f}",
    ]


def _right_linear(constraint: TaggedSentence) -> str:
    """One rule for each position outside, one for each position and type inside."""
    tokens, tags = constraint.tokens, constraint.tags
    rules = ['start: "<response>" o0']
    for i, token in enumerate(tokens):
        last = i + 1 == len(tokens)
        after = '"</response>"' if last else f'" " o{i + 1}'
        opened = "".join(f' | "<{tag}>" i{i}_{k}' for k, tag in enumerate(tags))
        rules.append(f"o{i}: {json.dumps(token, ensure_ascii=False)} {after}{opened}")
        for k, tag in enumerate(tags):
            more = "" if last else f' | " " i{i + 1}_{k}'
            rules.append(f'i{i}_{k}: {json.dumps(token, ensure_ascii=False)} ("</{tag}>" {after}{more})')
    return "\n".join(rules)


def _intersection(constraint: TaggedSentence) -> str:
    """The sentence with tags between its tokens, and flat tags; wrong where a token looks like a tag."""
    names = "|".join(constraint.tags)
    held = sorted({re.sub(r"([^\w\s])", r"\\\1", token) for token in constraint.tokens if "<" in token})
    text = "|".join(["[^<]", *held])
    spans = "|".join(f"<{tag}>({text})+<\\/{tag}>" for tag in constraint.tags)
    words = " S ".join(json.dumps(token, ensure_ascii=False) for token in constraint.tokens)
    terms = f'BODY: A & B\nS: C " " O\nO: /(<({names})>)?/\nC: /(<\\/({names})>)?/\n'
    return f'start: "<response>" BODY "</response>"\n{terms}A: O {words} C\nB: /({text}|{spans})*/'


FORMS = {"right-linear": _right_linear, "intersection": _intersection}


def _memory(job: Job, tokenizer: Any) -> str:
    """Resident memory that compiled grammars take, after their first step."""
    from llguidance import LLMatcher

    samples = job.dataset.samples[:KEPT]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = []
    for sample in samples:
        constraint = ner.constraint(sample, job.dataset.spec.tags, False)
        kept.append(LLMatcher(tokenizer, LLMatcher.grammar_from_lark(constraint.definition())))
        kept[-1].compute_bitmask()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"{job.name}: {len(kept):,} compiled grammars kept take {grown / 2**10:.0f} MiB"


# --- the engine ---


def _idle(job: Job, tokenizer_folder: Path, sentences: int) -> str:
    """How much of a run's time the model does not run, on a model that is as fast as can be."""
    from localeval.engines.vllm import VllmEngine

    with tempfile.TemporaryDirectory() as folder:
        model = _tiny_model(Path(folder), tokenizer_folder)
        config = load_config({"model": str(model), "datasets": [job.name], "constrain": True})
        short = replace(job, dataset=replace(job.dataset, samples=job.dataset.samples[:sentences]), shots=0)
        requests = keyed(plan_requests(short, config, Prompter(model), None), "", {}).requests
        engine = VllmEngine(EngineConfig(model, max(r.length for r in requests), constrained=True))
        clock = _ModelClock(engine)
        held = {reply.key: reply for reply in engine.generate(requests)}
        free = [_as_long(request, held[request.key].output_tokens) for request in requests]
        runs = {"free": free, "constrained": requests, "constrained, not made ready ahead": requests}
        ahead = VllmEngine._taken_in
        rows = []
        for name, asked in [*runs.items(), *runs.items()]:
            if name.endswith("ahead"):
                VllmEngine._taken_in = _unprepared  # type: ignore[method-assign]
            engine.forget_prompts()
            clock.seconds, start = 0.0, time.perf_counter()
            tokens = sum(reply.output_tokens for reply in engine.generate(asked))
            wall = time.perf_counter() - start
            VllmEngine._taken_in = ahead  # type: ignore[method-assign]
            idle = wall - clock.seconds
            rows.append([name, f"{tokens:,}", f"{wall:.1f}", f"{idle:.1f}", f"{100 * idle / wall:.0f}%"])
        engine.close()
    header = [f"{len(requests)} sentences of {job.name}", "output tokens", "seconds", "idle", "of all"]
    return table(header, rows)


class _ModelClock:
    """Seconds in which the model runs: a forward pass, or drawing its tokens."""

    def __init__(self, engine: Any) -> None:
        self.seconds = 0.0
        executor = engine._llm.llm_engine.engine_core.engine_core.model_executor
        for name in ("execute_model", "sample_tokens"):
            setattr(executor, name, self._timed(getattr(executor, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def _unprepared(self: Any, request: Request) -> Any:
    """A constrained request as it would be added without more ado: vLLM checks its grammar while the engine waits."""
    from localeval.engines.vllm import _sampling_params, _structured
    from localeval.engines.vllm_asked import Asked

    params = _sampling_params(request, structured_outputs=_structured(request))
    return Asked(request, (self._sequence(request.prompt_token_ids, params),))


def _as_long(request: Request, tokens: int) -> Request:
    return replace(request, constraint=None, stop=(), max_tokens=tokens, key=f"free {request.key}")


def _tiny_model(folder: Path, tokenizer_folder: Path) -> Path:
    """2 layers of random weights, with a real tokenizer and a vocabulary as large."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 32}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 8192}
    ends: dict[str, Any] = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **heads, **ends)).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
