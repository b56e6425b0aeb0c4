"""What each choice about the engine is worth: the same rows in one run, seconds and ratios.

    scripts/bench/engine.py --dataset-dir DIR [--only floor stream block order speculation graphs prefill]

floor        localeval's stream, in its child process, replies written, read and scored beside it, against a bare
             LLM.generate of the same token ids in an engine with the same settings
stream       three datasets as one stream, or each when the one before is done
block        the cache's block chosen from what prompts share, or vLLM's own (CPU)
order        requests that begin alike together, or as they are given, or in any order
speculation  with and without drafts, by the number of rows, free and held to a grammar
graphs       with and without CUDA graphs, by the number of rows (GPU)
prefill      one token a question: the share of what the machine can multiply

The ways take turns; figures are medians of the rounds, and the prompts' cache is emptied before each.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trial import Child, Model, Row, Way, as_table, asking, take_turns

from localeval import record
from localeval.engines.base import Engine
from localeval.engines.settings import runs_on_cpu
from localeval.engines.vllm import VllmEngine
from localeval.offline import go_offline
from localeval.order import arranged
from localeval.plan import Plan
from localeval.receiving import Receiver
from localeval.schema import Completion, Request
from localeval.scoring import judge_of
from localeval.store import RunFolder


def floor(model: Model, options: argparse.Namespace, _: ExitStack) -> list[Row]:
    """One comparison for each of: replies to questions, letters, marked sentences."""
    asked = (("milu", "generate", options.mcq), ("milu", "logprob", options.mcq), ("conllpp", "generate", options.ner))
    found = []
    for dataset, mode, count in asked:
        plan = model.plan(dataset, mode, count)
        requests = arranged(plan.requests)
        with Child(model.config(requests)) as child:
            found += _against_bare(f"{dataset}, {mode}", model, plan, requests, child, options.rounds)
    return found


def _against_bare(
    title: str, model: Model, plan: Plan, requests: Sequence[Request], child: Child, rounds: int
) -> list[Row]:
    bare = VllmEngine(model.config(requests))
    try:
        return take_turns(
            title,
            [
                Way("LLM.generate", lambda: _bare(bare, requests), bare.forget_prompts),
                Way("the same engine, our stream", lambda: bare.generate(requests), bare.forget_prompts),
                Way(
                    "localeval",
                    lambda: _whole(model, child.engine, plan, requests),
                    child.engine.forget_prompts,
                    child.start,
                ),
            ],
            rounds,
        )
    finally:
        bare.close()


def _bare(engine: VllmEngine, requests: Sequence[Request]) -> list[Completion]:
    """VLLM's own loop, over the same prompts and settings."""
    asked = [sequence for request in requests for sequence in engine._prepare(request).sequences]
    outputs = engine._llm.generate([each.prompt for each in asked], [each.params for each in asked], use_tqdm=False)
    return [
        Completion(
            request.sample_id,
            output.outputs[0].text,
            "stop",
            len(output.prompt_token_ids),
            output.num_cached_tokens or 0,
            len(output.outputs[0].token_ids),
            key=request.key,
        )
        for request, output in zip(requests, outputs, strict=True)
    ]


def _whole(model: Model, engine: Engine, plan: Plan, requests: Sequence[Request]) -> list[Completion]:
    """As a run does it: replies are written, read and scored beside generation."""
    facts = {"thinking": model.prompter.thinking, "reasoning_opened": model.prompter.reasoning_opened}
    replies = []
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path) / "run")
        folder.open({request.key for request in requests})
        with Receiver([plan], [folder], [judge_of(plan.job, facts)]) as receiver:
            for reply in engine.generate(requests):
                receiver.put(reply)
                replies.append(reply)
            receiver.finish()
            receiver.jobs[0].whole()
        folder.close()
    return replies


