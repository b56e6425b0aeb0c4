"""Where replicas go, what they are given, and what a node is asked, without a cluster."""

from __future__ import annotations

import itertools
import os
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from safetensors.numpy import save_file

from localeval import TaskConfig
from localeval.engines import ray as ray_engine
from localeval.engines import replica
from localeval.engines.base import CantSwap, Cluster, EngineConfig, EngineDied, many
from localeval.engines.child import _Talk
from localeval.engines.cluster import connect
from localeval.engines.feed import Feed
from localeval.engines.fleet import Fleet, Node, block_size, blocks_at_once, fleet_of, gpus_of_one, shared
from localeval.engines.replay import ReplayEngine
from localeval.engines.replica import Answer, Block, Needed, Replica, look, packages
from localeval.engines.sizing import Work
from localeval.engines.stream import Stream, _Record
from localeval.engines.successive import Serving
from localeval.identity import file_digest
from localeval.model import find_model
from localeval.schema import Completion, LocalevalError, Request, RunFailed
from localeval.series import _NOT_SETTINGS
from tests.conftest import Replies
from tests.fakes import make_tokenizer

FOUR, TWO, NONE = Node("a", "one", 32, 4), Node("b", "two", 8, 2), Node("c", "three", 16, 0)


@pytest.mark.parametrize(
    ("gpus", "number", "expected", "places"),
    [
        (1, None, 6, ["one", "two"]),  # as many as the GPUs allow
        (2, None, 3, ["one", "two"]),
        (4, None, 1, ["one"]),
        (1, 3, 3, ["one", "two"]),
        (0, None, 3, ["one", "two", "three"]),  # one a node
        (0, 50, 50, ["one", "two", "three"]),
    ],
)
def test_replicas_are_placed_by_their_gpus(gpus: int, number: int | None, expected: int, places: list[str]) -> None:
    fleet = fleet_of([FOUR, TWO, NONE], gpus, Cluster("auto", number))
    assert fleet.number == expected
    assert [node.name for node in fleet.nodes] == places


@pytest.mark.parametrize(("gpus", "number"), [(8, None), (1, 7), (3, 2), (0, 57)])
def test_too_little_room_is_refused_with_what_there_is(gpus: int, number: int | None) -> None:
    with pytest.raises(LocalevalError, match=r"no room for .* it has one: 4 GPUs, 32 CPUs, two: 2 GPUs, 8 CPUs, three"):
        fleet_of([FOUR, TWO, NONE], gpus, Cluster("auto", number))
    if number is not None and gpus < 8:  # where some were there before, so many as there is room for will do
        places = {1: 6, 3: 1, 0: 56}[gpus]
        assert fleet_of([FOUR, TWO, NONE], gpus, Cluster("auto", number, fewer=True)).number == places


def test_a_replica_takes_the_gpus_of_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EngineConfig(Path("m"), 10, engine_args={"tensor_parallel_size": 4, "pipeline_parallel_size": 2})
    there = [FOUR, NONE]
    assert gpus_of_one("replay", config, there) == 0
    assert gpus_of_one("vllm", config, there) == 0  # a CPU build
    monkeypatch.setattr("localeval.engines.fleet.runs_on_cpu", lambda: False)
    assert gpus_of_one("vllm", config, there) == 8
    plain = EngineConfig(Path("m"), 10)
    assert gpus_of_one("vllm", plain, there) == 1
    assert gpus_of_one("transformers", plain, there) == 1
    assert gpus_of_one("transformers", plain, [NONE]) == 0
    assert gpus_of_one("transformers", EngineConfig(Path("m"), 10, engine_args={"device": "cpu"}), there) == 0
    with pytest.raises(LocalevalError, match="engine_args tensor_parallel_size is '2'"):
        gpus_of_one("vllm", EngineConfig(Path("m"), 10, engine_args={"tensor_parallel_size": "2"}), there)


