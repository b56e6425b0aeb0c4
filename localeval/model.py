"""Who answers: the weights that ``--model`` names, their tokenizer, and what makes replies differ for the same weights.

Knows nothing about run folders, nor about how an engine is driven.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localeval import identity
from localeval.config import TaskConfig
from localeval.engines.base import choose_engine
from localeval.engines.replay import ReplayEngine
from localeval.engines.settings import runs_on_cpu
from localeval.grammar import END_OF_REASONING
from localeval.jobs import Job
from localeval.model_names import load_models
from localeval.progress import LATE, measure, say, warn
from localeval.prompts import Prompter, context_length, misfits
from localeval.reply import Tags, closing_tag
from localeval.schema import LocalevalError
from localeval.tensors import refuse_nonfinite, types_in
from localeval.weights import Sources, Weights, find_weights, safe_name


@dataclass(frozen=True, slots=True)
class Model:
    """Who answers.

    fingerprint: of the checkpoint, or of the file that is replayed. identity: what makes replies differ for the same
    weights: the engine's kind and numerics. frame: all of the checkpoint but its weights (``identity.frame_of``).
    """

    name: str
    fingerprint: str
    identity: Mapping[str, Any]
    weights: Weights | None = None
    prompter: Prompter | None = None
    frame: Mapping[str, str] = field(default_factory=dict)

    @property
    def reasoning_opened(self) -> bool:
        """Whether a reply begins inside the reasoning."""
        return self.prompter is not None and self.prompter.reasoning_opened


def find_replay(config: TaskConfig, jobs: Sequence[Job]) -> tuple[Model, ReplayEngine]:
    """Replies from a file, as ``--engine replay:FILE`` names it. Raises LocalevalError for a file that is none."""
    path = Path(config.engine.removeprefix("replay:"))
    names = {job.name for job in jobs}
    if len(names) < len(jobs):
        raise LocalevalError(f"--engine replay:{path} holds one reply to a sample: name one way with --mcq")
    unknown = sorted(set(config.engine_args) - {"delay"})
    delay = config.engine_args.get("delay", 0.0)
    if unknown or isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < math.inf:
        raise LocalevalError(
            f"--engine replay takes the engine_args delay, seconds that each reply takes, not {config.engine_args}"
        )
    engine = ReplayEngine(path, len(names), delay)
    name = safe_name(config.asked_models[0] if config.asked_models else path.stem)
    return Model(name, engine.digest(), {"engine": "replay"}), engine


# Engine arguments that change how fast replies come, and nothing else.
_SPEED_ONLY = {
    "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "enforce_eager", "swap_space",
    "enable_prefix_caching", "disable_log_stats", "block_size", "batch_size", "device", "tensor_parallel_size",
    "pipeline_parallel_size", "use_tqdm_on_load", "kv_cache_memory_bytes",
}  # fmt: skip


def find_model(config: TaskConfig, asked: str) -> Model:
    """The weights and the tokenizer of one of the config's models.

    Raises LocalevalError for what can't be found, is not whole, or holds NaN.
    """
    kind = choose_engine(config.engine)
    if config.batch_invariant and (kind != "vllm" or runs_on_cpu()):
        raise LocalevalError("--batch-invariant is a mode of vLLM on GPUs; here there is none")
    if kind == "transformers" and config.engine == "auto":
        warn("vLLM is not installed: replies come from transformers, which is much slower")
    weights = find_weights(asked, sources_of(config), say)
    if weights.adapter is not None and kind == "transformers":
        raise LocalevalError(f"{asked} is an adapter: it needs --engine vllm, or to be merged into its base model")
    files = weights.files
    with measure(sum(file.stat().st_size for file in files), f"looking for NaN in {weights.name}", LATE) as passed:
        refuse_nonfinite(files, passed)
    engine_args = {**weights.engine_args, **config.engine_args}
    if engine_args.get("data_parallel_size", 1) != 1:
        raise LocalevalError("engine_args data_parallel_size: an engine in one process hangs with it; use --replicas N")
    numerics = {name: value for name, value in engine_args.items() if name not in _SPEED_ONLY}
    prompter = Prompter(
        weights.tokenizer,
        thinking=config.thinking,
        template_args={**weights.chat_template_args, **config.chat_template_args},
        trust_remote_code=config.model_args.trust_remote_code,
        reasoning_tags=given_tags(config),
    )
    for warning in (*prompter.warnings, *misfits(weights.folder, prompter, config.model_args.trust_remote_code)):
        warn(warning)
    seen_as = {
        "engine": kind,
        "dtype": config.model_args.dtype,
        "engine_args": numerics,
        "template_args": prompter.template_args,
        **({"batch_invariant": True} if config.batch_invariant else {}),
    }
    return Model(weights.name, weights.fingerprint, seen_as, weights, prompter, _frame(weights))


def sources_of(config: TaskConfig) -> Sources:
    """Where the config has models looked for."""
    return Sources(
        load_models(config.models), config.model_args.revision, config.base, config.allow_pickle, config.bundle_folder
    )


def given_tags(config: TaskConfig) -> tuple[Tags, ...]:
    """The user's own tags of reasoning."""
    return tuple(Tags(*pair) for pair in config.reasoning_tags)


