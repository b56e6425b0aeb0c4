"""What will be asked: a dataset, its shots and settings -> prompts, budgets, requests; and how its replies are judged.

Knows nothing about engines, nor about where replies are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localeval.config import DatasetArgs, TaskConfig
from localeval.datasets.rows import Dataset, load_dataset
from localeval.datasets.spec import SAMPLES, DatasetSpec, check_template, find_spec
from localeval.identity import digest_of, request_key
from localeval.prompts import Prompter
from localeval.schema import LocalevalError, Request, Sample, Score
from localeval.tasks import mcq, ner
from localeval.templates import Templates

MCQ_BUDGET = 512
NER_BUDGET = 64
NER_BUDGET_PER_TOKEN = 3
THINKING_BUDGET = 8192


@dataclass(frozen=True, slots=True)
class Job:
    """One dataset of a run: its samples, and how they are asked and judged."""

    dataset: Dataset
    args: DatasetArgs
    templates: Templates
    shots: int
    entity_types: tuple[ner.EntityType, ...] = ()

    @property
    def name(self) -> str:
        return self.dataset.spec.name

    @property
    def task(self) -> str:
        return self.dataset.spec.task

    def shots_of(self, sample: Sample) -> list[Sample]:
        """The first examples of the sample's subset that are not itself. Raises LocalevalError if too few."""
        if not self.shots:
            return []
        itself = (sample.text, sample.choices)
        found = [s for s in self.dataset.shots[sample.subset] if s.id != sample.id and (s.text, s.choices) != itself]
        if len(found) < self.shots and not self.args.allow_fewer_shots:
            raise LocalevalError(
                f"{self.name}, {sample.id}: {self.shots} shots are asked for, but its {self.dataset.spec.shots_split} "
                f"split has only {len(found)} to show; lower few_shot_num, or allow it: "
                f'--dataset-args \'{{"{self.name}": {{"allow_fewer_shots": true}}}}\''
            )
        return found[: self.shots]

    def ask(self, sample: Sample, shots: Sequence[Sample]) -> str:
        """The user's message."""
        if self.task == "mcq":
            return mcq.ask(sample, shots, self.templates)
        return ner.ask(sample, shots, self.templates, self.entity_types)

    def judge(self, sample: Sample, reply: str, finish_reason: str, reasoning_opened: bool) -> Score:
        """Reads a reply and scores the reading."""
        if self.task == "mcq":
            return mcq.score(sample, mcq.read(reply, sample.choices, reasoning_opened), finish_reason)
        entities = self.dataset.spec.tags
        return ner.score(sample, ner.read(reply, sample.tokens, entities, reasoning_opened), entities, finish_reason)

    def message(self, sample: Sample) -> str:
        """The user's message, with the sample's own shots."""
        return self.ask(sample, self.shots_of(sample))

    def messages(self) -> Iterator[str]:
        """Every sample's message, in order; each built as it is taken, for all together are as large as the data."""
        return map(self.message, self.dataset.samples)


def load_jobs(config: TaskConfig) -> list[Job]:
    """Reads and checks the datasets of a config. Raises LocalevalError before any model is looked at."""
    specs = [find_spec(name) for name in config.datasets]
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        raise LocalevalError(f"two datasets have one name: {', '.join(names)}; a YAML file can say another: name: ...")
    for name in config.dataset_args:
        if name not in names:
            raise LocalevalError(
                f"dataset_args speaks of {name!r}, which is not among the datasets: {', '.join(names)}"
            )
    return [load_job(config, spec) for spec in specs]


def load_job(config: TaskConfig, spec: DatasetSpec) -> Job:
    """Reads and checks one dataset as the config wants it."""
    args = config.dataset_args.get(spec.name, DatasetArgs())
    shots = spec.shots if args.few_shot_num is None else args.few_shot_num
    if config.samples and not (SAMPLES / spec.name).is_dir():
        raise LocalevalError(f"no samples ship for {spec.name}; --samples is for the built-in datasets")
    dataset = load_dataset(
        spec,
        dataset_dir=str(SAMPLES) if config.samples else config.dataset_dir,
        local_path=args.local_path,
        subsets=args.subset_list,
        limit=config.limit,
        shots=shots,
    )
    types = tuple(ner.EntityType(entity.label, entity.tag, entity.description) for entity in spec.entities)
    return Job(dataset, args, _templates(spec, args), shots, types)


def _templates(spec: DatasetSpec, args: DatasetArgs) -> Templates:
    chosen = {"prompt": args.prompt_template, "shots_prompt": args.few_shot_prompt_template}
    for name, template in chosen.items():
        if template is not None:
            try:
                check_template(spec.task, name, template)
            except ValueError as error:
                raise LocalevalError(f"dataset_args, {spec.name}: {error}") from error
    return replace(spec.templates, **{name: text for name, text in chosen.items() if text is not None})


