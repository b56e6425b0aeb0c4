"""Notices requests of vLLM whose logits are no numbers (NaN): its replies to them look like replies. Imports no vLLM.

vLLM counts them where ``VLLM_COMPUTE_NANS_IN_LOGITS`` is set, on the device, and sends the counts with each step's
tokens; but it makes nothing of them, and shows them to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localeval.schema import Request, RunFailed


def numberless(engine: Any) -> set[str]:
    """A set that holds, from now on, the ids of the requests for which some step has computed NaN.

    engine: vLLM's ``LLMEngine``. Ids are those that requests were added with; vLLM puts ``-<8 hex>`` behind them.
    """
    core, found = engine.engine_core, set[str]()
    get_output = core.get_output

    def watched() -> Any:
        outputs = get_output()
        for output in outputs.outputs:
            if output.num_nans_in_logits:
                found.add(output.request_id.partition("-")[0])
        return outputs

    core.get_output = watched
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
