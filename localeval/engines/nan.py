"""Notices requests of vLLM whose logits are no numbers (NaN): its replies to them look like replies. Imports no vLLM.

vLLM counts them where ``VLLM_COMPUTE_NANS_IN_LOGITS`` is set, on the device, and sends the counts with each step's
tokens; but it makes nothing of them, and shows them to nobody. The last two functions run in vLLM's worker.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Sequence
from typing import Any

from localeval.schema import Request, RunFailed


def numberless(engine: Any) -> set[str]:
    """A set that holds, from now on, the ids of the requests for which some step has computed NaN.

    engine: vLLM's ``LLMEngine``. Ids are those that requests were added with; vLLM puts ``-<8 hex>`` behind them.
    """
    core, found = weakref.proxy(engine.engine_core), set[str]()
    get_output = type(engine.engine_core).get_output

    def watched() -> Any:
        outputs = get_output(core)
        for output in outputs.outputs:
            if output.num_nans_in_logits:
                found.add(output.request_id.partition("-")[0])
        return outputs

    engine.engine_core.get_output = watched  # holds nothing of the engine: what it holds must go when it goes
    return found


def overflown(requests: Sequence[Request]) -> RunFailed:
    """What is raised for requests of whose replies nothing can be believed."""
    first = requests[0]
    more = f" and {len(requests) - 1} more" if len(requests) > 1 else ""
    return RunFailed(
        f"{first.dataset} {first.sample_id}{more}: the model computes NaN, which is no number, and a reply made of it "
        'would be none: a type too small for its numbers (try --model-args \'{"dtype": "bfloat16"}\' or float32), or '
        "spoilt weights. What was finished is kept"
    )


def spread_nan(model: Any) -> None:
    """A step that computes one NaN computes only NaN from now on. model: vLLM's.

    vLLM counts them by request, but looks at one row of logits for each, and with drafts there are several.
    """
    compute, itself = type(model).compute_logits, weakref.proxy(model)

    def compute_logits(*args: Any, **named: Any) -> Any:
        logits = compute(itself, *args, **named)
        if logits is not None:
            logits.masked_fill_(logits.amax().isnan(), math.nan)  # nothing waits for the device
        return logits

    model.compute_logits = compute_logits


def count_by_maximum() -> None:
    """The maximum of a row, which is NaN if any of it is, takes one pass; vLLM counts in two.

    On a CPU the passes take a sixth of what the logits themselves take, and the maximum nothing that can be seen.
    """
    runner = sys.modules.get("vllm.v1.worker.gpu_model_runner")
    if hasattr(runner, "count_nans_per_row"):  # not in older versions
        setattr(runner, "count_nans_per_row", lambda logits: logits.amax(-1).isnan().int())  # noqa: B010
