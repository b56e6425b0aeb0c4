"""transformers: where vLLM is not installed, and the reference that vLLM's replies are tested against.

Slower by far: a batch waits for its slowest reply. Settings: ``engine_args {"batch_size": 8, "device": "cuda"}``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from localeval.engines.base import EngineConfig, EngineDied, checked
from localeval.engines.feed import at_hand
from localeval.engines.nan import overflown
from localeval.remote_code import why_not_run
from localeval.schema import Completion, Constraint, LocalevalError, Request, RunFailed, Sampling

if TYPE_CHECKING:
    import torch

_WINDOW = 64
"""Requests looked at together, to put those of like length into one batch."""


def load_transformers() -> None:
    """Imports the package, and torch; several seconds."""
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401


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
        batch_size = int(config.engine_args.get("batch_size", 8))
        self._batch_size = max(1, batch_size // 2) if config.cautious else batch_size
        dtype = config.dtype or ("float32" if self._device == "cpu" else "auto")
        try:
            options = {"local_files_only": True, "trust_remote_code": config.trust_remote_code}
            self._tokenizer = AutoTokenizer.from_pretrained(config.folder, **options)
            model, loaded = AutoModelForCausalLM.from_pretrained(
                config.folder, dtype=dtype, use_safetensors=not config.pickled, output_loading_info=True, **options
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            code = "" if config.trust_remote_code else why_not_run(config.folder)
            raise RunFailed(f"transformers can't load {config.folder}: {error}{code}") from error
        # What the file lacks transformers draws at random, with no more than a warning.
        wrong = [*loaded["missing_keys"], *loaded["mismatched_keys"]]
        if wrong:
            raise RunFailed(f"{config.folder}: {len(wrong)} weights are missing or of another shape: {wrong[0]}")
        self._model = model.to(self._device).eval()
        ends = model.generation_config.eos_token_id
        ends = self._tokenizer.eos_token_id if ends is None else ends
        own = [self._tokenizer.eos_token_id] if self._tokenizer.eos_token_id is not None else []
        self._ends = frozenset([*([ends] if isinstance(ends, int) else ends or []), *own])
        self._grammars = _Grammars(self._model, self._tokenizer) if config.constrained else None
        self._seed = config.seed
        self._settings = {
            "transformers": transformers.__version__,
            "device": self._device,
            "dtype": str(model.dtype).removeprefix("torch."),
            "batch_size": self._batch_size,
            "gpus": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
        }

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        source, more = iter(requests), True
        while more:
            window, more = at_hand(source, _WINDOW)
            alike: dict[tuple[Sampling, bool, bool], list[Request]] = {}
            for request in sorted(window, key=lambda request: len(request.prompt_token_ids)):
                kind = (request.sampling, request.wanted_logprobs > 0, bool(request.continuations))
                alike.setdefault(kind, []).append(request)
            for (_, _, scored), same in alike.items():
                for start in range(0, len(same), self._batch_size):
                    yield from self._answer(same[start : start + self._batch_size], scored)

    def _answer(self, batch: Sequence[Request], scored: bool) -> list[Completion]:
        """Raises EngineDied where there is too little memory, and whatever else torch can't do."""
        try:
            return list(map(self._scored, batch)) if scored else self._batch(batch)
        except RuntimeError as error:
            raise EngineDied(
                f"the engine failed: {type(error).__name__}: {error}. What was finished is kept"
            ) from error

    def _scored(self, request: Request) -> Completion:
        """The log probability of each continuation, by one pass over the prompt with each; one-token ones share a pass.

        The reply is the most probable next token, as where one token is generated.
        """
        import torch

        prompt = list(request.prompt_token_ids)
        heads = list(dict.fromkeys(ids[:-1] for ids in request.continuations.values()))
        longest = max(map(len, heads))
        rows = [prompt + list(head) for head in heads]
        pad = [len(prompt) + longest - len(row) for row in rows]
        ids = torch.tensor([row + [0] * n for row, n in zip(rows, pad, strict=True)], device=self._device)
        with torch.inference_mode():  # padded on the right: no position looks at what follows it
            logits = self._model(input_ids=ids, logits_to_keep=longest + 1).logits.float().log_softmax(-1)
        found = {}
        for name, tokens in request.continuations.items():
            row = logits[heads.index(tokens[:-1])]
            found[name] = math.fsum(row[step][token].item() for step, token in enumerate(tokens))
        token = int(logits[0][0].argmax()) if longest == 0 else None
        return Completion(
            sample_id=request.sample_id,
            text="" if token is None else self._decode([token]),
            finish_reason="stop",
            prompt_tokens=sum(map(len, rows)),
            output_tokens=len(rows),
            token_ids=() if token is None else (token,),
            continuations=checked(request, found),
            key=request.key,
        )

    def _decode(self, ids: Sequence[int], special: bool = False) -> str:
        """special: special tokens stay in the text, but for the one that ends it."""
        if special and ids and ids[-1] in self._ends:
            ids = ids[:-1]
        return str(self._tokenizer.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False))

    def _batch(self, batch: Sequence[Request]) -> list[Completion]:
        import torch
        from transformers import GenerationConfig, StoppingCriteriaList

        longest = max(len(request.prompt_token_ids) for request in batch)
        pad = next(iter(sorted(self._ends)), 0)
        padded = [[pad] * (longest - len(r.prompt_token_ids)) + list(r.prompt_token_ids) for r in batch]
        mask = [[0] * (longest - len(r.prompt_token_ids)) + [1] * len(r.prompt_token_ids) for r in batch]
        torch.manual_seed(self._seed if batch[0].sampling.seed is None else batch[0].sampling.seed)
        stops = _Stops(batch, longest, self._tokenizer)
        rows = self._grammars.rows(batch, self._ends) if self._grammars else None
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
                logits_processor=[_Numbers(batch), *([] if rows is None else [rows])],
            )
        said = output.sequences[:, longest:].tolist()
        return [
            self._completion(request, ids, index, output.logits, rows)
            for index, (request, ids) in enumerate(zip(batch, said, strict=True))
        ]

    def _completion(self, request: Request, ids: list[int], index: int, logits: Any, rows: _Rows | None) -> Completion:
        """Cuts a row where its own reply ended; the batch went on for the others."""
        reason, kept = "length", ids[: request.max_tokens]
        # Only a text that holds a stop string is looked through for the token that completed it.
        stop = request.stop if _ended(self._decode(kept), request.stop) else ()
        for count, token in enumerate(kept, 1):
            if token in self._ends:
                reason, kept = "stop", kept[:count]
                break
            if stop and _ended(self._decode(kept[:count]), stop):
                reason, kept = "stop", kept[:count]
                break
        text = self._decode(kept, request.keeps_special)
        end = _ended(text, request.stop)
        logprobs = None
        if request.wanted_logprobs:
            forbidden = rows.forbidden[index] if rows and request.constraint else [None] * len(kept)
            logprobs = tuple(
                _best(request.wanted_logprobs, logits[step][index], forbidden[step]) for step in range(len(kept))
            )
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

    def forget_prompts(self) -> None:
        """Nothing is kept."""

    def settings(self) -> Mapping[str, Any]:
        return self._settings

    def close(self) -> None:
        del self._model


