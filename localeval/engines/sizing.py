"""How an engine is set up for the work at hand: one pure function, with a reason for each choice. Knows no vLLM.

The names of the settings are vLLM's. Where a choice rests on a figure, docs/performance.md says where that comes from.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from localeval.schema import Request

Speculation = Literal["auto", "on", "off"]
"""Whether tokens are drafted from the prompt: where it pays, always where it can be, never."""

BLOCKS = (32, 64, 96, 128)
"""Tokens of a block of the cache, among which a CPU has a choice: its kernels want multiples of 32."""
CPU_SEQUENCES = 64
"""Sequences at once on a CPU: at more, a step costs what it gives."""
GPU_SEQUENCES = 256
"""Sequences at once on a GPU, at the least: vLLM's default for cards below 70 GB."""
GPU_TOKENS = 8192
"""Tokens of one step on a GPU: vLLM's default."""
GPU_SHARE = 0.92
"""Of a GPU's memory: vLLM's default."""
CAPTURE_SECONDS = 40.0
"""What compiling and capturing CUDA graphs adds to a start."""
SAVED_A_STEP = 0.01
"""Seconds that graphs save in one step of decoding, whose kernels would be launched one by one."""
DRAFTED = 6
"""Tokens drafted at once."""
FEWEST_DRAFTED = 16
"""Sequences from which drafts save more than they cost: compiling what looks for them makes a start 3 s longer."""
GPU_DRAFTING = 64
"""Sequences at once up to which a GPU has arithmetic to spare: a step reads all weights, for few or many tokens."""
GIB = 2**30
_NO_DRAFTS_BESIDE = {"async_scheduling", "max_num_batched_tokens", "pipeline_parallel_size", "speculative_config"}
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine will be asked, in counts.

    sequences: those that it will be given. prompt_tokens: of all of them. reply_tokens: the most that they can become.
    longest_reply: the most new tokens of one. cached: by size of block how many of the prompts' tokens need not be
    computed, where prompts follow one another. copied: the share of the reply tokens that is in replies which repeat
    their prompt. plain: whether all are replies without log probabilities, of which none is asked once more. greedy:
    whether all are the most probable tokens.
    """

    sequences: int
    prompt_tokens: int
    reply_tokens: int
    longest_reply: int
    cached: Mapping[int, int] = field(default_factory=dict)
    copied: float = 0.0
    plain: bool = True
    greedy: bool = True

    def part(self, engines: int) -> Work:
        """What each of several engines is asked."""
        return replace(
            self,
            sequences=-(-self.sequences // engines),
            prompt_tokens=-(-self.prompt_tokens // engines),
            reply_tokens=-(-self.reply_tokens // engines),
            cached={size: tokens // engines for size, tokens in self.cached.items()},
        )


ANY = Work(sequences=10**6, prompt_tokens=0, reply_tokens=10**9, longest_reply=10**3, plain=False)
"""What is taken for the work where nothing is known of it: many replies of a thousand tokens."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the engine runs; of a CPU also what its cache can be.

    memory: bytes that are free beside the weights. kv_bytes: of the cache for one token, where that is known. room:
    tokens of the longest sequence that it must hold.
    """

    on_cpu: bool
    memory: int = 0
    kv_bytes: int | None = None
    room: int = 0


@dataclass(frozen=True, slots=True)
class Sizing:
    """arguments: of vLLM's engine. cache_gib: of a CPU's cache. reasons: setting -> why, for the record."""

    arguments: Mapping[str, Any]
    reasons: Mapping[str, str]
    cache_gib: int | None = None


def work_of(requests: Sequence[Request]) -> Work:
    """Counts what is asked. Requests that share a beginning are expected to follow one another."""
    tokens = sum(request.max_tokens for request in requests)
    copied = sum(request.max_tokens for request in requests if request.copies)
    return Work(
        sequences=sum(_sequences(request) for request in requests),
        prompt_tokens=sum(len(request.prompt_token_ids) * _sequences(request) for request in requests),
        reply_tokens=tokens,
        longest_reply=max((request.max_tokens for request in requests), default=0),
        cached=_cached(requests),
        copied=copied / tokens if tokens else 0.0,
        plain=not any(request.continuations or request.wanted_logprobs or request.then for request in requests),
        greedy=all(request.sampling.temperature == 0.0 for request in requests),
    )


def _sequences(request: Request) -> int:
    ends = set(request.continuations.values())
    return len(ends) if any(len(ids) > 1 for ids in ends) else 1


def _cached(requests: Iterable[Request]) -> dict[int, int]:
    shared: Counter[int] = Counter()
    before: array[int] | None = None
    for request in requests:
        held = request.prompt_token_ids
        ids = held if isinstance(held, array) else array("I", held)
        if before is not None:
            shared[shared_prefix(before, ids)] += 1
        before = ids
    return {block: sum(length // block * block * count for length, count in shared.items()) for block in BLOCKS}


def shared_prefix(a: array[int], b: array[int]) -> int:
    """How many tokens two prompts have in common at their beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:  # slices are compared in C, token after token in Python
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def size(
    work: Work,
    machine: Machine,
    speculation: Speculation = "auto",
    engine_args: Mapping[str, Any] = _NOTHING,
    cautious: bool = False,
) -> Sizing:
    """The settings for some work on some machine.

    engine_args: the user's own, which will go before these. cautious: an engine died of this work, see ``cautiously``.
    """
    arguments: dict[str, Any] = {"enable_prefix_caching": True}
    reasons = {"enable_prefix_caching": "what prompts share at their beginning is computed once"}

    def choose(name: str, value: Any, reason: str) -> None:
        arguments[name], reasons[name] = value, reason

    if machine.on_cpu:
        choose("enforce_eager", True, "a CPU has no graphs, and compiling takes longer than it saves")
        choose("max_num_seqs", CPU_SEQUENCES, "more at once costs a CPU what it gives")
        block = max(BLOCKS, key=lambda size: (work.cached.get(size, 0), size))
        cached = f"{work.cached.get(block, 0):,} of {work.prompt_tokens:,}"
        choose("block_size", block, f"{cached} prompt tokens are shared in whole blocks of this size")
    else:
        eager = _why_eager(work)
        if eager:
            choose("enforce_eager", True, eager)
        if work.sequences < GPU_SEQUENCES:
            choose("max_num_seqs", work.sequences, "there are no more, and graphs are captured for no more")
    drafts, why = _drafts(work, machine, speculation, engine_args)
    reasons["speculative_config"] = why
    if drafts:
        arguments["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": DRAFTED,
            "prompt_lookup_min": 2,
            "prompt_lookup_max": 4,
        }
    at_once = CPU_SEQUENCES // 2 if cautious else CPU_SEQUENCES
    return Sizing(arguments, reasons, _cache_gib(work, machine, at_once) if machine.on_cpu else None)


