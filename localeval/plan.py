"""What will be asked: a job and a model's tokenizer -> prompts, budgets, requests.

Knows nothing about engines, nor about where replies are kept.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from localeval.config import TaskConfig
from localeval.grammar import Choice
from localeval.identity import digest_of, request_key
from localeval.jobs import Job
from localeval.progress import LATE, track
from localeval.prompts import Prompter, TemplateRefuses
from localeval.schema import Constraint, LocalevalError, Request, Sample, Sampling
from localeval.tasks import likelihood
from localeval.tasks.mcq.letters import letters_of
from localeval.tasks.ner import task as ner

MCQ_BUDGET = 512
NER_BUDGET = 64
NER_BUDGET_PER_TOKEN = 3
THINKING_BUDGET = 8192

Continuations = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """A job's requests, one a sample and in its order.

    fewer_shots: sample id -> how many examples its prompt still has, where it had to lose some to fit.
    answers: for each sample what its forced answer may be; None where no answer is forced (``forcing.py``).
    """

    job: Job
    requests: tuple[Request, ...]
    fewer_shots: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    answers: tuple[Continuations, ...] | None = None

    def messages(self) -> Iterator[str]:
        """Every sample's message as it is asked, in order."""
        for sample in self.job.dataset.samples:
            yield self.job.ask(sample, self.job.shots_of(sample)[: self.fewer_shots.get(sample.id)])


def plan_replay(job: Job, file_digest: str) -> Plan:
    """Requests without prompts: replay needs no tokenizer."""
    for sample in job.dataset.samples:
        job.constraint(sample, None)  # what no grammar can be made of is refused before anything is written
    return Plan(
        job,
        tuple(
            _keyed(job, sample, Request(job.name, sample.id, (), max_tokens=0), file_digest, "replay")
            for sample in job.dataset.samples
        ),
    )


def plan_requests(
    job: Job, config: TaskConfig, prompter: Prompter, context: int | None, vocabulary: int | None = None
) -> Plan:
    """Builds and tokenises every prompt, and gives each its budget; the requests have no keys yet (``keyed``).

    context: the most tokens that the model can take. vocabulary: how many it knows. Raises LocalevalError that names
    the prompts that leave no room for a reply, unless shots may be dropped, and one with a token that the model lacks.
    """
    samples = job.dataset.samples
    prompts = _prompts(job, prompter)
    warnings: list[str] = []
    continuations = _continuations(job, prompter, warnings)
    if vocabulary is not None and prompter.vocabulary > vocabulary:
        _refuse_unknown_tokens(job, prompter, vocabulary, zip(samples, prompts, continuations, strict=True))
    constraints = [job.constraint(sample, prompter.thinking) for sample in samples]
    _refuse_special_texts(job, prompter)
    allowed = _usual_tokens(prompter, {one for one in constraints if isinstance(one, Choice)})
    budgets = _budgets(job, config, prompter, constraints)
    fewer: dict[str, int] = {}
    if context is not None:
        rooms = [context - _longest(asked) for asked in continuations]
        too_long = [i for i, (ids, room) in enumerate(zip(prompts, rooms, strict=True)) if len(ids) >= room]
        if too_long and config.on_overflow == "error":
            raise _overflow(job, [(samples[i].id, len(prompts[i])) for i in too_long], context)
        for index in too_long:
            prompts[index], fewer[samples[index].id] = _with_fewer_shots(job, samples[index], prompter, rooms[index])
        if still := [(samples[i].id, len(prompts[i])) for i in too_long if len(prompts[i]) >= rooms[i]]:
            raise _overflow(job, still, context)
        budgets = [min(budget, context - len(ids)) for budget, ids in zip(budgets, prompts, strict=True)]
    sampling = config.generation_config.sampling(config.seed) if job.generated else Sampling()
    requests = tuple(
        Request(
            job.name,
            sample.id,
            ids,
            budget,
            _stop(job, config, prompter, sample),
            sampling,
            config.logprobs if job.generated else 0,
            constraint,
            allowed.get(constraint, ()),
            asked,
            copies=job.task == "ner" and job.generated,
            keeps_special=job.mode == "generate" and prompter.reasons_in_special_tokens,
        )
        for sample, ids, budget, constraint, asked in zip(
            samples, prompts, budgets, constraints, continuations, strict=True
        )
    )
    return Plan(job, requests, fewer, tuple(warnings))


def _prompts(job: Job, prompter: Prompter) -> list[array[int]]:
    try:
        made = prompter.encode(job.messages(), job.args.system_prompt, reply_start(job))
        return list(track(made, len(job.dataset.samples), f"{job.title}: prompts", LATE))
    except TemplateRefuses as error:
        where = job.title if error.place is None else f"{job.title}, {job.dataset.samples[error.place].id}"
        raise LocalevalError(f"{where}: {error}") from error


