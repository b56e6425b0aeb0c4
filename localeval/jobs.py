"""One dataset, asked in one way: its samples, how they are asked, what a reply may be, and how it is judged.

Knows nothing about engines, tokenizers, nor about where replies are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localeval.config import DatasetArgs, TaskConfig
from localeval.datasets.rows import Dataset, load_dataset
from localeval.datasets.spec import INFORMATIVE, SAMPLES, DatasetSpec, check_template, find_spec, sampled_names
from localeval.identity import digest_of
from localeval.nearest import nearest
from localeval.progress import warn
from localeval.reply import Tags
from localeval.schema import Completion, Constraint, LocalevalError, Mode, Sample, Score, title_of
from localeval.tasks import likelihood
from localeval.tasks.mcq import parse as mcq_parse
from localeval.tasks.mcq import pattern as mcq_pattern
from localeval.tasks.mcq import task as mcq
from localeval.tasks.mcq.letters import letters_of
from localeval.tasks.ner import parse as ner_parse
from localeval.tasks.ner import task as ner
from localeval.templates import Templates

GENERATED = ("generate", "constrained")
"""The modes whose answer is a reply; logprob and cloze look at probabilities."""


@dataclass(frozen=True, slots=True)
class Job:
    """One dataset of a run, in one mode."""

    dataset: Dataset
    args: DatasetArgs
    templates: Templates
    shots: int
    mode: Mode
    subset_prompts: Mapping[str, str] = field(default_factory=dict)
    """Of those subsets that are asked in words of their own."""
    entity_types: Mapping[str, tuple[ner.EntityType, ...]] = field(default_factory=dict)
    """By subset."""
    read_lists: bool = False
    """Whether entity replies in the form of lists are read, too."""

    @property
    def name(self) -> str:
        return self.dataset.spec.name

    @property
    def task(self) -> str:
        return self.dataset.spec.task

    @property
    def title(self) -> str:
        """The dataset's name, with the mode where it is not the usual one."""
        return title_of(self.name, self.mode)

    @property
    def labels(self) -> list[str]:
        """The entity labels of the subsets that are asked."""
        return list(dict.fromkeys(kind.label for kinds in self.entity_types.values() for kind in kinds))

    @property
    def generated(self) -> bool:
        """Whether the answer is a reply that is read, and not the probabilities of options."""
        return self.mode in GENERATED

    @property
    def answer_pattern(self) -> str:
        """The pattern that reads the replies; empty if there is none, or if a grammar gives them a form of its own."""
        return self.dataset.spec.answer_pattern if self.mode == "generate" else ""

    @property
    def can_force(self) -> bool:
        """Whether an unread reply can be asked once more, for a letter."""
        return self.task == "mcq" and self.generated

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
        if self.mode == "cloze":
            return likelihood.ask_cloze(sample, shots, self.templates)
        own = self.subset_prompts.get(sample.subset)
        templates = replace(self.templates, prompt=own) if own else self.templates
        if self.task == "mcq":
            return mcq.ask(sample, shots, templates)
        return ner.ask(sample, shots, templates, self.entity_types[sample.subset])

    def constraint(self, sample: Sample, thinking: str | None) -> Constraint | None:
        """What the reply may be. thinking: as in ``Prompter``; where it is ``on``, reasoning is left free.

        Raises LocalevalError for a sample that no grammar can be made of.
        """
        if self.mode != "constrained":
            return None
        try:
            if self.task == "mcq":
                return mcq.constraint(sample, thinking == "on")
            return ner.constraint(sample, self.dataset.spec.tags_of(sample.subset), thinking == "on")
        except ValueError as error:
            raise LocalevalError(f"{self.name}, {sample.id}: can't be constrained: {error}") from error

    def judge(
        self,
        sample: Sample,
        reply: Completion,
        thinking: str | None,
        reasoning_opened: bool,
        reasoning_tags: Sequence[Tags] = (),
    ) -> Score:
        """Reads a reply and scores the reading. Raises LocalevalError for one that lacks what its mode needs.

        thinking, reasoning_opened, reasoning_tags: of the model, as in ``Prompter``.
        """
        if not self.generated:
            return self._judge_likelihood(sample, reply)
        if self.task == "mcq":
            reasoning = (reasoning_opened, reasoning_tags)
            answer = (
                mcq_pattern.read(self.answer_pattern, reply.text, sample.choices, *reasoning)
                if self.answer_pattern
                else mcq_parse.read(reply.text, sample.choices, reply.finish_reason, *reasoning)
            )
            score = mcq.score(sample, answer, reply.finish_reason)
        else:
            entities = self.dataset.spec.tags_of(sample.subset)
            reading = ner_parse.read(
                reply.text,
                sample.tokens,
                entities,
                reply.finish_reason,
                reasoning_opened,
                reasoning_tags,
                lists=self.read_lists,
            )
            score = ner.score(sample, reading, entities, reply.finish_reason)
        constraint = self.constraint(sample, thinking)
        if constraint is None or constraint.accepts(reply.text):
            return score
        return replace(score, notes={**score.notes, "constraint_violations": 1})

    def _judge_likelihood(self, sample: Sample, reply: Completion) -> Score:
        try:
            found = reply.continuations or {}
            if self.mode == "cloze":
                return likelihood.score_texts(sample, likelihood.text_logprobs(sample.choices, found))
            letters = letters_of(sample.choices)
            return likelihood.score_letters(sample, likelihood.letter_logprobs(letters, found))
        except ValueError as error:
            raise LocalevalError(f"{self.title}, {sample.id}: {error} in its row of continuations") from error

    def with_forced(self, sample: Sample, score: Score, answer: Completion) -> Score:
        """The score of an unread reply with its forced answer. Raises LocalevalError for one that lacks a letter."""
        try:
            found = likelihood.letter_logprobs(letters_of(sample.choices), answer.continuations or {})
        except ValueError as error:
            raise LocalevalError(f"{self.title}, {sample.id}: {error} in its forced answer") from error
        return likelihood.with_forced(score, found)

    def message(self, sample: Sample) -> str:
        """The user's message, with the sample's own shots."""
        return self.ask(sample, self.shots_of(sample))

    def messages(self) -> Iterator[str]:
        """Every sample's message, in order; each built as it is taken, for all together are as large as the data."""
        return map(self.message, self.dataset.samples)


