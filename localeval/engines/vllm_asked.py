"""What vLLM is given for a request, one sequence or several, and what its outputs are as one reply. Imports no vLLM."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from localeval.engines.base import checked
from localeval.schema import Completion, Request, RunFailed


@dataclass(frozen=True, slots=True)
class Sequence:
    """What vLLM is given: a prompt (or the request that vLLM has made of it already) and its SamplingParams."""

    name: str
    prompt: Any
    params: Any


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as vLLM's sequences: one, or one for each continuation of several tokens; and what came of them."""

    request: Request
    sequences: tuple[Sequence, ...]
    outputs: list[Any] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Which logprobs are asked for: of the ``best`` tokens, of tokens ``named`` by the request, or ``none``."""
        if self.request.continuations and one_token_each(self.request):
            return "named"
        return "best" if self.request.wanted_logprobs else "none"


def one_token_each(request: Request) -> bool:
    """Whether all its continuations are single tokens, which one step of the model answers."""
    return all(len(ids) == 1 for ids in request.continuations.values())


def completion(asked: Asked) -> Completion:
    """The outputs, in whatever order they came, as one reply."""
    request, output = asked.request, asked.outputs[0]
    reply = output.outputs[0]
    for reason in {each.outputs[0].finish_reason for each in asked.outputs} - {"stop", "length"}:
        raise RunFailed(f"{request.dataset} {request.sample_id}: vLLM ended the reply with {reason!r}")
    logprobs = continuations = None
    if request.wanted_logprobs:
        # What a grammar forbids has been taken out of the distribution before, and is no logprob.
        logprobs = tuple(
            {token: entry.logprob for token, entry in step.items() if entry.logprob > -math.inf}
            for step in reply.logprobs
        )
    if request.continuations:
        found = _one_step(request, output) if one_token_each(request) else _summed(asked)
        continuations = checked(request, found)
    return Completion(
        sample_id=request.sample_id,
        text=reply.text if len(asked.outputs) == 1 else "",
        finish_reason="stop" if request.continuations else reply.finish_reason,
        prompt_tokens=sum(len(output.prompt_token_ids) for output in asked.outputs),
        cached_tokens=sum(output.num_cached_tokens or 0 for output in asked.outputs),
        output_tokens=sum(len(output.outputs[0].token_ids) for output in asked.outputs),
        token_ids=tuple(reply.token_ids) if len(asked.outputs) == 1 else (),
        logprobs=logprobs,
        continuations=continuations,
        key=request.key,
    )


def _one_step(request: Request, output: Any) -> dict[str, float]:
    """The asked tokens' log probabilities at the first new position."""
    (step,) = output.outputs[0].logprobs
    return {name: step[token].logprob for name, (token,) in request.continuations.items()}


def _summed(asked: Asked) -> dict[str, float]:
    """Each continuation's log probability: the sum over its tokens, which stand at the end of a prompt."""
    by_ids = {tuple(output.prompt_token_ids): output.prompt_logprobs for output in asked.outputs}
    prompt = tuple(asked.request.prompt_token_ids)
    found = {}
    for name, ids in asked.request.continuations.items():
        steps = by_ids[(*prompt, *ids)][-len(ids) :]
        found[name] = math.fsum(step[token].logprob for step, token in zip(steps, ids, strict=True))
    return found
