"""Requests of the driver to its replicas and back, through Ray Data's ``map_batches``.

The driver puts blocks of requests into a queue; one reading task hands them to Ray Data, which gives each to the
replica that has least to do, replaces a replica that dies, and asks it for its blocks again. Answers come back in any
order; the driver knows which are missing. Only so many blocks are on their way as the replicas can hold, whatever there
is to ask.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import queue
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localeval.engines import cluster
from localeval.engines.base import EngineConfig
from localeval.engines.cluster import gist, nodes
from localeval.engines.feed import at_hand
from localeval.engines.fleet import Fleet, block_size, blocks_at_once, gone
from localeval.engines.replica import Answer, Block, Replica
from localeval.progress import say
from localeval.schema import Completion, LocalevalError, Request, RunFailed

READY = 3600.0
"""Seconds in which the first replica must be ready."""
SILENT = 3600.0
"""Seconds without any reply after which a run is given up."""
LATE = 900.0
"""Seconds without any reply after which the last blocks are given out a second time, though no node has gone."""
TAKEN = 120.0
"""Seconds in which blocks must have been taken from this process."""
ENDING = 5.0
"""Seconds in which replicas that have nothing to do end by themselves."""
REPLACED = 3
"""Times that Ray replaces a replica whose process dies."""
_HANDED_OVER = ("VLLM_", "LOCALEVAL_", "OMP_", "NCCL_")
"""Variables that replicas have as this process has them, but for what is each node's own."""
_OF_THE_NODE = {"VLLM_HOST_IP", "VLLM_PORT"}
_FETCHED = 1.0
"""Seconds that are waited for answers that are there, before those that have come since are looked at."""
_TOGETHER = 16
"""Blocks that are put into the queue at once."""
_BEGIN = b"begin"


@dataclass(slots=True)
class _Record:
    """What answers have said of the replicas."""

    engines: set[tuple[str, int, int]] = field(default_factory=set)
    nodes: Counter[str] = field(default_factory=Counter)
    settings: Mapping[str, Any] = field(default_factory=dict)
    served: Counter[str] = field(default_factory=Counter)