def test_each_replica_is_set_up_for_its_part() -> None:
    work = Work(sequences=100, prompt_tokens=1_000, reply_tokens=500, longest_reply=30, cached={32: 90})
    each = shared(EngineConfig(Path("m"), 10, work=work), fleet_of([FOUR, TWO], 0, Cluster("auto", 3)))
    assert each.cluster is None
    assert each.work == Work(sequences=34, prompt_tokens=334, reply_tokens=167, longest_reply=30, cached={32: 30})
    assert each.beside == 2  # 3 on two nodes


def test_blocks_are_small_for_little_work_and_large_for_many_replicas() -> None:
    assert block_size(replicas=2, requests=40) == 2  # 16 blocks or more for each
    assert block_size(replicas=8, requests=152_000) == 32
    assert block_size(replicas=1_000, requests=10**9) == 500
    assert block_size(replicas=4, requests=0) == 32  # not known
    assert [blocks_at_once(replicas) for replicas in (1, 8, 128, 1_000)] == [64, 64, 32, 8]


def test_the_config_knows_the_cluster() -> None:
    asked: dict[str, Any] = {"model": "m", "datasets": ["milu"]}
    assert TaskConfig(**asked).cluster is None
    assert TaskConfig(**asked, replicas=3).cluster == "auto"
    assert TaskConfig(**asked, ray=True).cluster == "auto"
    assert TaskConfig(**asked, ray="head:6379", replicas=3).cluster == "head:6379"
    assert {"ray", "replicas"} <= _NOT_SETTINGS
    refused: list[tuple[dict[str, Any], str]] = [
        ({"ray": "ray://head:10001"}, "host:port"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 2, "noise": 3}, "ray and noise exclude each other"),
    ]
    for wrong, why in refused:
        with pytest.raises(LocalevalError, match=why):
            TaskConfig(**asked, **wrong)


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LocalevalError, match=r"pip install 'localeval\[ray\]'"):
        many("vllm")


def test_an_address_where_nobody_answers_is_said_at_once() -> None:
    start = time.monotonic()
    for address in ("127.0.0.1:1", "nowhere", "[::1]:1", "127.0.0.1:99999"):
        with pytest.raises(LocalevalError, match="nobody answers there"):
            connect(Cluster(address))
    assert time.monotonic() - start < 20


# --- a node ---


