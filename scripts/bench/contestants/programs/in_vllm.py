"""Runs inside localeval's environment, with vLLM alone: in_vllm.py ASKED.json TOLD.json

Asked are the engine's arguments (what is none, as the notes that localeval keeps beside them, is left out), and each
job's token ids and SamplingParams. ``loading`` is the import of vLLM and ``LLM()``; ``work`` is ``generate()`` over all
rows at once.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    begun = time.perf_counter()
    import vllm

    known = {field.name for field in dataclasses.fields(vllm.EngineArgs)}
    llm = vllm.LLM(**{name: value for name, value in asked["engine"].items() if name in known})
    ready = time.perf_counter()
    jobs = [_job(vllm, llm, job) for job in asked["jobs"]]
    Path(sys.argv[2]).write_text(json.dumps({"loading": ready - begun, "jobs": jobs}), encoding="utf-8")


def _job(vllm: Any, llm: Any, asked: dict[str, Any]) -> dict[str, Any]:
    prompts = [{"prompt_token_ids": ids} for ids in asked["prompts"]]
    params = [vllm.SamplingParams(**each) for each in asked["params"]]
    llm.reset_prefix_cache()  # no job reads what another has left
    begun = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    done = time.perf_counter()
    replies = []
    for output in outputs:
        reply = output.outputs[0]
        first = reply.logprobs[0] if reply.logprobs else {}
        replies.append(
            {
                "text": reply.text,
                "finish_reason": reply.finish_reason,
                "prompt_tokens": len(output.prompt_token_ids),
                "output_tokens": len(reply.token_ids),
                "logprobs": {str(token): entry.logprob for token, entry in first.items()},
            }
        )
    return {"work": done - begun, "replies": replies}


if __name__ == "__main__":  # vLLM's own processes import this file again
    main()