def right_reply(spec: DatasetSpec, sample: Sample) -> str:
    """The reply that is exactly right, in the form that is asked for: ``ANSWER: B``, or the tagged sentence."""
    if spec.task == "mcq":
        return f"{likelihood.ANSWER_START} {sample.gold[0]}"
    return ner.target(sample, spec.tags_of(sample.subset))


def load_jobs(config: TaskConfig) -> list[Job]:
    """Reads and checks the datasets of a config; one job a dataset and mode.

    Raises LocalevalError before any model is looked at.
    """
    specs = [find_spec(name) for name in config.datasets]
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        raise LocalevalError(f"two datasets have one name: {', '.join(names)}; a YAML file can say another: name: ...")
    for name in config.dataset_args:
        if name not in names:
            raise LocalevalError(
                f"dataset_args speaks of {name!r}, which is not among the datasets: "
                f"{', '.join(names)}{nearest(name, names)}"
            )
    if config.constrain and "generate" not in config.mcq and all(spec.task == "mcq" for spec in specs):
        warn(f"--constrain has no effect with --mcq {','.join(config.mcq)}: nothing is generated")
    if config.read and not any(spec.task == "ner" for spec in specs):
        warn(f"--read {config.read} has no effect: none of the datasets asks for entities")
    if config.mcq != ["generate"] and not any(spec.task == "mcq" for spec in specs):
        warn(f"--mcq {','.join(config.mcq)} has no effect: none of the datasets is multiple choice")
    jobs = [job for spec in specs for job in _load_modes(config, spec)]
    if config.force_answer and not any(job.can_force for job in jobs):
        warn("--force-answer has no effect: none of the datasets is multiple choice that is answered by a reply")
    return jobs


def _load_modes(config: TaskConfig, spec: DatasetSpec) -> list[Job]:
    reply: Mode = "constrained" if config.constrain else "generate"
    ways: list[Mode] = [*config.mcq] if spec.task == "mcq" else ["generate"]
    first = load_job(config, spec)
    return [replace(first, mode=reply if way == "generate" else way) for way in ways]


