"""Many engines as one, on a Ray cluster of one machine or of several. In a process of its own, as any engine is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from localeval.engines.base import CantSwap, EngineConfig
from localeval.engines.cluster import check_nodes, connect, disconnect, gist, needed_of, nodes
from localeval.engines.fleet import fleet_of, gone, gpus_of_one, shared
from localeval.engines.stream import Stream
from localeval.schema import Completion, Request, RunFailed


class RayEngine:
    """Replicas of one engine, each of which swaps by itself as that engine alone does."""

    def __init__(self, kind: str, config: EngineConfig) -> None:
        """Starts the replicas, and waits for the first. kind: of each engine.

        Raises LocalevalError where there is no cluster or no room in it, or a node lacks what it needs; RunFailed where
        the checkpoint can't be loaded.
        """
        from ray.exceptions import RayError

        assert config.cluster is not None
        connect(config.cluster)
        self._kind = kind
        try:
            there = nodes()
            fleet = fleet_of(there, gpus_of_one(kind, config, there), config.cluster)
            check_nodes(fleet.nodes, needed_of(kind, config))
            self._stream = Stream(kind, config.batch_invariant, fleet)
            self._prepare(config)
        except RayError as error:
            raise RunFailed(f"Ray: {gist(error)}") from error

    def _prepare(self, config: EngineConfig) -> None:
        self._stream.prepare(shared(config, self._stream.fleet), config.work.sequences if config.work else 0)

    def swap(self, config: EngineConfig) -> None:
        """Has the replicas take another checkpoint. Raises CantSwap where they are not those that were started."""
        there = nodes()
        fleet = self._stream.fleet
        if lost := gone(fleet, there):
            raise CantSwap(f"{', '.join(lost)} has gone")
        if gpus_of_one(self._kind, config, there) != fleet.gpus:
            raise CantSwap("a replica takes another number of GPUs")
        if not self._stream.alive:
            raise CantSwap("Ray has ended the stream")
        check_nodes(fleet.nodes, needed_of(self._kind, config))
        self._prepare(config)

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        return self._stream.generate(requests)

    def forget_prompts(self) -> None:
        raise NotImplementedError  # there is no way to tell all replicas; --noise is refused with --ray

    def settings(self) -> Mapping[str, Any]:
        return self._stream.settings()

    def close(self) -> None:
        """Ends the replicas; a cluster that was started here ends with them."""
        self._stream.close()
        disconnect()