class Stream:
    """One execution of a Ray dataset, as an engine: it lasts from the first checkpoint to the last."""

    def __init__(self, kind: str, batch_invariant: bool, fleet: Fleet) -> None:
        """kind: of each engine. The process is connected to a cluster."""
        import ray
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.fleet = fleet
        self.alive = True  # and can be asked for a further checkpoint
        here = ray.get_runtime_context().get_node_id()
        affinity = NodeAffinitySchedulingStrategy(here, soft=False)
        self._queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": affinity})
        self._put([_BEGIN])
        self._answers: queue.Queue[Answer | BaseException] = queue.Queue()
        self._config: EngineConfig | None = None
        self._record = _Record()
        self._numbers = itertools.count()
        self._first = 0  # of the blocks for the checkpoint that is asked now
        self._block, self._held = 1, blocks_at_once(fleet.number)
        dataset = _dataset(self._queue, here, kind, batch_invariant, fleet, self._held)
        self._refs: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._execute, args=(dataset,), daemon=True).start()
        threading.Thread(target=self._fetch, daemon=True).start()

    def _execute(self, dataset: Any) -> None:
        """Where each answer is, as it is made; at last what ended them."""
        try:
            for bundle in dataset.iter_internal_ref_bundles():
                for entry in bundle.blocks:
                    self._refs.put(entry.ref)
            self._refs.put(RunFailed("Ray has ended the stream"))
        except BaseException as error:  # noqa: BLE001  it is raised where answers are waited for
            self._refs.put(error)
        self.alive = False

    def _fetch(self) -> None:
        """Answers as they come, and at last what ended them."""
        try:
            for answer in self._fetched():
                self._answers.put(pickle.loads(answer))
        except BaseException as error:  # noqa: BLE001  as above
            self._answers.put(error)

    def _fetched(self) -> Iterator[bytes]:
        """One answer that lies on a node that has gone keeps none of the others. Raises what ended them."""
        import ray

        left: list[Any] = []
        while True:
            new = [self._refs.get()] if not left else []
            with contextlib.suppress(queue.Empty):
                while True:
                    new.append(self._refs.get_nowait())
            ended = next((each for each in new if isinstance(each, BaseException)), None)
            left += [each for each in new if each is not ended]
            there, left = ray.wait(left, num_returns=len(left), timeout=_FETCHED) if left else ([], [])
            for ref in there:
                with contextlib.suppress(ray.exceptions.RayError):  # it went with its node: its block is asked again
                    yield from ray.get(ref)["answer"].to_pylist()
            if ended is not None:
                raise ended

    def prepare(self, config: EngineConfig, requests: int) -> None:
        """Has the replicas load a checkpoint, and waits for the first. Raises what keeps it from that.

        requests: how many it will be asked, about; 0 where that is not known.
        """
        self._config, self._record, self._block = config, _Record(), block_size(self.fleet.number, requests)
        # As many as there are replicas: each that is there gets one, and loads beside the others.
        loading = [Block(next(self._numbers), config) for _ in range(self.fleet.number)]
        self._first = loading[0].number
        self._hand_over(loading)
        start = said = time.monotonic()
        while True:
            for _ in self._next():
                pass
            if self._record.engines:
                return
            now = time.monotonic()
            if now - start > READY:
                raise RunFailed(f"no replica was ready in {READY:.0f} s: {self._waiting()}")
            if now - said >= cluster.REPORTS:
                say(f"ray: no replica is ready yet: {self._waiting()}")
                said = now

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        assert self._config is not None
        source, more = iter(requests), True
        out: dict[int, Block] = {}
        heard, again = time.monotonic(), False
        while True:
            room = self.fleet.number * self._held - len(out)
            new = 0
            while more and new < room:
                taken, more = at_hand(source, self._block * min(_TOGETHER, room - new))
                blocks = [
                    Block(next(self._numbers), self._config, tuple(taken[start : start + self._block]))
                    for start in range(0, len(taken), self._block)
                ]
                self._hand_over(blocks)
                out |= {block.number: block for block in blocks}
                new += len(blocks)
                if not taken:
                    break
            if not out:
                if more:
                    continue
                return
            before = len(out)
            for answer in self._next():
                block = out.pop(answer.number, None)
                if block is not None:  # else it has been answered by another
                    _check(block, answer)
                    yield from answer.replies
            silent = time.monotonic() - heard
            if len(out) < before:
                heard, again = time.monotonic(), False
            elif silent > SILENT:
                raise RunFailed(f"no reply in {SILENT:.0f} s; {len(out)} blocks are out. {self._waiting()}")
            elif new < room and not again and ((lost := self._gone()) or silent > LATE):
                # A node that has gone keeps its blocks, and Ray waits for it: of two answers the first is taken.
                say(f"ray: no reply for {silent:.0f} s: the last {len(out)} blocks are asked again{lost}")
                self._hand_over(list(out.values()))
                again = True

    def _hand_over(self, blocks: Sequence[Block]) -> None:
        for start in range(0, len(blocks), _TOGETHER):
            self._put([pickle.dumps(block) for block in blocks[start : start + _TOGETHER]])

    def _put(self, items: list[bytes | None]) -> None:
        """Raises RunFailed where the queue's process does not take them."""
        import ray

        try:
            ray.get(self._queue.actor.put_nowait_batch.remote(items), timeout=TAKEN)
        except ray.exceptions.RayError as error:
            raise RunFailed(f"Ray does not take what is asked: {gist(error)}") from error

    def _next(self) -> Iterator[Answer]:
        """The answers that are there; waits for the first. Raises what a replica has failed at, or Ray."""
        with contextlib.suppress(queue.Empty):
            found = self._answers.get(timeout=cluster.REPORTS)
            while True:
                if not isinstance(found, Answer):
                    raise found if isinstance(found, RunFailed) else RunFailed(f"Ray: {gist(found)}") from found
                if found.number >= self._first:  # else it is of a checkpoint that is done with
                    self._note(found)
                    yield found
                found = self._answers.get_nowait()

    def _note(self, answer: Answer) -> None:
        if answer.failure is not None:
            kind, message = answer.failure
            raise {"LocalevalError": LocalevalError, "RunFailed": RunFailed}[kind](
                f"a replica on {answer.node}: {message}"
            )
        record = self._record
        if answer.serving is not None:
            record.served[answer.serving.how] += 1
            record.settings = record.settings or answer.settings
            if answer.serving.because:
                say(f"ray: a new engine on {answer.node}: {answer.serving.because}")
        if answer.engine not in record.engines:
            record.engines.add(answer.engine)
            record.nodes[answer.node] += 1
            ready = len(record.engines)
            if ready > self.fleet.number:
                say(f"ray: an engine on {answer.node} is in place of one that died, whose blocks were asked again")
            elif ready in (1, self.fleet.number):
                say(f"ray: {ready} of {self.fleet.number} replicas ready ({answer.node})")

    def _gone(self) -> str:
        """Names the nodes that are not there any more; empty where all are."""
        lost = gone(self.fleet, nodes())
        return f"; gone is {', '.join(lost)}" if lost else ""

    def _waiting(self) -> str:
        """Who is there, for a message about nothing that comes."""
        import ray

        free = ray.available_resources()
        return (
            f"{self.fleet.number} replicas of {self.fleet.gpus} GPUs are wanted; free are {free.get('GPU', 0):g} GPUs, "
            f"{free.get('CPU', 0):g} CPUs{self._gone()}. What they print is in /tmp/ray/session_latest/logs of a node"
        )

    def settings(self) -> Mapping[str, Any]:
        import ray

        record = self._record
        return {
            **record.settings,
            "replicas": {
                "number": self.fleet.number,
                "gpus_each": self.fleet.gpus,
                "engines": dict(record.nodes),
                "served": dict(record.served),
                "died": max(0, len(record.engines) - self.fleet.number),
                "ray": ray.__version__,
            },
        }

    def close(self) -> None:
        """Has the replicas end that have nothing to do; the others end with the connection."""
        with contextlib.suppress(RunFailed):  # the cluster may be gone
            self._put([None])
        end = time.monotonic() + ENDING
        while self.alive and time.monotonic() < end:
            time.sleep(0.05)