def cautiously(arguments: Mapping[str, Any], on_cpu: bool) -> dict[str, Any]:
    """What changes of an engine's arguments after one with them has died, most often for want of memory.

    Half as many sequences at once, also where the user has named a number; on a GPU half the tokens of a step too, on
    which the memory beside weights and cache depends, and a smaller share of the GPU for those two.
    """
    sequences = max(1, int(arguments.get("max_num_seqs", CPU_SEQUENCES if on_cpu else GPU_SEQUENCES)) // 2)
    if on_cpu:
        return {"max_num_seqs": sequences}
    tokens = int(arguments.get("max_num_batched_tokens", GPU_TOKENS)) // 2
    if arguments.get("enable_chunked_prefill") is False:  # then a step must hold the longest prompt
        tokens = max(tokens, int(arguments.get("max_model_len", 0)))
    share = float(arguments.get("gpu_memory_utilization", GPU_SHARE)) - 0.05
    return {
        "max_num_seqs": sequences,
        "max_num_batched_tokens": max(sequences, tokens),
        "gpu_memory_utilization": round(max(0.05, share), 2),
    }


def _why_eager(work: Work) -> str:
    """Why nothing is compiled and no CUDA graph captured; empty where both are."""
    if work.longest_reply <= 1:
        return "one token a sequence: there is no decoding that graphs would speed up"
    steps = max(work.longest_reply, math.ceil(work.reply_tokens / GPU_SEQUENCES))
    if steps * SAVED_A_STEP < CAPTURE_SECONDS:
        return (
            f"at most {steps:,} steps of decoding, in which graphs save {steps * SAVED_A_STEP:.0f} s, and cost a start "
            f"{CAPTURE_SECONDS:.0f} s"
        )
    return ""


def _drafts(work: Work, machine: Machine, speculation: Speculation, engine_args: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether tokens are drafted from the prompt, and why, or why not."""
    if speculation == "off":
        return False, "off: switched off"
    if not work.plain:
        return False, "off: vLLM gives no log probabilities of named tokens beside drafts"
    if not work.greedy:
        return False, "off: replies are drawn, and a draft would change what is drawn"
    if speculation == "on":
        return True, "on: switched on"
    beside = sorted(_NO_DRAFTS_BESIDE & set(engine_args))
    if beside:
        return False, f"off: it does not go, or may not, beside {', '.join(beside)} of --engine-args"
    if work.copied < 0.5:
        return False, f"off: {work.copied:.0%} of the reply tokens are in replies that repeat their prompt"
    if work.sequences < FEWEST_DRAFTED:
        return False, f"off: fewer than {FEWEST_DRAFTED} sequences save less than a start with drafts takes longer"
    if not machine.on_cpu and work.sequences > GPU_DRAFTING:
        return False, f"off: with more than {GPU_DRAFTING} sequences at once a GPU has no arithmetic to spare"
    return True, f"on: {work.copied:.0%} of the reply tokens are in replies that repeat their prompt"


def _cache_gib(work: Work, machine: Machine, most_at_once: int) -> int:
    """GiB of a CPU's cache: what the sequences at once take, within half of the memory, and the longest in any case."""
    if machine.kv_bytes is None or not work.sequences:
        return 1
    each = (work.prompt_tokens + work.reply_tokens) / work.sequences
    wanted = math.ceil(min(work.sequences, most_at_once) * each * machine.kv_bytes / GIB)
    least = math.ceil(machine.room * machine.kv_bytes / GIB)
    return max(1, least, min(wanted, machine.memory // 2 // GIB))
