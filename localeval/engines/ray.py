"""Many engines on one machine or several: a stream of requests through Ray Data's ``map_batches``.

The driver puts blocks of requests into a queue; one reading task hands them to Ray Data, which gives each to the
replica that has least to do, replaces a replica that dies, and asks it for its blocks again. Answers come back in any
order; the driver knows which are missing. Only so many blocks are on their way as the replicas can hold, whatever there
is to ask. The only file that imports Ray.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import queue
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localeval.engines.base import Engine, EngineConfig
from localeval.engines.replica import Answer, Block, Needed, Replica, look, packages
from localeval.engines.settings import runs_on_cpu
from localeval.engines.successive import Serving
from localeval.identity import file_digest, model_files
from localeval.progress import say
from localeval.schema import Completion, LocalevalError, Request, RunFailed

AUTO = "auto"
"""The address of the cluster that RAY_ADDRESS names or this machine belongs to; where there is none, of a new one."""
AT_ONCE = 1024
"""Requests at a replica: those that an engine runs, those that it has ready, and those for a third of a second, which
is what an answer and the next block take."""
LARGEST_BLOCK = 32
LEAST_BLOCKS = 16
"""Blocks for each replica at the least, so that none is left with much more than the others at the end."""
REACHED = 10.0
"""Seconds in which an address must answer."""
READY = 3600.0
"""Seconds until the first replica must be ready, and until each node must have looked at its files."""
SILENT = 3600.0
"""Seconds without any reply after which a run is given up."""
LATE = 120.0
"""Seconds without any reply after which the last blocks are given out a second time."""
ENDING = 5.0
"""Seconds in which replicas that have nothing to do end by themselves."""
REPORTS = 30.0
"""Seconds between words about what is waited for."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


_HANDED_OVER = ("VLLM_", "LOCALEVAL_", "HF_", "OMP_")
"""Variables that replicas have as this process has them."""


