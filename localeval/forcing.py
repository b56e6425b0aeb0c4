"""Forced answers: the second request of a reply that can't be read, which goes on from it to a letter.

It is the first prompt, the reply so far (its reasoning closed), a line break and ``ANSWER:``; the letters'
probabilities at that place decide, as with ``--mcq logprob``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from localeval.identity import forced_key
from localeval.plan import Continuations, Plan, letter_continuations
from localeval.prompts import Prompter
from localeval.reply import closing_tag
from localeval.schema import Completion, Request
from localeval.tasks.likelihood import ANSWER_START

_LONGEST_END = "</reasoning>"
_WORD = "x"
"""A reply's end, as a tokenizer sees it: none joins a letter with the line break after it."""


def with_answers(plan: Plan, prompter: Prompter | None, context: int | None) -> Plan:
    """The same plan, with what its unread replies will be asked once more; unchanged where its job has no letters.

    prompter: None where replies are replayed. context: the most tokens that the model can take; None for any number.
    Raises LocalevalError where the tokenizer can't tell the letters apart.
    """
    if not plan.job.can_force:
        return plan
    if prompter is None:
        return replace(plan, answers=({},) * len(plan.requests))
    warnings: list[str] = []
    answers = letter_continuations(plan.job.dataset.samples, prompter, "--force-answer", warnings)
    tags = [_LONGEST_END, *(closing_tag("", True, [pair]) for pair in prompter.reasoning_tags)]
    end = max(len(_end(tag, prompter)) for tag in tags)
    requests = []
    for request, answer in zip(plan.requests, answers, strict=True):
        then = end + _longest(answer) + 1
        room = then if context is None else max(0, context - request.length)
        requests.append(replace(request, then=min(then, room)))
    return replace(plan, requests=tuple(requests), answers=tuple(answers), warnings=(*plan.warnings, *warnings))


def second_request(plan: Plan, prompter: Prompter | None, index: int, reply: Completion) -> Request:
    """Asks for the answer to an unread reply. index: of its sample.

    Where all of it would be longer than the model's context, the prompt and the end of the reply stay, and the reply's
    beginning goes; where even the prompt leaves no room for ``ANSWER:``, the prompt's beginning goes, too.
    """
    first = plan.requests[index]
    assert plan.answers is not None
    answer = plan.answers[index]
    ids: Sequence[int] = () if prompter is None else _ids(first, first.length - _longest(answer) - 1, reply, prompter)
    return Request(first.dataset, first.sample_id, ids, 1, continuations=answer, forced=True, key=forced_key(reply))


def _ids(first: Request, room: int, reply: Completion, prompter: Prompter) -> array[int]:
    """Prompt, reply and what closes it, in ``room`` tokens."""
    tag = closing_tag(reply.text, prompter.reasoning_opened, prompter.reasoning_tags)
    prompt, end = first.prompt_token_ids, _end(tag, prompter)
    said = _said(reply, prompter)
    left = max(0, room - len(prompt) - len(end))
    return array("I", [*prompt, *said[max(0, len(said) - left) :], *end])[-room:]


def _said(reply: Completion, prompter: Prompter) -> Sequence[int]:
    """The reply's own tokens, where the engine has given them, without the one that ended its turn."""
    if not reply.token_ids:
        return prompter.ids_after("\n", reply.text)
    return prompter.without_end(reply.token_ids) if reply.finish_reason == "stop" else reply.token_ids


def _end(tag: str | None, prompter: Prompter) -> Sequence[int]:
    return prompter.ids_after(_WORD, (f"\n{tag}\n" if tag else "") + f"\n{ANSWER_START}")


def _longest(answer: Continuations) -> int:
    return max(map(len, answer.values()), default=0)