def _check(block: Block, answer: Answer) -> None:
    """Never a row too few, or of something else."""
    asked, got = [request.key for request in block.requests], [reply.key for reply in answer.replies]
    if asked != got:
        raise RunFailed(f"a replica on {answer.node} has answered {len(got)} requests with other keys than were asked")


def _dataset(blocks: Any, here: str, kind: str, batch_invariant: bool, fleet: Fleet, held: int) -> Any:
    import pyarrow
    import ray.data
    from ray.data.block import BlockMetadata

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)

    def read() -> Iterator[Any]:
        if blocks.get() != _BEGIN:
            # A second attempt would pass over as many blocks as the first has handed on.
            raise RuntimeError("the task that hands over the requests has died")
        while (block := blocks.get()) is not None:
            yield pyarrow.table({"block": pyarrow.array([block], pyarrow.binary())})

    class Source(ray.data.Datasource):  # type: ignore[misc]
        def estimate_inmemory_data_size(self) -> None:
            return None

        def get_read_tasks(self, *_: Any, **__: Any) -> list[Any]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ray.data.ReadTask(read, unknown)]

    dataset = ray.data.read_datasource(
        Source(), override_num_blocks=1, num_cpus=0, label_selector={"ray.io/node-id": here}
    )
    context = dataset.context
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # each block is handed on as it comes
    # The executor looks around some ten times a second, and takes no more of them at a time than may wait.
    context._max_num_blocks_in_streaming_gen_buffer = fleet.number * held
    context.execution_no_progress_timeout_s = -1  # between two checkpoints hours may lie; other waits have their ends
    handed_over = {
        name: value for name, value in os.environ.items() if name.startswith(_HANDED_OVER) and name not in _OF_THE_NODE
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these have no other name yet
        context.execution_options.actor_locality_enabled = False  # else the replicas beside this process get most
        return dataset.map_batches(
            Replica,
            batch_size=None,
            batch_format="pyarrow",
            fn_constructor_args=(kind, batch_invariant, handed_over),
            compute=ray.data.ActorPoolStrategy(
                size=fleet.number,
                max_tasks_in_flight_per_actor=held,
                max_concurrent_calls_per_actor=held,
                enable_true_multi_threading=True,
            ),
            num_cpus=1,
            num_gpus=fleet.gpus,
            # Those that have looked at their files: one that joins later may hold others.
            label_selector={"ray.io/node-id": f"in({','.join(node.id for node in fleet.nodes)})"},
            scheduling_strategy="SPREAD",
            max_restarts=REPLACED,
            max_task_retries=-1,
        )