def keyed(plan: Plan, checkpoint: str, engine: Mapping[str, Any]) -> Plan:
    """The same requests, each with its key for a checkpoint and an engine."""
    digest = digest_of(dict(engine))
    pairs = zip(plan.job.dataset.samples, plan.requests, strict=True)
    return replace(plan, requests=tuple(_keyed(plan.job, *pair, checkpoint, digest) for pair in pairs))


def _keyed(job: Job, sample: Sample, request: Request, checkpoint: str, engine: str) -> Request:
    return replace(request, key=request_key(request, checkpoint, job.dataset.data_fingerprint(sample.subset), engine))


def prompt_texts(plan: Plan, prompter: Prompter | None) -> Iterator[str]:
    """Every sample's prompt as the model is given it, in order; where there is no model, the user's message."""
    if prompter is None:
        return plan.messages()
    return prompter.rendered(plan.messages(), plan.job.args.system_prompt, reply_start(plan.job))


def reply_start(job: Job) -> str:
    """What the assistant's turn begins with, before the model goes on."""
    return likelihood.ANSWER_START if job.mode == "logprob" else ""


def _stop(job: Job, config: TaskConfig, prompter: Prompter, sample: Sample) -> tuple[str, ...]:
    if not job.generated:
        return ()
    ends = job.task == "ner" and config.stop_at_end_tag and prompter.thinking != "on"
    return tuple(dict.fromkeys([*(ner.stop_of(sample) if ends else ()), *config.generation_config.stop]))


# --- budgets ---


def _budgets(job: Job, config: TaskConfig, prompter: Prompter, constraints: Sequence[Constraint | None]) -> list[int]:
    samples = job.dataset.samples
    if not job.generated:
        return [1] * len(samples)
    if config.generation_config.max_tokens is not None:
        return [config.generation_config.max_tokens] * len(samples)
    extra = THINKING_BUDGET if prompter.thinking == "on" else 0
    if job.mode == "constrained":
        # No token is less than a byte, and one ends the reply: whatever the tokenizer, none is cut.
        return [constraint.longest + 1 + extra for constraint in constraints if constraint is not None]
    if job.task == "mcq":
        return [MCQ_BUDGET + extra] * len(samples)
    lengths = prompter.lengths(sample.text for sample in samples)
    return [NER_BUDGET_PER_TOKEN * length + NER_BUDGET + extra for length in lengths]


def _with_fewer_shots(job: Job, sample: Sample, prompter: Prompter, room: int) -> tuple[array[int], int]:
    """With as many as fit, and how many; with none where that is too long too."""
    shots: Sequence[Sample] = job.shots_of(sample)
    while True:
        shots = shots[:-1]
        ids = next(prompter.encode([job.ask(sample, shots)], job.args.system_prompt, reply_start(job)))
        if len(ids) < room or not shots:
            return ids, len(shots)


def _overflow(job: Job, too_long: Sequence[tuple[str, int]], context: int) -> LocalevalError:
    shown = ", ".join(f"{sample_id} ({length})" for sample_id, length in too_long[:5])
    more = f" and {len(too_long) - 5} more" if len(too_long) > 5 else ""
    return LocalevalError(
        f"{job.title}: {len(too_long)} prompts leave no room for a reply in {context} tokens: {shown}{more}. "
        "Ask with fewer shots (few_shot_num), or let shots go where they must: --on-overflow drop-shots"
    )


# --- tokens ---


def _refuse_unknown_tokens(
    job: Job,
    prompter: Prompter,
    vocabulary: int,
    asked: Iterable[tuple[Sample, array[int], Continuations]],
) -> None:
    """An engine looks them up where nothing is, and answers all the same, or dies."""
    for sample, ids, continuations in asked:
        unknown = [token for each in (ids, *continuations.values()) for token in each if token >= vocabulary]
        if unknown:
            raise LocalevalError(
                f"{job.title}, {sample.id}: token {unknown[0]:,} of its prompt is none of the {vocabulary:,} that the "
                f"model knows (its config.json, vocab_size); the tokenizer of {prompter.name} has "
                f"{prompter.vocabulary:,}: it is another model's, or the model was not resized for it"
            )


def _refuse_special_texts(job: Job, prompter: Prompter) -> None:
    """A grammar can't make a tokenizer spell the text of a special token: llguidance then allows that token alone."""
    if job.mode != "constrained" or job.task != "ner":
        return
    if not prompter.special_texts:
        return
    special = re.compile("|".join(map(re.escape, prompter.special_texts)))
    tags = " ".join(f"<{tag}> </{tag}>" for tag in job.dataset.spec.tags.values())
    where = {"an entity tag": tags, **{sample.id: sample.text for sample in job.dataset.samples}}
    found = {name: match[0] for name, text in where.items() if (match := special.search(text))}
    if found:
        shown = ", ".join(f"{name} holds {text!r}" for name, text in list(found.items())[:5])
        more = f" and {len(found) - 5} more do so" if len(found) > 5 else ""
        raise LocalevalError(
            f"{job.title}: {shown}{more}: special tokens of {prompter.name}, which no grammar can make it copy; ask "
            "without --constrain, or take such rows out"
        )


