"""What a run is told: TaskConfig, with EvalScope's field names.

Unknown keys are errors that name the nearest known one. Knows nothing about engines or files of data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from localeval.engine_args import refuse_in_template_args, refuse_unsafe
from localeval.nearest import nearest
from localeval.progress import warn
from localeval.schema import LocalevalError, Sampling
from localeval.strict import Strict, explain, read_yaml

_REFUSED = {
    "api_url": "localeval runs models in process; give the weights with model",
    "api_key": "localeval runs models in process; give the weights with model",
}
_WITHOUT_EFFECT = {
    "eval_batch_size": "the engine batches by itself",
    "eval_backend": "there is one backend",
    "eval_type": "models run in process",
    "dataset_hub": "nothing is downloaded",
    "stream": "replies are taken whole",
    "timeout": "there is no server to wait for",
    "no_timestamp": "run folders are named by what they hold",
    "judge_worker_num": "nothing is judged by a model",
    "judge_strategy": "nothing is judged by a model",
    "analysis_report": "reports are not written by a model",
}


def _renamed(data: Any, other_names: Mapping[str, str]) -> Any:
    """EvalScope's other names for a field; a field under two names is an error."""
    if not isinstance(data, Mapping):
        return data
    renamed = dict(data)
    for other, name in other_names.items():
        if other in renamed:
            if name in renamed:
                raise ValueError(f"{other} is another name of {name}: give one of them")
            renamed[name] = renamed.pop(other)
    return renamed


class DatasetArgs(Strict):
    """What can be changed about one dataset."""

    subset_list: list[str] | None = None
    few_shot_num: int | None = Field(default=None, ge=0)
    prompt_template: str | None = None
    few_shot_prompt_template: str | None = None
    system_prompt: str | None = None
    local_path: str | None = None
    allow_fewer_shots: bool = False


class GenerationConfig(Strict):
    """How replies are generated; greedy unless it says otherwise. max_tokens: None takes the task's own budget."""

    max_tokens: int | None = Field(default=None, ge=1)
    do_sample: bool | None = None
    temperature: float = Field(default=0.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=-1)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0)
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    seed: int | None = None
    stop: list[str] = []
    n: Literal[1] = 1

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, data: Any) -> Any:
        return _renamed(data, {"max_new_tokens": "max_tokens", "stop_seqs": "stop"})

    @model_validator(mode="after")
    def _sampling_is_meant(self) -> GenerationConfig:
        if self.do_sample is True and self.temperature == 0.0:
            raise ValueError("do_sample is true but temperature is 0: say which temperature")
        return self

    def sampling(self, seed: int) -> Sampling:
        """do_sample false means greedy whatever the temperature; a drawn reply is seeded by the run's seed."""
        greedy = self.do_sample is False or self.temperature == 0.0
        return Sampling(
            temperature=0.0 if greedy else self.temperature,
            top_p=1.0 if greedy else self.top_p,
            top_k=0 if greedy else max(self.top_k, 0),
            min_p=0.0 if greedy else self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=None if greedy else (seed if self.seed is None else self.seed),
        )


class ModelArgs(Strict):
    """What can be said about the weights.

    dtype: as vLLM names it (auto, float32, bfloat16, float16). trust_remote_code: run code that comes with the model.
    """

    revision: str | None = None
    dtype: str | None = None
    trust_remote_code: bool = False
    device_map: str | None = None
    """Taken for compatibility; the engine places the model."""

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, data: Any) -> Any:
        return _renamed(data, {"precision": "dtype", "torch_dtype": "dtype"})

    @field_validator("dtype")
    @classmethod
    def _without_torch(cls, value: str | None) -> str | None:
        return value.removeprefix("torch.") if value else None