def test_a_node_says_what_it_lacks(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text(name)
    needed = Needed({file: file_digest(file) for file in tmp_path.iterdir()}, packages())
    assert look(needed) == []
    (tmp_path / "config.json").write_text("other")
    (tmp_path / "model.safetensors").unlink()
    lacks = look(Needed(needed.files, {**needed.packages, "localeval": "0.0.1", "nothing": "1"}))
    assert lacks == [
        f"localeval {packages()['localeval']}, and 0.0.1 where this runs",
        "nothing is missing, and 1 where this runs",
        f"1 of 2 files are missing, the first {tmp_path / 'model.safetensors'}",
        f"{tmp_path / 'config.json'} is another file than where this runs",
    ]


# --- a feed ---


def test_a_feed_never_lets_an_engine_wait_that_has_work() -> None:
    feed = Feed()
    feed.put(Request("d", "default:0", (), 1, key="0"))
    feed.pause()
    taken = iter(feed)
    first = next(taken)
    assert first is not None
    assert first.key == "0"
    assert next(taken) is None  # it has one to go on with
    assert next(taken) is None
    feed.answered()
    threading.Timer(0.1, feed.put, [Request("d", "default:1", (), 1, key="1")]).start()
    second = next(taken)  # it has none: this waits
    assert second is not None
    assert second.key == "1"
    # Without a pause it waits for the next one, however long that takes: what an engine sees is always the same.
    threading.Timer(0.1, feed.put, [Request("d", "default:2", (), 1, key="2")]).start()
    third = next(taken)
    assert third is not None
    assert third.key == "2"
    feed.end()
    assert list(taken) == []


class Parent:
    """A parent that has 32 requests, then 64, and then none for now; it sees what the child says."""

    def __init__(self) -> None:
        self.left, self.asked = [request_list(32), request_list(64)], 0

    def send(self, what: str, value: Any) -> None:
        pass

    def receive(self) -> tuple[str, Any]:
        self.asked += 1
        return "requests", (self.left.pop(0) if self.left else [], self.asked < 100)


def request_list(count: int) -> list[Request]:
    return [Request("d", f"default:{n}", (), 1) for n in range(count)]


def test_an_engine_goes_on_when_its_parent_has_no_more_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of the requests came as one full hand: what followed them was nothing."""
    talk = object.__new__(_Talk)
    parent = Parent()
    monkeypatch.setattr(_Talk, "send", lambda _, what, value: parent.send(what, value))
    monkeypatch.setattr(_Talk, "receive", lambda _: parent.receive())
    feed = talk.requests()
    taken = iter(feed)
    found: list[Request | None] = []

    def take() -> None:
        while len([one for one in found if one is not None]) < 96 or found[-1] is not None:
            found.append(next(taken))

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert len([one for one in found if one is not None]) == 96
    for _ in range(96):
        feed.answered()
    assert list(taken) == []  # the end comes too


# --- a replica, in this process ---


class Engines:
    """In place of Successive: replies from a file, engines that die, configs that are refused."""

    def __init__(self, *_: object) -> None:
        self.served: list[str] = []
        self.cautious: list[bool] = []
        self.dying = 0

    def expect(self, *_: object) -> None:
        pass

    def serve(self, kind: str, config: EngineConfig) -> tuple[ReplayEngine, Serving]:
        self.served.append(config.folder.name)
        self.cautious.append(config.cautious)
        if config.folder.name == "bad":
            raise LocalevalError("bad: no such file")
        return (Dying(config.folder) if self.dying else ReplayEngine(config.folder)), Serving("started", 1.0)

    def close(self) -> None:
        self.dying -= 1


class Dying(ReplayEngine):
    """Answers one request, and dies."""

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        for reply in super().generate(requests):
            yield reply
            raise EngineDied("was killed (signal 9)")


def ask(one: Replica, *blocks: Block) -> list[Answer]:
    """The answers to blocks that come at once."""
    found: list[Answer] = []

    def call(block: Block) -> None:
        table = one(pyarrow.table({"block": [pickle.dumps(block)]}))
        found.extend(pickle.loads(each) for each in table["answer"].to_pylist())

    threads = [threading.Thread(target=call, args=(block,)) for block in blocks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return sorted(found, key=lambda answer: answer.number)


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Replica:
    monkeypatch.setattr(replica, "Successive", Engines)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("LOCALEVAL_SAID", "no")
    return Replica("replay", False, {"LOCALEVAL_SAID": "yes"})


def engines_of(one: Replica) -> Engines:
    engines = one._engines
    assert isinstance(engines, Engines)
    return engines


def requests(*numbers: int) -> tuple[Request, ...]:
    return tuple(Request("d", f"default:{n}", (), 0, key=f"key {n}") for n in numbers)


@pytest.fixture
def config(replies: Replies) -> EngineConfig:
    return EngineConfig(replies({f"default:{n}": f"reply {n}" for n in range(9)}), 0)


def test_blocks_from_several_threads_get_their_own_replies(one: Replica, config: EngineConfig) -> None:
    blocks = [Block(0, config), *(Block(n, config, requests(n, 8 - n, n + 1)) for n in range(1, 8))]
    answers = ask(one, *blocks, Block(9, config, requests(3, 5)))  # given out again, while it may still be asked
    assert answers[0].serving == Serving("started", 1.0)
    assert answers[0].settings == {"file": str(config.folder)}
    for n, answer in zip(range(1, 8), answers[1:8], strict=True):
        assert [reply.text for reply in answer.replies] == [f"reply {n}", f"reply {8 - n}", f"reply {n + 1}"]
        assert [reply.key for reply in answer.replies] == [f"key {n}", f"key {8 - n}", f"key {n + 1}"]
    assert [reply.text for reply in answers[8].replies] == ["reply 3", "reply 5"]
    assert engines_of(one).served == [config.folder.name]


def test_a_replica_takes_the_next_checkpoint_when_the_one_before_is_answered(
    one: Replica, config: EngineConfig, replies: Replies
) -> None:
    other = EngineConfig(replies({"default:1": "other"}, "other.jsonl"), 0)
    numbers = itertools.count()
    for _ in range(5):
        for each, text in ((config, "reply 1"), (other, "other")):
            answers = ask(one, *(Block(next(numbers), each, requests(1)) for _ in range(4)))
            assert [answer.replies[0].text for answer in answers] == [text] * 4
    # One that was given out a second time, for a checkpoint that is done with, brings no engine back to it.
    served = list(engines_of(one).served)
    assert ask(one, Block(1, config, requests(1)))[0].replies == ()
    assert engines_of(one).served == served


def test_an_engine_that_dies_is_started_again_and_asked_again(one: Replica, config: EngineConfig) -> None:
    engines_of(one).dying = 2
    answers = ask(one, Block(0, config, requests(0, 1, 2)), Block(1, config, requests(3, 4, 5)))
    assert [[reply.text for reply in answer.replies] for answer in answers] == [
        ["reply 0", "reply 1", "reply 2"],
        ["reply 3", "reply 4", "reply 5"],
    ]
    assert {answer.engine[2] for answer in answers} == {2}
    assert engines_of(one).served == [config.folder.name] * 3
    assert engines_of(one).cautious == [False, True, True]


def test_a_replica_is_as_cautious_as_it_is_asked_to_be(one: Replica, config: EngineConfig) -> None:
    ask(one, Block(0, replace(config, cautious=True)))
    assert engines_of(one).cautious == [True]


def test_an_engine_that_dies_again_and_again_is_given_up(one: Replica, config: EngineConfig) -> None:
    engines_of(one).dying = 99
    (answer,) = ask(one, Block(0, config, requests(0, 1, 2, 3, 4, 5)))
    assert os.environ["LOCALEVAL_SAID"] == "yes"
    assert "OMP_NUM_THREADS" not in os.environ
    assert answer.failure == ("RunFailed", "was killed (signal 9)")
    assert len(engines_of(one).served) == 1 + replica.MOST_DEATHS


def test_what_keeps_an_engine_from_starting_is_said_to_every_block_and_tried_once(
    one: Replica, config: EngineConfig
) -> None:
    answers = ask(one, *(Block(n, EngineConfig(Path("bad"), 0), requests(n)) for n in range(4)))
    assert {answer.failure for answer in answers} == {("LocalevalError", "bad: no such file")}
    assert {answer.node for answer in answers} == {replica.node_name()}
    assert engines_of(one).served == ["bad"]
    assert ask(one, Block(9, config, requests(1)))[0].replies[0].text == "reply 1"


# --- what the driver makes of answers ---


class Echo(Stream):
    """A stream whose blocks are answered at once, as ``answer`` says."""

    def __init__(self, answer: Callable[[Block], list[Answer]]) -> None:
        self.fleet = Fleet(2, 0, (FOUR,))
        self._answers, self._numbers, self._first = queue.Queue(), itertools.count(), 0
        self._config, self._record, self._block, self._held = EngineConfig(Path("m"), 1), _Record(), 3, 2
        self._answer = answer
        self.most = 0

    def _put(self, items: list[bytes | None]) -> None:
        for item in items:
            assert item is not None
            for answer in self._answer(pickle.loads(item)):
                self._answers.put(answer)
        self.most = max(self.most, self._answers.qsize())


def echoed(block: Block, **changes: Any) -> Answer:
    replies = tuple(Completion(each.sample_id, "", "stop", key=each.key) for each in block.requests)
    return replace(Answer(block.number, ("one", 1, 0), replies), **changes)


def test_each_row_is_taken_once_whoever_answers_and_how_often() -> None:
    twice = Echo(lambda block: [echoed(block), echoed(block)])
    assert [reply.key for reply in twice.generate(requests(*range(20)))] == [f"key {n}" for n in range(20)]
    assert twice.most <= 2 * 2 * 2  # no more blocks are out than the replicas hold
    assert [reply.key for reply in twice.generate(requests(1, 2))] == ["key 1", "key 2"]


def test_what_a_reply_leads_to_goes_into_a_block_of_its_own() -> None:
    """None says that nothing is there now: what is there is handed over, and the stream goes on until its end."""
    blocks: list[int] = []

    def answer(block: Block) -> list[Answer]:
        blocks.append(len(block.requests))
        return [echoed(block)]

    out, replied = 0, list[str]()

    def asked() -> Iterator[Request | None]:
        nonlocal out
        for request in requests(*range(7)):
            out += 1
            yield request
        while out:
            yield None
        out += 1
        yield from requests(8)

    for reply in Echo(answer).generate(asked()):
        out -= 1
        replied.append(reply.key)
    assert replied == [f"key {n}" for n in (0, 1, 2, 3, 4, 5, 6, 8)]
    assert blocks == [3, 3, 1, 1]


def test_an_answer_with_other_rows_is_an_error() -> None:
    short = Echo(lambda block: [echoed(block, replies=echoed(block).replies[1:])])
    with pytest.raises(RunFailed, match="a replica on one has answered 2 requests with other keys than were asked"):
        list(short.generate(requests(*range(20))))


def test_a_failure_names_the_node_and_ends_the_run() -> None:
    failing = Echo(lambda block: [echoed(block, replies=(), failure=("RunFailed", "no memory"))])
    with pytest.raises(RunFailed, match="a replica on one: no memory"):
        list(failing.generate(requests(1)))
    # What is said of a checkpoint that is done with ends nothing.
    old = Echo(lambda block: [echoed(block, number=-1, failure=("RunFailed", "no memory")), echoed(block)])
    assert len(list(old.generate(requests(1)))) == 1


# --- one checkpoint after another ---


class FakeStream:
    """Takes every checkpoint."""

    def __init__(self, kind: str, batch_invariant: bool, fleet: Fleet) -> None:
        self.fleet, self.alive, self.prepared = fleet, True, list[str]()

    def prepare(self, config: EngineConfig, requests: int) -> None:
        self.prepared.append(config.folder.name)


def test_replicas_take_checkpoint_after_checkpoint_until_a_node_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [FOUR, TWO]
    for name, value in {
        "connect": lambda _: None,
        "nodes": lambda: list(there),
        "needed_of": lambda *_: None,
        "check_nodes": lambda *_: None,
        "gpus_of_one": lambda _, config, __: config.engine_args.get("tensor_parallel_size", 1),
        "Stream": FakeStream,
    }.items():
        monkeypatch.setattr(ray_engine, name, value)
    config = EngineConfig(Path("a"), 10, cluster=Cluster("head:6379"))
    engine = ray_engine.RayEngine("vllm", config)
    stream = engine._stream
    assert isinstance(stream, FakeStream)
    assert stream.fleet.number == 6
    there.append(Node("d", "four", 32, 4))  # one that joins changes nothing
    engine.swap(replace(config, folder=Path("b")))
    assert stream.prepared == ["a", "b"]
    with pytest.raises(CantSwap, match="another number of GPUs"):
        engine.swap(replace(config, engine_args={"tensor_parallel_size": 2}))
    there[:] = [TWO]
    with pytest.raises(CantSwap, match="one has gone"):
        engine.swap(replace(config, folder=Path("c")))
    there[:] = [FOUR, TWO]
    stream.alive = False
    with pytest.raises(CantSwap, match="Ray has ended the stream"):
        engine.swap(replace(config, folder=Path("c")))
    assert stream.prepared == ["a", "b"]


def test_data_parallelism_inside_one_engine_is_refused(tmp_path: Path, mcq_dataset: Path) -> None:
    model = make_tokenizer(tmp_path / "model")
    (model / "config.json").write_text('{"model_type": "llama"}')
    save_file({"a": np.zeros(1, np.float32)}, model / "model.safetensors")
    config = TaskConfig(model=str(model), datasets=[str(mcq_dataset)], engine_args={"data_parallel_size": 2})
    with pytest.raises(LocalevalError, match="use --replicas N"):
        find_model(config, str(model))