def settings_digest(job: Job, config: TaskConfig, engine: Mapping[str, Any]) -> str:
    """What names the run folder, beside the checkpoint: everything that the user chose and that a reply depends on.

    The data is not in it: each reply's own key is bound to the bytes of its data.
    """
    generation = config.generation_config
    return digest_of(
        {
            "dataset": job.dataset.spec.model_dump(mode="json", exclude={"title", "hub_id", "path", "source"}),
            "prompt": [job.templates.prompt, job.templates.shot, job.templates.shots_prompt, job.args.system_prompt],
            "shots": job.shots,
            "subsets": list(job.dataset.subsets),
            "samples": config.samples,
            "limit": config.limit,
            "generation": generation.model_dump(mode="json"),
            "seed": None if generation.sampling(config.seed).temperature == 0 else config.seed,
            "chat_template_args": config.chat_template_args,
            "thinking": config.thinking,
            "stop_at_end_tag": config.stop_at_end_tag,
            "on_overflow": config.on_overflow,
            "logprobs": config.logprobs,
            "engine": dict(engine),
        }
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """A job's requests, one a sample and in its order; ``dropped_shots`` counts prompts that had to lose examples."""

    job: Job
    requests: tuple[Request, ...]
    dropped_shots: int = 0


def plan_replay(job: Job, file_digest: str) -> Plan:
    """Requests without prompts: replay needs no tokenizer."""
    return Plan(
        job,
        tuple(
            _keyed(job, sample, Request(job.name, sample.id, (), max_tokens=0), file_digest, "replay")
            for sample in job.dataset.samples
        ),
    )


def plan_requests(
    job: Job, config: TaskConfig, prompter: Prompter, context: int | None, checkpoint: str, engine: Mapping[str, Any]
) -> Plan:
    """Builds and tokenises every prompt, and gives each its budget.

    context: the most tokens that the model can take. Raises LocalevalError that names the prompts that leave no room
    for a reply, unless shots may be dropped.
    """
    samples = job.dataset.samples
    prompts = list(prompter.encode(job.messages(), job.args.system_prompt))
    budgets = _budgets(job, config, prompter)
    dropped = 0
    if context is not None:
        too_long = [index for index, ids in enumerate(prompts) if len(ids) >= context]
        if too_long and config.on_overflow == "error":
            raise _overflow(job, [(samples[i].id, len(prompts[i])) for i in too_long], context)
        for index in too_long:
            prompts[index] = _with_fewer_shots(job, samples[index], prompter, context)
        dropped = len(too_long)
        budgets = [min(budget, context - len(ids)) for budget, ids in zip(budgets, prompts, strict=True)]
    thinking = prompter.thinking == "on"
    own_stop = (ner.STOP,) if job.task == "ner" and config.stop_at_end_tag and not thinking else ()
    stop = tuple(dict.fromkeys([*own_stop, *config.generation_config.stop]))
    sampling = config.generation_config.sampling(config.seed)
    engine_digest = digest_of(dict(engine))
    requests = tuple(
        _keyed(
            job,
            sample,
            Request(job.name, sample.id, ids, budget, stop, sampling, config.logprobs),
            checkpoint,
            engine_digest,
        )
        for sample, ids, budget in zip(samples, prompts, budgets, strict=True)
    )
    return Plan(job, requests, dropped)


def _keyed(job: Job, sample: Sample, request: Request, checkpoint: str, engine: str) -> Request:
    return replace(request, key=request_key(request, checkpoint, job.dataset.data_fingerprint(sample.subset), engine))


def _budgets(job: Job, config: TaskConfig, prompter: Prompter) -> list[int]:
    samples = job.dataset.samples
    if config.generation_config.max_tokens is not None:
        return [config.generation_config.max_tokens] * len(samples)
    extra = THINKING_BUDGET if prompter.thinking == "on" else 0
    if job.task == "mcq":
        return [MCQ_BUDGET + extra] * len(samples)
    lengths = prompter.lengths(sample.text for sample in samples)
    return [NER_BUDGET_PER_TOKEN * length + NER_BUDGET + extra for length in lengths]


def _with_fewer_shots(job: Job, sample: Sample, prompter: Prompter, context: int) -> Any:
    shots = job.shots_of(sample)
    while shots:
        shots = shots[:-1]
        ids = next(prompter.encode([job.ask(sample, shots)], job.args.system_prompt))
        if len(ids) < context:
            return ids
    ids = next(prompter.encode([job.ask(sample, [])], job.args.system_prompt))
    raise _overflow(job, [(sample.id, len(ids))], context)


def _overflow(job: Job, too_long: Sequence[tuple[str, int]], context: int) -> LocalevalError:
    shown = ", ".join(f"{sample_id} ({length})" for sample_id, length in too_long[:5])
    more = f" and {len(too_long) - 5} more" if len(too_long) > 5 else ""
    return LocalevalError(
        f"{job.name}: {len(too_long)} prompts leave no room for a reply in {context} tokens: {shown}{more}. "
        "Ask with fewer shots (few_shot_num), or let shots go where they must: --on-overflow drop-shots"
    )


def prompt_statistics(job: Job) -> dict[str, tuple[int, float, int, int]]:
    """By subset, and over all as ``all``: prompts, and the mean, least and most characters of the user's message."""
    lengths: dict[str, list[int]] = {subset: [] for subset in job.dataset.subsets}
    for sample, message in zip(job.dataset.samples, job.messages(), strict=True):
        lengths[sample.subset].append(len(message))
    if len(lengths) > 1:
        lengths["all"] = [length for subset in list(lengths.values()) for length in subset]
    return {
        name: (len(values), sum(values) / len(values), min(values), max(values)) if values else (0, 0.0, 0, 0)
        for name, values in lengths.items()
    }