def _usual_tokens(prompter: Prompter, choices: Set[Choice]) -> dict[Constraint | None, tuple[int, ...]]:
    """The tokens in which the tokenizer writes a choice's answers, after a line break, and the one that ends a reply.

    A grammar knows texts: it would also let the space before the letter stand alone, a token after which a model has
    seldom met a letter. Empty where there is no such set: for a free part, or for a tokenizer that joins the break.
    """
    usual: dict[Constraint | None, tuple[int, ...]] = {}
    for choice in choices:
        found = prompter.continuations("\n", choice.texts)
        if not choice.after_reasoning and prompter.end_token_id is not None and all(found):
            tokens = {token for ids in found for token in ids or ()}
            usual[choice] = tuple(sorted(tokens | {prompter.end_token_id}))
    return usual


# --- continuations ---


def _longest(asked: Continuations) -> int:
    return max(map(len, asked.values()), default=0)


def _continuations(job: Job, prompter: Prompter, warnings: list[str]) -> list[Continuations]:
    """For each sample what its prompt may go on with; nothing where the answer is a reply."""
    samples = job.dataset.samples
    if job.mode == "cloze":
        return [_texts(job, prompter, sample) for sample in samples]
    if job.mode != "logprob":
        return [{}] * len(samples)
    return letter_continuations(samples, prompter, "--mcq logprob", warnings)


_INSTEAD = {"--mcq logprob": "ask with --mcq generate", "--force-answer": "leave it out"}


def letter_continuations(
    samples: Sequence[Sample], prompter: Prompter, option: str, warnings: list[str]
) -> list[Continuations]:
    """For each sample its letters' tokens after ``ANSWER:``, by spelling.

    option: what asks for them. Raises LocalevalError where the tokenizer can't tell the letters apart.
    """
    letters = sorted({letter for sample in samples for letter in letters_of(sample.choices)})
    tokens = _letter_tokens(prompter, letters, option, warnings)
    by_letters: dict[str, Continuations] = {}
    for sample in samples:
        own = letters_of(sample.choices)
        if own not in by_letters:
            by_letters[own] = {spelling: ids for letter in own for spelling, ids in tokens[letter].items()}
    return [by_letters[letters_of(sample.choices)] for sample in samples]


def _letter_tokens(
    prompter: Prompter, letters: Sequence[str], option: str, warnings: list[str]
) -> Mapping[str, Continuations]:
    """Each letter's spellings that are one token. Where `` A`` is more for any letter, `` A`` alone, as it is."""
    spelled = {letter: likelihood.spellings(letter) for letter in letters}
    texts = [text for texts in spelled.values() for text in texts]
    ids = dict(zip(texts, prompter.continuations(likelihood.ANSWER_START, texts), strict=True))
    written = {letter: ids[texts[0]] or () for letter, texts in spelled.items()}
    if any(not token for token in written.values()):
        raise LocalevalError(
            f"{option}: the tokenizer of {prompter.name} joins {likelihood.ANSWER_START!r} with what follows it, "
            f"so that a letter has no probability of its own; {_INSTEAD[option]}"
        )
    if len(set(written.values())) < len(written):
        raise LocalevalError(
            f"{option}: the tokenizer of {prompter.name} writes two of the letters {', '.join(letters)} in one "
            f"way, so that they can't be told apart; {_INSTEAD[option]}"
        )
    found = {letter: {spelled[letter][0]: token} for letter, token in written.items()}
    several = [letter for letter, token in written.items() if len(token) > 1]
    if several:
        warnings.append(
            f"{option}: the tokenizer writes {several[0]!r} after a space as {len(written[several[0]])} tokens, "
            "not one: each letter is scored as a sequence of its own"
        )
        return found
    for letter, (_, bare) in spelled.items():
        token = ids[bare]
        uses = sum(ids[text] == token for text in texts)
        if token is not None and len(token) == 1 and uses == 1:
            found[letter][bare] = token
    return found


def _texts(job: Job, prompter: Prompter, sample: Sample) -> Continuations:
    """The tokens of each option's text after the prompt's last line that is not empty, by letter."""
    end = re.search(r"[^\n]*\s*\Z", job.message(sample))
    letters = letters_of(sample.choices)
    found = prompter.continuations(end[0] if end else "", [likelihood.CLOZE_START + text for text in sample.choices])
    asked = {}
    for letter, ids in zip(letters, found, strict=True):
        if not ids:
            raise LocalevalError(
                f"{job.title}, {sample.id}: the tokenizer of {prompter.name} joins the end of the prompt with option "
                f"{letter}, so that its text has no probability of its own; ask with --mcq logprob"
            )
        asked[likelihood.text_name(letter)] = ids
    return asked