def _best(count: int, logits: torch.Tensor, forbidden: torch.Tensor | None) -> dict[int, float]:
    """The most probable tokens of one step; of a constrained reply, among those that its grammar allows."""
    logits = logits.float()
    if forbidden is not None:
        logits = logits.masked_fill(forbidden, -math.inf)
    best = logits.log_softmax(-1).topk(count)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return {token: value for token, value in pairs if value > -math.inf}


class _Grammars:
    """Constraints as outlines' logits processors: its llguidance backend, made once for a model."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        # llguidance compiles a kernel that is a few lines; a run is too short to earn that back.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        from outlines.backends import LLGuidanceBackend
        from outlines.models import Transformers

        try:
            self._backend = LLGuidanceBackend(Transformers(model, tokenizer))
        except ValueError as error:  # llguidance takes fast tokenizers alone
            raise RunFailed(f"replies of this model can't be constrained: {error}") from error

    def rows(self, batch: Sequence[Request], ends: frozenset[int]) -> _Rows:
        """A logits processor for a batch in which each row has its own grammar, or none."""
        return _Rows([self._processor(request.constraint) for request in batch], batch, ends)

    def _processor(self, constraint: Constraint | None) -> Any:
        from outlines.types import CFG
        from outlines.types.dsl import to_regex

        if constraint is None:
            return None
        term = constraint.term()
        if isinstance(term, CFG):
            return self._backend.get_cfg_logits_processor(term.definition)
        return self._backend.get_regex_logits_processor(to_regex(term))


class _Numbers:
    """Raises RunFailed where logits are no numbers: a reply would be made of them all the same."""

    def __init__(self, batch: Sequence[Request]) -> None:
        self._batch = batch

    def __call__(self, _: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        without = scores.isnan().any(-1).tolist()
        if any(without):
            raise overflown([request for request, bad in zip(self._batch, without, strict=True) if bad])
        return scores


class _Rows:
    """One of outlines' processors a row; it takes one grammar for a whole batch. A row that has ended is left alone."""

    def __init__(self, processors: Sequence[Any], batch: Sequence[Request], ends: frozenset[int]) -> None:
        self._processors, self._batch, self._ends = list(processors), batch, ends
        self.forbidden: list[list[torch.Tensor]] = [[] for _ in batch]
        """By row and step what its grammar forbids, where logprobs are asked for."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()  # outlines' processors write into them, and the logits that are reported are these
        for row, (processor, request) in enumerate(zip(self._processors, self._batch, strict=True)):
            if processor is None:
                continue
            if not processor.is_first_token and int(input_ids[row, -1]) in self._ends:
                self._processors[row] = None
                continue
            scores[row : row + 1] = processor(input_ids[row : row + 1], scores[row : row + 1])
            if request.wanted_logprobs:
                self.forbidden[row].append(scores[row].isneginf())
            if request.allowed_token_ids:
                ids = list(request.allowed_token_ids)
                allowed = scores[row, ids]
                scores[row] = -math.inf
                scores[row, ids] = allowed
        return scores


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