def config_of_mode(mode: str) -> dict[str, Any]:
    """The fields of a config that ask for one mode alone."""
    return {"mcq": ["generate" if mode in GENERATED else mode], "constrain": mode == "constrained"}


def load_job(config: TaskConfig, spec: DatasetSpec) -> Job:
    """Reads and checks one dataset as the config wants it."""
    args = config.dataset_args.get(spec.name, DatasetArgs())
    shots = spec.shots if args.few_shot_num is None else args.few_shot_num
    if config.samples and not (SAMPLES / spec.name).is_dir():
        raise LocalevalError(f"no samples ship for {spec.name}; they do for {', '.join(sampled_names())}")
    dataset = load_dataset(
        spec,
        dataset_dir=str(SAMPLES) if config.samples else config.dataset_dir,
        local_path=args.local_path,
        bundle=config.bundle_folder,
        subsets=args.subset_list,
        limit=config.limit,
        shots=shots,
    )
    templates = _templates(spec, args)
    if shots and not (templates.shot and templates.shots_prompt):
        raise LocalevalError(
            f"{spec.name}: {shots} shots are asked for, but {spec.source} has no shot and shots_prompt"
        )
    types = {
        subset: tuple(ner.EntityType(each.label, each.tag, each.description) for each in spec.entities_of(subset))
        for subset in dataset.subsets
    }
    own = spec.subset_prompts if args.prompt_template is None else {}
    _refuse_taken(config, types)
    lists = spec.task == "ner" and config.read == "lists"
    return Job(dataset, args, templates, shots, "generate", own, types, lists)


def _refuse_taken(config: TaskConfig, types: Mapping[str, Sequence[ner.EntityType]]) -> None:
    names = {name.lower() for kinds in types.values() for kind in kinds for name in (kind.tag, kind.label)}
    for tag in (tag for pair in config.reasoning_tags for tag in pair):
        if tag.strip("<>[]/").lower() in {*names, "response"}:
            raise LocalevalError(f"--reasoning-tags: {tag} is a tag of the answer; name the tags of the reasoning")


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
            "asked": asked_digest(job, config),
            "mode": job.mode,
            "cloze": job.templates.cloze if job.mode == "cloze" else None,
            "generation": generation.model_dump(mode="json") if job.generated else None,
            "seed": config.seed if job.generated and generation.sampling(config.seed).temperature > 0 else None,
            "chat_template_args": config.chat_template_args,
            "thinking": config.thinking,
            "stop_at_end_tag": config.stop_at_end_tag,
            "on_overflow": config.on_overflow,
            "logprobs": config.logprobs,
            "engine": dict(engine),
            **({"read": config.read} if job.read_lists else {}),
        }
    )


def asked_parts(job: Job, config: TaskConfig) -> dict[str, Any]:
    """What is asked, in whatever mode, part by part: equal where runs compare; what is long as a digest."""
    templates = job.templates
    prompts = [templates.prompt, templates.shot, templates.shots_prompt, job.args.system_prompt]
    return {
        "dataset": digest_of(_asked_of(job.dataset.spec))[:16],
        "prompts": digest_of([*prompts, *([dict(job.subset_prompts)] if job.subset_prompts else [])])[:16],
        "shots": job.shots,
        "subsets": list(job.dataset.subsets),
        "samples": config.samples,
        "limit": config.limit,
    }


def _asked_of(spec: DatasetSpec) -> dict[str, Any]:
    """Those keys of a definition that say what is asked."""
    asked = spec.model_dump(mode="json", exclude={*INFORMATIVE, "source", "cloze"})
    own = {
        subset: {key: value for key, value in keys.items() if key != "files"}
        for subset, keys in asked.pop("by_subset").items()
    }
    return {**asked, "by_subset": own} if own else asked  # a definition without it is what it was before there was one


def asked_digest(job: Job, config: TaskConfig) -> str:
    """``asked_parts`` in one."""
    return digest_of(asked_parts(job, config))


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
