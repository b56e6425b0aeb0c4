"""In which order the requests of a run go to the engine, as one stream. Knows nothing about engines."""

from __future__ import annotations

from collections.abc import Sequence

from localeval.identity import token_bytes
from localeval.schema import Request

LONGEST = 0.1
"""The share of a subset's requests that go first for their long replies."""


def arranged(requests: Sequence[Request]) -> list[Request]:
    """Subset after subset as they are given, the modes of one subset together.

    Of each subset first the tenth with the longest budgets, so that none of them is left running alone at the end; then
    the others by their prompts' tokens, so that what begins alike, up to the same prompt in two modes, is asked while
    its beginning is cached. Where some requests want the best tokens and others name theirs, which vLLM does not run
    beside each other, all of the former go first.
    """
    best = [request for request in requests if request.wanted_logprobs]
    if best and any(request.continuations for request in requests):
        return [*_by_subset(best), *_by_subset([request for request in requests if not request.wanted_logprobs])]
    return _by_subset(requests)


def _by_subset(requests: Sequence[Request]) -> list[Request]:
    subsets: dict[tuple[str, str], list[Request]] = {}
    for request in requests:
        subsets.setdefault((request.dataset, request.sample_id.rpartition(":")[0]), []).append(request)
    return [request for subset in subsets.values() for request in _subset(subset)]


def _subset(requests: list[Request]) -> list[Request]:
    budgets = sorted(request.max_tokens for request in requests)
    usual = budgets[int(len(budgets) * (1 - LONGEST))] if len(budgets) * LONGEST >= 1 else budgets[-1]
    longest = [request for request in requests if request.max_tokens > usual]
    others = [request for request in requests if request.max_tokens <= usual]
    # Bytes compare at once; numbers one by one, which takes many times as long.
    alike = sorted(others, key=lambda request: token_bytes(request.prompt_token_ids))
    return [*sorted(longest, key=lambda request: -request.max_tokens), *alike]
