"""How many replicas there are, where they can be, and how many requests each has. Pure; knows no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localeval.engines.base import Cluster, EngineConfig
from localeval.engines.settings import runs_on_cpu
from localeval.schema import LocalevalError

AT_ONCE = 2048
"""Requests at a replica: those that its engine runs (up to 1,024), those of blocks that wait for their slowest, and
those for a third of a second, which is what an answer and the next block take."""
FEWEST_AT_ONCE = 8
LARGEST_BLOCK = 32
LEAST_BLOCKS = 16
"""Blocks for each replica at the least, so that none is left with much more than the others at the end."""
_SPLIT = ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size")


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of a cluster, with what it has in all, in use or not."""

    id: str
    name: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """The replicas that a run has. nodes: those that can hold one. gpus: of each replica."""

    number: int
    gpus: int
    nodes: tuple[Node, ...]


def gpus_of_one(kind: str, config: EngineConfig, nodes: Sequence[Node]) -> int:
    """GPUs that one engine takes."""
    if kind == "replay" or (kind == "vllm" and runs_on_cpu()):
        return 0
    if kind == "transformers":
        on_cpu = str(config.engine_args.get("device", "cuda")).startswith("cpu")
        return 0 if on_cpu or not any(node.gpus for node in nodes) else 1
    product = 1
    for name in _SPLIT:
        size = config.engine_args.get(name, 1)
        if not isinstance(size, int) or size < 1:
            raise LocalevalError(f"engine_args {name} is {size!r}; expected a whole number from 1")
        product *= size
    return product


def fleet_of(nodes: Sequence[Node], gpus: int, cluster: Cluster) -> Fleet:
    """gpus: of each replica. So many as are asked for; else as many as fit, or one a node where no GPU is needed.

    Raises LocalevalError that names each node with what it has, where there is not so much room.
    """
    room = [min(int(node.gpus // gpus), int(node.cpus)) if gpus else int(node.cpus) for node in nodes]
    able = tuple(node for node, places in zip(nodes, room, strict=True) if places)
    most = sum(room) if gpus else len(able)
    wanted = most if cluster.number is None else cluster.number
    if cluster.fewer:
        wanted = min(wanted, sum(room))
    if wanted > sum(room) or not wanted:
        has = ", ".join(f"{node.name}: {node.gpus:g} GPUs, {node.cpus:g} CPUs" for node in nodes)
        each = f"{gpus} GPU{'s' if gpus > 1 else ''} and a CPU of one node" if gpus else "one CPU"
        what = f"{wanted} replicas, each of {each}" if wanted else f"a replica, of {each}"
        raise LocalevalError(f"the cluster has no room for {what}: it has {has}")
    return Fleet(wanted, gpus, able)


def gone(fleet: Fleet, there: Sequence[Node]) -> list[str]:
    """The names of a fleet's nodes that are not there any more."""
    ids = {node.id for node in there}
    return [node.name for node in fleet.nodes if node.id not in ids]


def shared(config: EngineConfig, fleet: Fleet) -> EngineConfig:
    """The config of one replica: its part of the work, and of the memory where several are on one machine."""
    beside = -(-fleet.number // len(fleet.nodes))
    return replace(config, work=config.work and config.work.part(fleet.number), beside=beside, cluster=None)


def block_size(replicas: int, requests: int) -> int:
    """Requests of a block. requests: how many there are, about; 0 where that is not known."""
    even = -(-requests // (replicas * LEAST_BLOCKS))
    return min(even, _largest(replicas)) if even else _largest(replicas)


def blocks_at_once(replicas: int) -> int:
    """Blocks at a replica."""
    return max(FEWEST_AT_ONCE, AT_ONCE // _largest(replicas))


def _largest(replicas: int) -> int:
    """Ray Data's executor handles some 100 blocks a second, of all replicas together: for many, blocks are larger."""
    return max(LARGEST_BLOCK, replicas // 2)
