"""Many engines on one machine or several, through Ray: what ``Successive`` is for one engine here."""

from __future__ import annotations

import time
from dataclasses import replace

from localeval.engines.base import Engine, EngineConfig
from localeval.engines.cluster import check_nodes, connect, disconnect, gist, needed_of, nodes
from localeval.engines.fleet import Fleet, fleet_of, gpus_of_one, shared
from localeval.engines.stream import Stream
from localeval.engines.successive import Serving
from localeval.progress import say
from localeval.schema import RunFailed


class Replicas:
    """Engines on a Ray cluster, for one checkpoint after another; each swaps by itself, as one engine alone does."""

    def __init__(self, address: str, number: int | None) -> None:
        """address: ``host:port``, or ``cluster.AUTO``. number: of replicas; None for as many as there is room for."""
        self._address, self._number = address, number
        self._connected = False
        self._stream: Stream | None = None

    def expect(self, kind: str, batch_invariant: bool) -> None:  # noqa: ARG002  known when there is a model
        """Connects to the cluster, or starts one. Raises LocalevalError where none can be had."""
        if not self._connected:
            connect(self._address, self._number)
            self._connected = True

    def serve(self, kind: str, config: EngineConfig) -> tuple[Engine, Serving]:
        """Replicas with the checkpoint that ``config`` names, of which one is ready.

        Raises LocalevalError where a node lacks what it needs, or the cluster has no room; RunFailed where the
        checkpoint can't be loaded.
        """
        start = time.monotonic()
        self.expect(kind, config.batch_invariant)
        from ray.exceptions import RayError

        try:
            stream = self._stream_of(kind, config)
            serving = stream.prepare(shared(config, stream.fleet), config.work.sequences if config.work else 0)
        except RayError as error:
            self.close()
            raise RunFailed(f"Ray: {gist(error)}") from error
        except BaseException:
            self.close()
            raise
        return stream, replace(serving, seconds=round(time.monotonic() - start, 3))

    def _stream_of(self, kind: str, config: EngineConfig) -> Stream:
        """The stream that is there, if it can take the checkpoint; else a new one, on nodes that have what it needs."""
        there = nodes()
        gpus = gpus_of_one(kind, config, there)
        old = self._stream
        if old is not None:
            gone = [node.name for node in old.fleet.nodes if node not in there]
            if not (old.broken or gone or (old.kind, old.fleet.gpus) != (kind, gpus)):
                check_nodes(old.fleet.nodes, needed_of(kind, config))
                return old
            if gone:
                say(f"ray: {', '.join(gone)} has gone; the replicas are started anew on what is left")
                if self._number is not None:
                    self._number = min(self._number, fleet_of(there, gpus, None).number)
            self.close()  # the whole connection: then all that the replicas before held is free
            self.expect(kind, config.batch_invariant)
            there = nodes()
        fleet: Fleet = fleet_of(there, gpus, self._number)
        check_nodes(fleet.nodes, needed_of(kind, config))
        self._stream = Stream(kind, config.batch_invariant, fleet)
        return self._stream

    def close(self) -> None:
        """Ends the replicas; a cluster that was started here ends with them."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._connected:
            disconnect()
            self._connected = False