class TaskConfig(BaseModel):
    """One run: one or several models over some datasets. Field names are EvalScope's where it has the thing.

    Raises LocalevalError for an unknown key (with the nearest known one), a refused one, or a wrong value; fields of
    EvalScope's that have no effect here are taken with a warning.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str | list[str] = ""
    """A Hugging Face id, a folder, a .gguf file, or a name in models.yaml; with ``replay:`` only a label. Several, a
    pattern (``runs/x/checkpoint-*``) or a folder of checkpoints: one after another, and compared."""
    datasets: list[str] = Field(min_length=1)
    """Names of built-in datasets, or paths of YAML files."""
    model_args: ModelArgs = ModelArgs()
    base: str | None = None
    """The base model of LoRA adapters, instead of the one that they name."""
    engine: str = "auto"
    speculation: Literal["auto", "on", "off"] = "auto"
    """Whether vLLM drafts tokens from the prompt and checks several at once; greedy replies stay the same, but for the
    rounding that a batch of another shape brings."""
    engine_args: dict[str, Any] = {}
    """Handed to vLLM as they are; they go before anything that localeval would choose."""
    models: str | None = None
    """A YAML file of further models."""
    allow_pickle: bool = False
    """Load weights that are pickled where there are no safetensors; unpickling can run code."""
    ray: str | None = None
    """Many engines on a Ray cluster: ``host:port`` of its head, or ``auto``, the one of this machine or a new one."""
    replicas: int | None = Field(default=None, ge=1)
    """How many; as many as its GPUs allow where it is not said. Alone, it means ``ray: auto``."""
    dataset_args: dict[str, DatasetArgs] = {}
    dataset_dir: str | None = None
    bundle: str | None = Field(default=None, validate_default=True)
    """A folder that ``localeval fetch`` has filled: datasets and models by their names. Else ``LOCALEVAL_HOME``."""
    samples: bool = False
    """Ask the few rows that ship with localeval instead of the published data."""
    generation_config: GenerationConfig = GenerationConfig()
    chat_template_args: dict[str, Any] = {}
    thinking: Literal["on", "off"] | None = None
    reasoning_tags: list[tuple[str, str]] = []
    """Pairs of tags between which the model reasons, ``[open, close]``, besides those that are known anyway."""
    read: Literal["lists"] | None = None
    """``lists``: entity replies that are a JSON list, or lines ``text (TYPE)``, are read, too."""
    stop_at_end_tag: bool = True
    """Entity replies stop at ``</response>``."""
    constrain: bool = False
    """Replies are held to a grammar: a letter of the row, or the sentence with its tags."""
    mcq: list[Literal["generate", "logprob", "cloze"]] = ["generate"]
    """How multiple choice is asked, each way in a run folder of its own."""
    force_answer: bool = False
    """Ask each unread multiple-choice reply once more, for the letter that it would give; reported apart."""
    on_overflow: Literal["error", "drop-shots"] = "error"
    logprobs: int = Field(default=0, ge=0, le=20)
    """How many best tokens to store with each position of a reply."""
    limit: int | None = Field(default=None, ge=1)
    """At most so many rows of each subset."""
    work_dir: str = "runs"
    use_cache: str | None = None
    """A run folder of earlier replies: those that were made under exactly the same conditions are taken over."""
    seed: int = 0
    baseline: str = "first"
    """Of several models, the one that the others are compared with: ``first``, ``best``, or a run folder."""
    fail_below_baseline: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Percentage points that a result may lie below the baseline's before the run counts as failed."""
    tensorboard: bool = False
    """Write the curve of several checkpoints also as TensorBoard event files."""
    parquet: bool = False
    """Write scores and samples of each run also as Parquet tables."""
    noise: int | None = Field(default=None, ge=2)
    """Ask so many times, each in another order, to see how much a score moves by itself."""
    batch_invariant: bool = False
    """vLLM's mode in which a reply does not depend on what runs beside it; on GPUs that have it."""

    def __init__(self, **fields: Any) -> None:
        for name, why in _REFUSED.items():
            if fields.get(name) is not None:
                raise LocalevalError(f"{name} is refused: {why}")
        for name, why in _WITHOUT_EFFECT.items():
            if name in fields:
                warn(f"{name} has no effect: {why}")
        known = {name: value for name, value in fields.items() if name not in (*_REFUSED, *_WITHOUT_EFFECT)}
        try:
            super().__init__(**known)
        except ValidationError as error:
            raise explain(error, TaskConfig, "config") from error

    @field_validator("datasets", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("mcq", mode="before")
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        return [one.strip() for one in value.split(",")] if isinstance(value, str) else value

    @field_validator("mcq")
    @classmethod
    def _each_way_once(cls, value: list[str]) -> list[str]:
        if not value or len(set(value)) < len(value):
            raise ValueError(f"{','.join(value)!r} is empty or names one way twice")
        return value

    @field_validator("generation_config", "model_args", "dataset_args", mode="before")
    @classmethod
    def _none_is_the_default(cls, value: Any) -> Any:
        return {} if value is None else value

    @field_validator("thinking", "speculation", mode="before")
    @classmethod
    def _yaml_reads_on_as_true(cls, value: Any) -> Any:
        return {True: "on", False: "off"}[value] if isinstance(value, bool) else value

    @field_validator("reasoning_tags", mode="before")
    @classmethod
    def _one_pair_is_a_list(cls, value: Any) -> Any:
        one = isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(each, str) for each in value)
        return [value] if one else value

    @field_validator("reasoning_tags")
    @classmethod
    def _are_tags(cls, value: list[tuple[str, str]]) -> list[tuple[str, str]]:
        for pair in value:
            fit = all(3 <= len(tag) <= 100 and tag == tag.strip() for tag in pair)
            if not fit or pair[0].lower() == pair[1].lower():
                raise ValueError(
                    f"{list(pair)} is no pair of tags: two different texts of 3 to 100 characters, such as "
                    "['<think>', '</think>']"
                )
        return value

    @field_validator("ray", mode="before")
    @classmethod
    def _yes_is_auto(cls, value: Any) -> Any:
        return {True: "auto", False: None}[value] if isinstance(value, bool) else value

    @field_validator("ray")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and "://" in value:
            raise ValueError(f"{value!r} is no host:port of a cluster's head; run on one of its nodes, with auto")
        return value

    @field_validator("bundle")
    @classmethod
    def _or_the_variable(cls, value: str | None) -> str | None:
        if value == "":  # as of a shell's variable that isn't set: other data would be taken, and nothing said
            raise ValueError("'' names no folder")
        return value or os.environ.get("LOCALEVAL_HOME") or None

    @field_validator("engine_args", "chat_template_args")
    @classmethod
    def _is_json(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"{value} is no JSON object: {error}") from error
        return value

    @field_validator("engine_args")
    @classmethod
    def _runs_no_code(cls, value: dict[str, Any]) -> dict[str, Any]:
        refuse_unsafe(value, of_a_file=False)
        return value

    @field_validator("chat_template_args")
    @classmethod
    def _turns_nothing_on(cls, value: dict[str, Any]) -> dict[str, Any]:
        refuse_in_template_args(value)
        return value

    @field_validator("engine")
    @classmethod
    def _known_engine(cls, value: str) -> str:
        if value not in ("auto", "vllm", "transformers") and not value.startswith("replay:"):
            hint = nearest(value, ["auto", "vllm", "transformers", "replay:FILE"])
            raise ValueError(f"{value!r} is not one of auto, vllm, transformers, replay:FILE{hint}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> TaskConfig:
        replay = self.engine.startswith("replay:")
        if not self.asked_models and not replay:
            raise ValueError("model is missing: a Hugging Face id, a folder, a .gguf file or a name in models.yaml")
        if not all(self.asked_models):
            raise ValueError("one of the models is an empty name")
        if replay and len(self.asked_models) > 1:
            raise ValueError("engine replay: and several models exclude each other: a file holds one model's replies")
        if self.cluster is not None and self.noise is not None:
            raise ValueError("ray and noise exclude each other: it is one engine whose scores move by themselves")
        if replay and self.noise is not None:
            raise ValueError("engine replay: and noise exclude each other: a file says the same each time")
        if len(set(self.datasets)) < len(self.datasets):
            raise ValueError(f"datasets names one twice: {', '.join(self.datasets)}")
        if self.constrain and self.generation_config.stop:
            raise ValueError(
                "constrain and generation_config.stop exclude each other: a grammar says where a reply ends"
            )
        if self.samples and self.dataset_dir is not None:
            raise ValueError("samples and dataset_dir exclude each other")
        return self

    @property
    def asked_models(self) -> list[str]:
        """What was named, one by one; patterns and folders are not looked into."""
        if isinstance(self.model, str):
            return [self.model] if self.model else []
        return list(self.model)

    @property
    def cluster(self) -> str | None:
        """The address of the Ray cluster on which the engines are; None for one engine here."""
        return self.ray or (None if self.replicas is None else "auto")

    @property
    def bundle_folder(self) -> Path | None:
        """Where the bundle is."""
        return None if self.bundle is None else Path(os.path.expanduser(self.bundle))

    def of_model(self, asked: str) -> TaskConfig:
        """The same run of one model alone."""
        return self.model_copy(update={"model": asked})

    def with_absolute_paths(self) -> TaskConfig:
        """The same run from any folder: what is recorded must not depend on where the command was given."""

        def absolute(path: str | None) -> str | None:
            return None if path is None else str(Path(os.path.expanduser(path)).absolute())

        args = {
            name: one.model_copy(update={"local_path": absolute(one.local_path)})
            for name, one in self.dataset_args.items()
        }
        return self.model_copy(
            update={
                "datasets": [absolute(name) if name.endswith((".yaml", ".yml")) else name for name in self.datasets],
                "dataset_args": args,
                **{name: absolute(getattr(self, name)) for name in ("dataset_dir", "bundle", "models", "use_cache")},
            }
        )


def load_config(source: TaskConfig | Mapping[str, Any] | str | Path) -> TaskConfig:
    """A TaskConfig from itself, a mapping, or a YAML (or JSON) file. Raises LocalevalError for what can't be."""
    if isinstance(source, TaskConfig):
        return source
    if isinstance(source, (str, Path)):
        return TaskConfig(**read_config_file(source))
    if not isinstance(source, Mapping):
        raise LocalevalError(f"a config is a TaskConfig, a mapping or the path of a YAML file, not {source!r}")
    return TaskConfig(**source)


def read_config_file(path: str | Path) -> dict[str, Any]:
    """The fields in a YAML (or JSON) file. Raises LocalevalError."""
    if not Path(path).exists():
        raise LocalevalError(f"config {path}: there is no such file (looked for {Path(path).absolute()})")
    return read_yaml(Path(path), "a config is a mapping of fields")


def parse_json_option(option: str, text: str) -> dict[str, Any]:
    """A command-line option that takes a JSON object."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise LocalevalError(f"{option} takes a JSON object, such as '{{\"key\": 1}}': {error}: {text}") from error
    if not isinstance(value, dict):
        raise LocalevalError(f"{option} takes a JSON object, not {type(value).__name__}: {text}")
    return value
