"""transformers: where vLLM is not installed, and the reference that vLLM's replies are tested against.

Slower by far: a batch waits for its slowest reply. Settings: ``engine_args {"batch_size": 8, "device": "cuda"}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from localeval.engines.base import EngineConfig
from localeval.schema import Completion, LocalevalError, Request, RunFailed, Sampling

if TYPE_CHECKING:
    import torch

_WINDOW = 64
"""Requests looked at together, to put those of like length into one batch."""


class TransformersEngine:
    """``AutoModelForCausalLM.generate`` over batches padded on the left."""

    def __init__(self, config: EngineConfig) -> None:
        """Loads the model. Raises RunFailed with transformers' reason where it can't."""
        import torch
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        unknown = set(config.engine_args) - {"batch_size", "device"}
        if unknown:
            raise LocalevalError(
                f"--engine transformers takes the engine_args batch_size and device, not {sorted(unknown)}"
            )
        self._device = config.engine_args.get("device", "cuda" if torch.cuda.is_available() else "cpu")
        self._batch_size = int(config.engine_args.get("batch_size", 8))
        dtype = config.dtype or ("float32" if self._device == "cpu" else "auto")
        try:
            options = {"local_files_only": True, "trust_remote_code": config.trust_remote_code}
            self._tokenizer = AutoTokenizer.from_pretrained(config.folder, **options)
            model = AutoModelForCausalLM.from_pretrained(config.folder, dtype=dtype, use_safetensors=True, **options)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise RunFailed(f"transformers can't load {config.folder}: {error}") from error
        self._model = model.to(self._device).eval()
        ends = model.generation_config.eos_token_id
        ends = self._tokenizer.eos_token_id if ends is None else ends
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or [])
        self._seed = config.seed
        self._settings = {
            "transformers": transformers.__version__,
            "device": self._device,
            "dtype": str(model.dtype).removeprefix("torch."),
            "batch_size": self._batch_size,
        }

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        source = iter(requests)
        while window := [request for _, request in zip(range(_WINDOW), source, strict=False)]:
            alike: dict[tuple[Sampling, bool], list[Request]] = {}
            for request in sorted(window, key=lambda request: len(request.prompt_token_ids)):
                alike.setdefault((request.sampling, request.wanted_logprobs > 0), []).append(request)
            for same in alike.values():
                for start in range(0, len(same), self._batch_size):
                    yield from self._batch(same[start : start + self._batch_size])

    def _batch(self, batch: Sequence[Request]) -> list[Completion]:
        import torch
        from transformers import GenerationConfig, StoppingCriteriaList

        longest = max(len(request.prompt_token_ids) for request in batch)
        pad = next(iter(sorted(self._ends)), 0)
        padded = [[pad] * (longest - len(r.prompt_token_ids)) + list(r.prompt_token_ids) for r in batch]
        mask = [[0] * (longest - len(r.prompt_token_ids)) + [1] * len(r.prompt_token_ids) for r in batch]
        torch.manual_seed(self._seed if batch[0].sampling.seed is None else batch[0].sampling.seed)
        stops = _Stops(batch, longest, self._tokenizer)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids=torch.tensor(padded, device=self._device),
                attention_mask=torch.tensor(mask, device=self._device),
                generation_config=GenerationConfig(
                    max_new_tokens=max(request.max_tokens for request in batch),
                    eos_token_id=sorted(self._ends) or None,
                    pad_token_id=pad,
                    return_dict_in_generate=True,
                    output_logits=batch[0].wanted_logprobs > 0,
                    **_drawing(batch[0].sampling),
                ),
                stopping_criteria=StoppingCriteriaList([stops]),
            )
        rows = output.sequences[:, longest:].tolist()
        return [
            self._completion(request, ids, index, output.logits)
            for index, (request, ids) in enumerate(zip(batch, rows, strict=True))
        ]

    def _completion(self, request: Request, ids: list[int], index: int, logits: Any) -> Completion:
        """Cuts a row where its own reply ended; the batch went on for the others."""
        reason, kept = "length", ids[: request.max_tokens]
        # Only a text that holds a stop string is looked through for the token that completed it.
        stop = request.stop if _ended(self._tokenizer.decode(kept, skip_special_tokens=True), request.stop) else ()
        for count, token in enumerate(kept, 1):
            if token in self._ends:
                reason, kept = "stop", kept[:count]
                break
            if stop and _ended(self._tokenizer.decode(kept[:count], skip_special_tokens=True), stop):
                reason, kept = "stop", kept[:count]
                break
        text = self._tokenizer.decode(kept, skip_special_tokens=True)
        end = _ended(text, request.stop)
        logprobs = None
        if request.wanted_logprobs:
            steps = (
                logits[step][index].float().log_softmax(-1).topk(request.wanted_logprobs) for step in range(len(kept))
            )
            logprobs = tuple(dict(zip(best.indices.tolist(), best.values.tolist(), strict=True)) for best in steps)
        return Completion(
            sample_id=request.sample_id,
            text=text[:end] if end else text,
            finish_reason=reason,
            prompt_tokens=len(request.prompt_token_ids),
            output_tokens=len(kept),
            token_ids=tuple(kept),
            logprobs=logprobs,
            key=request.key,
        )

    def settings(self) -> Mapping[str, Any]:
        return self._settings

    def close(self) -> None:
        del self._model


class _Stops:
    """Tells ``generate`` which rows are done: their own budget is spent, or a stop string stands in their text."""

    def __init__(self, batch: Sequence[Request], prompt_length: int, tokenizer: Any) -> None:
        self._batch, self._start, self._tokenizer = batch, prompt_length, tokenizer

    def __call__(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        import torch

        rows = input_ids[:, self._start :].tolist()
        done = [
            len(row) >= r.max_tokens or self._stopped(row, r.stop) for row, r in zip(rows, self._batch, strict=True)
        ]
        return torch.tensor(done, device=input_ids.device)

    def _stopped(self, row: list[int], stop: tuple[str, ...]) -> bool:
        # The end of the row is enough: it is asked after every token, and a string is seldom so many.
        return bool(stop) and _ended(self._tokenizer.decode(row[-64:], skip_special_tokens=True), stop) > 0


def _ended(text: str, stop: tuple[str, ...]) -> int:
    """Where the first stop string ends; 0 where none stands."""
    return min((at + len(s) for s in stop if (at := text.find(s)) >= 0), default=0)


def _drawing(sampling: Sampling) -> dict[str, Any]:
    if sampling.presence_penalty or sampling.frequency_penalty:
        raise LocalevalError("--engine transformers knows no presence_penalty or frequency_penalty; use vllm")
    common = {"repetition_penalty": sampling.repetition_penalty}
    if sampling.temperature == 0.0:
        return {"do_sample": False, **common}
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p or None,
        **common,
    }
