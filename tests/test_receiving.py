"""Replies in any order, written and scored beside generation: each in its place, none lost, no error swallowed."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from localeval.config import load_config
from localeval.jobs import load_jobs
from localeval.plan import Plan, plan_replay
from localeval.receiving import WAITING, Receiver
from localeval.schema import Completion, RunFailed, Sample, Score, Tally
from localeval.store import RunFolder


def judge(sample: Sample, reply: Completion) -> Score:
    if reply.text == "broken":
        raise RunFailed(f"{sample.id} is broken")
    return Score(sample.id, reply.text, {"answer": Tally(1, 1, 1)})


@pytest.fixture
def plan(mcq_dataset: Path) -> Plan:
    (job,) = load_jobs(load_config({"engine": "replay:x", "datasets": [str(mcq_dataset)]}))
    return plan_replay(job, "")


@pytest.fixture
def folder(tmp_path: Path, plan: Plan) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.open({request.key for request in plan.requests})
    return folder


def replies_to(plan: Plan) -> list[Completion]:
    return [
        Completion(request.sample_id, f"said to {request.sample_id}", "stop", 10, 4, n, key=request.key)
        for n, request in enumerate(plan.requests)
    ]


def test_each_reply_finds_its_place(plan: Plan, folder: RunFolder) -> None:
    replies = replies_to(plan)
    random.Random(0).shuffle(replies)
    with Receiver([plan], [folder], [judge]) as receiver:
        for reply in replies:
            receiver.put(reply)
        receiver.finish()
        (job,) = receiver.jobs
        assert [score.sample_id for score in job.whole()] == [sample.id for sample in plan.job.dataset.samples]
        assert [score.parsed for score in job.whole()] == [f"said to {request.sample_id}" for request in plan.requests]
        assert (job.tokens.prompt, job.tokens.cached, job.tokens.output) == (50, 20, 0 + 1 + 2 + 3 + 4)
    assert list(folder.rows()) == replies  # as they came


def test_what_lies_there_is_scored_and_not_written_again(plan: Plan, folder: RunFolder) -> None:
    with Receiver([plan], [folder], [judge]) as receiver:
        for reply in replies_to(plan):
            receiver.put(reply, written=True)
    assert receiver.jobs[0].tokens.prompt == 50
    assert list(folder.rows()) == []


def test_what_is_missing_is_said(plan: Plan, folder: RunFolder) -> None:
    with Receiver([plan], [folder], [judge]) as receiver:
        for reply in replies_to(plan)[1:]:
            receiver.put(reply)
        receiver.finish()
    with pytest.raises(RunFailed, match="1 replies are missing, the first of default:0"):
        receiver.jobs[0].whole()


def test_what_goes_wrong_is_raised_where_replies_are_handed_over(plan: Plan, folder: RunFolder) -> None:
    first, second, *_ = replies_to(plan)
    broken = Completion(first.sample_id, "broken", "stop", key=first.key)

    def hand_over(more: int, wait: bool) -> None:
        with Receiver([plan], [folder], [judge]) as receiver:
            for reply in [broken, *[second] * more]:
                receiver.put(reply)
            if wait:
                receiver.finish()

    # Whoever goes on handing over is told, and never waits for a thread that takes nothing.
    for more, wait in ((0, True), (0, False), (10 * WAITING, False)):
        with pytest.raises(RunFailed, match="default:0 is broken"):
            hand_over(more, wait)


def test_another_error_is_not_replaced(plan: Plan, folder: RunFolder) -> None:
    def interrupted() -> None:
        with Receiver([plan], [folder], [judge]) as receiver:
            for reply in replies_to(plan):
                receiver.put(reply)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(list(folder.rows())) == 5  # what was handed over is kept


def test_an_engine_that_is_faster_waits(plan: Plan, folder: RunFolder) -> None:
    held = threading.Event()

    def slow(sample: Sample, reply: Completion) -> Score:
        held.wait()
        return judge(sample, reply)

    reply = replies_to(plan)[0]
    handed = 0

    def hand_over() -> None:
        nonlocal handed
        for _ in range(WAITING + 100):
            receiver.put(reply, written=True)
            handed += 1

    with Receiver([plan], [folder], [slow]) as receiver:
        thread = threading.Thread(target=hand_over)
        thread.start()
        thread.join(0.5)
        assert WAITING <= handed <= WAITING + 1  # one is being read
        held.set()
        thread.join()
    assert handed == WAITING + 100
