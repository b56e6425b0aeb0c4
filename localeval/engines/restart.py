"""An engine that is started once more where it dies. Knows nothing about what engines are asked.

What it was asked and has not answered is asked again; what it has answered was handed on before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from localeval.engines.base import Engine, EngineConfig, EngineDied
from localeval.engines.successive import Successive
from localeval.identity import State, refuse_changed
from localeval.progress import warn
from localeval.schema import Completion, Request, RunFailed


class Restarted:
    """The engine of a Successive, and after its death another one, which has at most half as many requests at once."""

    def __init__(
        self, successive: Successive, engine: Engine, kind: str, config: EngineConfig, weights: State = ()
    ) -> None:
        """engine: the one that runs. kind, config: what it is, and what is started anew.

        weights: what their files were, and must still be then.
        """
        self._successive, self._engine, self._kind, self._config = successive, engine, kind, config
        self._weights = weights
        self._died = ""

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """Raises EngineDied where the second engine dies too, LocalevalError where the weights are others by then."""
        source = iter(requests)
        waiting: dict[str, Request] = {}
        stream = _noted(source, waiting)
        while True:
            try:
                for reply in self._engine.generate(stream):
                    del waiting[reply.key]
                    yield reply
                return
            except EngineDied as died:
                self._start_again(died, len(waiting))
                stream = itertools.chain(list(waiting.values()), _noted(source, waiting))

    def _start_again(self, died: EngineDied, waiting: int) -> None:
        self._successive.close()
        if self._died:
            raise EngineDied(
                f"the engine died a second time: {died}; the same command goes on from there, with fewer requests at "
                "once (--engine-args '{\"max_num_seqs\": 8}') or another engine"
            ) from died
        self._died = str(died)
        warn(f"{died}. It is started once more, with at most half as many requests at once; {waiting} are asked again")
        try:
            self._engine, _ = self._successive.serve(self._kind, replace(self._config, cautious=True))
        except RunFailed as failed:
            raise RunFailed(f"the engine died ({died}), and could not be started again: {failed}") from failed
        refuse_changed(self._weights, "the engine was started once more")

    def forget_prompts(self) -> None:
        try:
            self._engine.forget_prompts()
        except EngineDied as died:
            self._start_again(died, 0)  # it knows no prompts

    def settings(self) -> Mapping[str, Any]:
        return {**self._engine.settings(), **({"restarted": self._died} if self._died else {})}

    def close(self) -> None:
        self._successive.close()


def _noted(source: Iterator[Request | None], waiting: dict[str, Request]) -> Iterator[Request | None]:
    """The same requests; each is in ``waiting`` when it has been taken."""
    for request in source:
        if request is not None:
            waiting[request.key] = request
        yield request