class Replicas:
    """Engines on a Ray cluster, for one checkpoint after another; each swaps by itself, as one engine alone does."""

    def __init__(self, address: str, number: int | None) -> None:
        """address: ``host:port``, or AUTO. number: of replicas; None for as many as there is room for."""
        self._address, self._number = address, number
        self._expected = self._own = False
        self._stream: Stream | None = None
        self._kind = ""

    def expect(self, kind: str, batch_invariant: bool) -> None:  # noqa: ARG002  known when there is a model
        """Connects to the cluster, or starts one. Raises LocalevalError where none can be had."""
        if not self._expected:
            self._own, self._expected = connect(self._address, self._number), True

    def serve(self, kind: str, config: EngineConfig) -> tuple[Engine, Serving]:
        """Replicas with the checkpoint that ``config`` names, of which one is ready.

        Raises LocalevalError where a node lacks what it needs, or the cluster has no room; RunFailed where the
        checkpoint can't be loaded.
        """
        start = time.monotonic()
        self.expect(kind, config.batch_invariant)
        from ray.exceptions import RayError

        try:
            stream, serving = self._ready(kind, config)
        except RayError as error:
            self.close()
            raise RunFailed(f"Ray: {_gist(error)}") from error
        except BaseException:
            self.close()
            raise
        return stream, replace(serving, seconds=round(time.monotonic() - start, 3))

    def _ready(self, kind: str, config: EngineConfig) -> tuple[Stream, Serving]:
        gpus = gpus_of_one(kind, config)
        fleet = fleet_of(nodes(), gpus, self._number)
        check_nodes(fleet, needed_of(kind, config))
        if self._stream is not None and (self._stream.broken or (self._kind, self._stream.fleet) != (kind, fleet)):
            self.close()  # the whole connection: then all that the replicas before held is free
            self.expect(kind, config.batch_invariant)
        if self._stream is None:
            self._stream, self._kind = Stream(kind, config.batch_invariant, fleet), kind
        return self._stream, self._stream.prepare(shared(config, fleet), config.work.sequences if config.work else 0)

    def close(self) -> None:
        """Ends the replicas; a cluster that was started here ends with them."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._own:
            import ray

            ray.shutdown()
        self._expected = self._own = False


# --- the cluster ---


def connect(address: str, number: int | None) -> bool:
    """Connects this process to a cluster; where AUTO finds none, starts one of this machine alone.

    number: of replicas, for which a cluster that is started here has room, whatever its cores. Gives back whether the
    connection is new: a program that is connected already stays so.
    Raises LocalevalError with the reason where that fails.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        from ray._private import auto_init_hook
    except ImportError as error:
        raise LocalevalError(
            "--ray: the package ray is not installed here: pip install 'localeval[ray]', on every node"
        ) from error
    if ray.is_initialized():
        return False
    # A thread of Ray Data's that outlives the connection must not make another; the variable is read at the import.
    auto_init_hook.enable_auto_connect = False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    there = _cluster_of_this_machine() if address == AUTO else address
    if there is not None:
        _reach(there)
    else:
        cores = max(len(os.sched_getaffinity(0)), number or 0)
        options |= {"num_cpus": cores, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    with _captured() as printed:
        try:
            ray.init(address=there or "local", **options)
        except (Exception, SystemExit) as error:  # Ray ends the process where a cluster's head does not answer
            said = printed.read_text(errors="replace").strip().splitlines()
            more = f"; Ray said last: {said[-1]}" if said else ""
            if "InvalidAuthToken" in f"{error}{more}":
                more += ". Set RAY_AUTH_MODE=token, and bring the head's ~/.ray/auth_token here"
            raise LocalevalError(f"--ray {address}: no cluster can be reached or started: {error}{more}") from error
    return True


def _cluster_of_this_machine() -> str | None:
    """The head of the cluster that RAY_ADDRESS names, or that ``ray start`` has made this machine a node of.

    Ray's own "auto" would also take the cluster that another program has started for itself.
    """
    from ray._private.utils import read_ray_address

    address = os.environ.get("RAY_ADDRESS") or read_ray_address()
    return None if address in (None, "", "auto", "local") else address


def _reach(address: str) -> None:
    """Ray itself waits for minutes, and then ends the process."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED):
            return
    except (OSError, ValueError, OverflowError) as error:
        raise LocalevalError(
            f"--ray {address}: nobody answers there ({error}). Expected host:port of a cluster's head, as 'ray start "
            "--head --port=6379' names it; without an address, the cluster of RAY_ADDRESS or of the last 'ray start' "
            "on this machine is taken ('ray stop' forgets it), else a new one is started"
        ) from error


@contextlib.contextmanager
def _captured() -> Iterator[Path]:
    """What Ray's own threads print goes into a file."""
    with tempfile.NamedTemporaryFile(prefix="localeval-ray-") as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield Path(file.name)
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster, with what it has in all, in use or not."""

    id: str
    name: str
    cpus: float
    gpus: float


def nodes() -> list[Node]:
    """The machines that are there now."""
    import ray

    return [
        Node(
            each["NodeID"],
            f"{each['NodeManagerHostname']} ({each['NodeName']})",  # its address, if it was given no name
            each["Resources"].get("CPU", 0.0),
            each["Resources"].get("GPU", 0.0),
        )
        for each in ray.nodes()
        if each["Alive"]
    ]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The replicas that a run has. nodes: those that can hold one. gpus: of each replica."""

    number: int
    gpus: int
    nodes: tuple[Node, ...]


def gpus_of_one(kind: str, config: EngineConfig) -> int:
    """GPUs that one engine takes."""
    if kind == "replay":
        return 0
    if kind == "transformers":
        import torch

        return 0 if str(config.engine_args.get("device", "cuda")).startswith("cpu") or not torch.version.cuda else 1
    if runs_on_cpu():
        return 0
    sizes = [config.engine_args.get(name, 1) for name in ("tensor_parallel_size", "pipeline_parallel_size")]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise LocalevalError(f"--engine-args: tensor_parallel_size and pipeline_parallel_size are {sizes}")
    return int(sizes[0] * sizes[1])


def fleet_of(found: Sequence[Node], gpus: int, number: int | None) -> Fleet:
    """How many replicas there are, and where they can be. Pure.

    gpus: of each. number: that was asked for; None for as many as the GPUs allow, or one a node where none is needed.
    Raises LocalevalError that names each node with what it has, where there is not so much room.
    """
    room = [min(int(node.gpus // gpus), int(node.cpus)) if gpus else int(node.cpus) for node in found]
    able = tuple(node for node, places in zip(found, room, strict=True) if places)
    most = sum(room) if gpus else len(able)
    wanted = most if number is None else number
    if wanted > sum(room) or not wanted:
        has = ", ".join(f"{node.name}: {node.gpus:g} GPUs, {node.cpus:g} CPUs" for node in found)
        each = f"{gpus} GPU{'s' if gpus > 1 else ''} of one node" if gpus else "one CPU"
        what = f"{wanted} replicas, each of {each}" if wanted else f"not even one replica, of {each}"
        raise LocalevalError(f"the cluster has no room for {what}: it has {has}")
    return Fleet(wanted, gpus, able)


def shared(config: EngineConfig, fleet: Fleet) -> EngineConfig:
    """The config of one replica: its part of the work, and of the memory where several are on one machine."""
    beside = -(-fleet.number // len(fleet.nodes))
    return replace(config, work=config.work and config.work.part(fleet.number), beside=beside)


def needed_of(kind: str, config: EngineConfig) -> Needed:
    """What a node must have to answer as this one would."""
    if kind == "replay":
        return Needed({config.folder: file_digest(config.folder)}, {"localeval": packages()["localeval"]})
    folders = dict.fromkeys(folder for folder in (config.folder, config.tokenizer, config.adapter) if folder)
    files = {file: file_digest(file) for folder in folders for file in model_files(folder)}
    return Needed(files, packages())


def check_nodes(fleet: Fleet, needed: Needed) -> None:
    """Has every node look for what it needs. Raises LocalevalError that names those that lack something, and what."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    looking = ray.remote(num_cpus=0, max_retries=0)(look)
    asked = {
        looking.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False), name=f"look {node.name}"
        ).remote(needed): node
        for node in fleet.nodes
    }
    lacking, left, start = [], list(asked), time.monotonic()
    while left:
        done, left = ray.wait(left, timeout=REPORTS)
        for one in done:
            try:
                _, lacks = ray.get(one)
            except ray.exceptions.RayError as error:
                lacks = [f"can't look: {_gist(error)} (is the same localeval installed there?)"]
            lacking += [f"  {asked[one].name}: {line}" for line in lacks]
        if left and not done:
            names = ", ".join(asked[one].name for one in left[:3]) + (" ..." if len(left) > 3 else "")
            if time.monotonic() - start > READY:
                raise RunFailed(f"{len(left)} nodes have not looked at their files in {READY:.0f} s: {names}")
            say(f"ray: {len(left)} of {len(asked)} nodes are reading their files: {names}")
    if lacking:
        raise LocalevalError(
            "not every node has what a replica needs (paths and packages must be the same everywhere):\n"
            + "\n".join(sorted(lacking))
            + "\nbring it there, or put it on a file system that all nodes mount"
        )


# --- the stream ---


@dataclass(slots=True)
class _Record:
    """What answers have said of the replicas."""

    engines: set[tuple[str, int, int]] = field(default_factory=set)
    nodes: Counter[str] = field(default_factory=Counter)
    settings: Mapping[str, Any] = field(default_factory=dict)
    serving: Serving | None = None


class Stream:
    """One execution of a Ray dataset, as an engine: it lasts from the first checkpoint to the last."""

    def __init__(self, kind: str, batch_invariant: bool, fleet: Fleet) -> None:
        import ray
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.fleet, self.broken = fleet, False
        here = ray.get_runtime_context().get_node_id()
        affinity = NodeAffinitySchedulingStrategy(here, soft=False)
        self._blocks = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": affinity})
        self._blocks.put(_BEGIN)
        self._answers: queue.Queue[Answer | BaseException] = queue.Queue()
        self._config: EngineConfig | None = None
        self._record = _Record()
        self._numbers = itertools.count()
        self._first = 0  # of the blocks for the checkpoint that is asked now
        self._block, self._held = LARGEST_BLOCK, blocks_at_once(fleet.number)
        dataset = _dataset(self._blocks, here, kind, batch_invariant, fleet, self._held)
        self._thread = threading.Thread(target=self._receive, args=(dataset,), name="ray", daemon=True)
        self._thread.start()

    def _receive(self, dataset: Any) -> None:
        """Answers as they come; at last what ended them."""
        try:
            for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                for answer in table["answer"].to_pylist():
                    self._answers.put(pickle.loads(answer))
        except BaseException as error:  # noqa: BLE001  it is raised where answers are waited for
            self._answers.put(error)
        else:
            self._answers.put(RunFailed("Ray has ended the stream"))

    def prepare(self, config: EngineConfig, requests: int) -> Serving:
        """Has the replicas load a checkpoint, and waits for the first. Raises what keeps it from that.

        requests: how many it will be asked, about; 0 where that is not known.
        """
        self._config, self._record, self._block = config, _Record(), block_size(self.fleet.number, requests)
        # As many as there are replicas: each that is there gets one, and loads beside the others.
        loading = [Block(next(self._numbers), config) for _ in range(self.fleet.number)]
        self._first = loading[0].number
        self._hand_over(loading)
        start = time.monotonic()
        while self._record.serving is None:
            for _ in self._next(REPORTS):
                pass
            if self._record.serving is None:
                if time.monotonic() - start > READY:
                    self.broken = True
                    raise RunFailed(f"no replica was ready in {READY:.0f} s: {self._waiting()}")
                say(f"ray: no replica is ready yet: {self._waiting()}")
        return self._record.serving

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        assert self._config is not None
        source = iter(_blocks(requests, self._block, self._numbers, self._config))
        out: dict[int, Block] = {}
        heard, again = time.monotonic(), 0
        finished = False
        try:
            while True:
                room = self.fleet.number * self._held - len(out)
                new = list(itertools.islice(source, room))
                self._hand_over(new)
                out |= {block.number: block for block in new}
                if not out:
                    break
                answers = [each for each in self._next(min(LATE, REPORTS)) if each.number in out]
                for answer in answers:
                    block = out.pop(answer.number)
                    _check(block, answer)
                    yield from answer.replies
                if answers:
                    heard, again = time.monotonic(), 0
                    continue
                silent = time.monotonic() - heard
                if silent > SILENT:
                    raise RunFailed(f"no reply in {SILENT:.0f} s; {len(out)} blocks are out. {self._waiting()}")
                if len(new) < room and silent > LATE * (again + 1):
                    # A node that has gone takes its blocks with it, and Ray waits for it: whoever is first is heard.
                    say(f"ray: no reply for {silent:.0f} s: the last {len(out)} blocks are given out once more")
                    self._hand_over(list(out.values()))
                    again += 1
            finished = True
        finally:
            self.broken = self.broken or not finished

    def _hand_over(self, blocks: Sequence[Block]) -> None:
        if blocks:
            self._blocks.put_nowait_batch([pickle.dumps(block) for block in blocks])

    def _next(self, timeout: float) -> Iterator[Answer]:
        """The answers that are there; waits for the first. Raises what a replica has failed at, or Ray."""
        found: Answer | BaseException
        with contextlib.suppress(queue.Empty):
            found = self._answers.get(timeout=timeout)
            while True:
                if isinstance(found, Answer):
                    self._note(found)
                    yield found
                else:
                    self.broken = True
                    raise found if isinstance(found, RunFailed) else RunFailed(f"Ray: {_gist(found)}") from found
                found = self._answers.get_nowait()

    def _note(self, answer: Answer) -> None:
        if answer.number < self._first:
            return  # of a checkpoint that is done with
        if answer.failure is not None:
            self.broken = True
            kind, message = answer.failure
            raise {"LocalevalError": LocalevalError, "RunFailed": RunFailed}[kind](
                f"a replica on {answer.node}: {message}"
            )
        record = self._record
        if record.serving is None:
            record.serving, record.settings = answer.serving, answer.settings
        if answer.engine not in record.engines:
            record.engines.add(answer.engine)
            record.nodes[answer.node] += 1
            ready = len(record.engines)
            if ready > self.fleet.number:
                say(f"ray: an engine on {answer.node} is in place of one that died, whose blocks were asked again")
            elif ready in (1, self.fleet.number):
                say(f"ray: {ready} of {self.fleet.number} replicas ready ({answer.node})")

    def _waiting(self) -> str:
        """Who is there, for a message about nothing that comes."""
        import ray

        there = {node.id: node for node in nodes()}
        gone = [node.name for node in self.fleet.nodes if node.id not in there]
        free = ray.available_resources()
        return (
            f"{self.fleet.number} replicas of {self.fleet.gpus} GPUs are wanted; free are {free.get('GPU', 0):g} GPUs, "
            f"{free.get('CPU', 0):g} CPUs" + (f"; gone: {', '.join(gone)}" if gone else "")
        )

    def forget_prompts(self) -> None:
        raise NotImplementedError  # there is no way to tell all replicas; --noise is refused with --ray

    def settings(self) -> Mapping[str, Any]:
        import ray

        record = self._record
        return {
            **record.settings,
            "replicas": {
                "number": self.fleet.number,
                "gpus_each": self.fleet.gpus,
                "engines": dict(record.nodes),
                "died": max(0, len(record.engines) - self.fleet.number),
                "ray": ray.__version__,
            },
        }

    def close(self) -> None:
        """Lets Ray end the replicas; one that still works is ended with the connection."""
        self.broken = True
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._blocks.put(None, timeout=ENDING)
        self._thread.join(ENDING)


def block_size(replicas: int, requests: int) -> int:
    """Requests of a block. requests: how many there are, about; 0 where that is not known. Pure."""
    even = -(-requests // (replicas * LEAST_BLOCKS))
    return min(even, _largest(replicas)) if even else _largest(replicas)


def blocks_at_once(replicas: int) -> int:
    """Blocks at a replica. Pure."""
    return max(4, AT_ONCE // _largest(replicas))


def _largest(replicas: int) -> int:
    """Ray Data's executor handles some 100 blocks a second, of all replicas together: for many, blocks are larger."""
    return max(LARGEST_BLOCK, replicas // 2)


def _blocks(
    requests: Iterable[Request | None], size: int, numbers: Iterator[int], config: EngineConfig
) -> Iterator[Block]:
    source = (request for request in requests if request is not None)
    while taken := tuple(itertools.islice(source, size)):
        yield Block(next(numbers), config, taken)


def _check(block: Block, answer: Answer) -> None:
    """Never a row too few, or of something else."""
    asked, got = [request.key for request in block.requests], [reply.key for reply in answer.replies]
    if asked != got:
        raise RunFailed(f"a replica on {answer.node} has answered {len(got)} requests with other keys than were asked")


_BEGIN = b"begin"
_GIST = 300


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
    variables = {name: value for name, value in os.environ.items() if name.startswith(_HANDED_OVER)}
    return dataset.map_batches(
        Replica,
        batch_size=None,
        batch_format="pyarrow",
        fn_constructor_args=(kind, batch_invariant),
        compute=ray.data.ActorPoolStrategy(
            size=fleet.number,
            max_tasks_in_flight_per_actor=held,
            max_concurrent_calls_per_actor=held,
            enable_true_multi_threading=True,
        ),
        num_cpus=1,
        num_gpus=fleet.gpus,
        runtime_env={"env_vars": variables},
    )


def _gist(error: BaseException) -> str:
    """Ray's errors hold whole traces of other processes; their last line says what it is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    return last if len(last) <= _GIST else f"{last[:_GIST]} ..."