def stream(model: Model, options: argparse.Namespace, stack: ExitStack) -> list[Row]:
    """A slow reply of one dataset is no reason to keep the next one waiting."""
    asked = (("milu", options.mcq // 2), ("mit_movie_trivia", options.ner), ("conllpp", options.ner))
    plans = [model.plan(dataset, "generate", count) for dataset, count in asked]
    pieces = [arranged(plan.requests) for plan in plans]
    together = arranged([request for plan in plans for request in plan.requests])
    child = stack.enter_context(Child(model.config(together)))
    engine = child.engine
    after = Way(
        "one after another",
        lambda: (reply for piece in pieces for reply in engine.generate(piece)),
        engine.forget_prompts,
    )
    return take_turns("three datasets", [asking("one stream", child, together), after], options.rounds)


def block(model: Model, options: argparse.Namespace, stack: ExitStack) -> list[Row]:
    """Zero-shot questions share an instruction of some 50 tokens."""
    requests = arranged(model.plan("milu", "logprob", options.mcq).requests)
    ways: dict[str, dict[str, Any]] = {"as chosen": {}, "of 128 tokens": {"block_size": 128}} if runs_on_cpu() else {}
    found = [
        asking(name, stack.enter_context(Child(model.config(requests, **args))), requests)
        for name, args in ways.items()
    ]
    return take_turns("milu, logprob, a block", found, options.rounds) if found else []


def order(model: Model, options: argparse.Namespace, stack: ExitStack) -> list[Row]:
    """Two modes of each question, with room for some of them in the cache, as in a run of many."""
    plans = [model.plan("milu", mode, 2 * options.mcq) for mode in ("generate", "logprob")]
    given = [replace(request, max_tokens=min(request.max_tokens, 4)) for plan in plans for request in plan.requests]
    requests = arranged(given)
    room = sum(request.length for request in requests) // 8
    size = 32 if runs_on_cpu() else 16
    config = model.config(requests, block_size=size, num_gpu_blocks_override=room // size, max_num_seqs=8)
    child = stack.enter_context(Child(config))
    mixed = random.Random(0).sample(given, len(given))
    ways = {"what begins alike together": requests, "one mode after the other": given, "in any order": mixed}
    return take_turns("two modes", [asking(name, child, each) for name, each in ways.items()], options.rounds)


def speculation(model: Model, options: argparse.Namespace, _: ExitStack) -> list[Row]:
    """Replies that repeat their sentence."""
    found = []
    for mode in ("generate", "constrained"):
        plans = {count: arranged(model.plan("conllpp", mode, count).requests) for count in options.drafted}
        most = plans[max(plans)]
        with Child(model.config(most, "off")) as off, Child(model.config(most, "on")) as on:
            for count, requests in plans.items():
                ways = [asking("one token a step", off, requests), asking("drafts", on, requests)]
                found += take_turns(f"conllpp, {mode}, {count}", ways, options.rounds)
    return found


def graphs(model: Model, options: argparse.Namespace, stack: ExitStack) -> list[Row]:
    """What a capture costs and saves."""
    if runs_on_cpu():
        return []
    requests = arranged(model.plan("conllpp", "generate", options.ner).requests)
    ways = [
        asking(name, stack.enter_context(Child(model.config(requests, enforce_eager=eager))), requests)
        for name, eager in (("no graphs", True), ("graphs", False))
    ]
    return take_turns("conllpp", ways, options.rounds)


def prefill(model: Model, options: argparse.Namespace, stack: ExitStack) -> list[Row]:
    """Nothing but prompts: as fast as the machine multiplies."""
    requests = arranged(model.plan("milu", "logprob", options.mcq).requests)
    child = stack.enter_context(Child(model.config(requests)))
    return take_turns("milu, logprob, prompts alone", [asking("localeval", child, requests)], options.rounds)


PARTS = {part.__name__: part for part in (floor, stream, block, order, speculation, graphs, prefill)}


def share_of_peak(folder: Path, row: Row) -> dict[str, float]:
    """Operations a second of a run of prompts alone, beside those of one large product of matrices, in T (10^12).

    A token takes 2 operations a weight of the layers, and 2 x layers x width for each token before it, on average half
    of its prompt; the head is computed for the last token alone.
    """
    shape = json.loads((folder / "config.json").read_text())
    shape = shape.get("text_config", shape)
    layers, width = shape["num_hidden_layers"], shape["hidden_size"]
    heads = shape["num_attention_heads"]
    keys = shape.get("num_key_value_heads", heads) * (shape.get("head_dim") or width // heads)
    queries = heads * (shape.get("head_dim") or width // heads)
    weights = layers * (2 * width * queries + 2 * width * keys + 3 * width * shape["intermediate_size"])
    computed = row.prompt_tokens - row.cached_tokens
    operations = computed * (2 * weights + 2 * layers * queries * row.prompt_tokens / row.rows)
    operations += row.rows * 2 * width * shape["vocab_size"]
    reached, peak = operations / row.seconds / 1e12, _product()
    return {"tokens_a_second": computed / row.seconds, "reached": reached, "product": peak, "share": reached / peak}


def _product() -> float:
    """10^12 operations a second of a product of matrices: bfloat16 on a GPU, float32 on a CPU."""
    import torch

    gpu = torch.cuda.is_available()
    side = 8192 if gpu else 2048
    a, b = torch.randn(2, side, side, device="cuda" if gpu else "cpu", dtype=torch.bfloat16 if gpu else torch.float32)
    seconds = []
    for _ in range(8):
        begin = time.perf_counter()
        a @ b
        if gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return float(2 * side**3 / min(seconds) / 1e12)


def main() -> None:
    """Prints one table over all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dataset-dir", required=True)
    parser.add_argument("--mcq", type=int, default=40, help="rows of milu, in English")
    parser.add_argument("--ner", type=int, default=12, help="rows of conllpp and of mit_movie_trivia")
    parser.add_argument("--drafted", type=int, nargs="+", default=[4, 12, 24, 48], help="rows, for speculation")
    parser.add_argument("--max-tokens", type=int, default=64, help="of a free reply to milu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, help="also write all figures there")
    options = parser.parse_args()
    go_offline()
    model = Model(options.model, options.dataset_dir, options.max_tokens)
    rows: list[Row] = []
    share = None
    for name in options.only:
        with ExitStack() as stack:
            rows += PARTS[name](model, options, stack)
        if name == "prefill":
            share = share_of_peak(model.folder, rows[-1])
        if options.json:  # after each part: whatever ends the next one takes nothing away
            facts = {"hardware": record.hardware(_gpus()), **record.software(), "model": str(model.folder)}
            figures = {"prefill": share, "rows": [asdict(row) for row in rows]}
            options.json.write_text(json.dumps({**facts, **figures}, indent=2))
    print(as_table(rows))
    if share:
        print(
            f"\nprompts alone: {share['tokens_a_second']:,.0f} tokens a second; {share['reached']:.3f} x 10^12 "
            f"operations a second, {share['share']:.0%} of the {share['product']:.3f} of a large product of matrices"
        )


def _gpus() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


if __name__ == "__main__":
    main()