def _frame(weights: Weights) -> dict[str, str]:
    """An adapter's own tokenizer goes before the base model's."""
    frame = identity.frame_of(weights.folder)
    # An engine that is not told a type takes that of the file.
    frame["the type of the weights"] = ", ".join(types_in(weights.files))
    if weights.tokenizer != weights.folder:
        files = [file for file in identity.model_files(weights.tokenizer) if not identity.is_weights(file)]
        frame |= {f"the adapter's {file.name}": identity.file_digest(file) for file in files}
        frame.pop("the adapter's adapter_config.json")
    return frame


def for_mode(model: Model, job: Job, config: TaskConfig) -> Model:
    """The same weights, prompted as the mode needs it. Raises LocalevalError where the chat template is in its way.

    Reasoning is off by default where an answer has one form; asked for, it is left free before a constrained reply.
    """
    prompter = model.prompter
    if prompter is None or job.mode == "generate":
        return model
    if job.mode == "cloze":
        prompter = prompter.without_template()
    elif config.thinking is None:
        prompter = prompter.without_thinking()
    if prompter.thinking == "on" and job.mode == "logprob":
        raise LocalevalError(
            f"{job.title}: --mcq logprob looks at the first token of the answer, and the chat template of {model.name} "
            "begins with reasoning; "
            + (
                "leave out --thinking on"
                if config.thinking == "on"
                else "it can't be switched off: ask with --mcq generate"
            )
        )
    if prompter.thinking == "on" and job.mode == "constrained" and config.thinking != "on":
        raise LocalevalError(
            f"{job.title}: --constrain, and the chat template of {model.name} begins with reasoning that can't be "
            "switched off; leave the reasoning free with --thinking on, or take --constrain away"
        )
    closing = closing_tag("", True, prompter.reasoning_tags)
    if prompter.thinking == "on" and job.mode == "constrained" and closing != END_OF_REASONING:
        raise LocalevalError(
            f"{job.title}: --constrain leaves reasoning free up to {END_OF_REASONING}, and {model.name} ends it with "
            f"{closing}: take --constrain away"
        )
    return replace(model, prompter=prompter, identity={**model.identity, "template_args": prompter.template_args})


def context_of(config: TaskConfig, weights: Weights) -> int | None:
    """The most tokens a prompt and its reply can have: the user's word, else the model's."""
    said = {**weights.engine_args, **config.engine_args}.get("max_model_len")
    if said is not None and not isinstance(said, int):
        raise LocalevalError(f"engine_args max_model_len is {said!r}; expected a whole number")
    return said if said is not None else context_length(weights.folder, config.model_args.trust_remote_code)
