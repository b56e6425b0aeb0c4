"""What is known of a contestant after a job, and where jobs are done."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contestants.asked import Work
from contestants.measure import Meter, run


@dataclass(frozen=True, slots=True)
class Told:
    """What one contestant did in one job.

    work: seconds from the first request to the last reply. start: all other seconds of the command; where one command
    did several jobs, it is the same for each. loading: those that the contestant itself gives to loading the model,
    where what it has imported before is left out.
    prompts: how the prompts compare with localeval's. score: the contestant's own, or where it has none, localeval's of
    its replies.
    """

    start: float
    work: float
    loading: float
    prompt_tokens: int
    output_tokens: int
    score: float | None
    prompts: str
    further: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one contestant works.

    folder: its own, empty. envs: the peers' environments. engine: the settings that localeval's engine had in the
    (first) job, None where localeval was not asked.
    """

    folder: Path
    envs: Path
    meter: Meter
    timeout: float
    engine: Mapping[str, Any] | None

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> float:
        """Runs a contestant's program to its end; gives back its seconds. Raises Failed."""
        return run(command, self.meter, self.folder / "log.txt", environment, self.timeout)

    def program(
        self, python: Path, name: str, asked: Mapping[str, Any], environment: Mapping[str, str]
    ) -> tuple[float, Any]:
        """Runs one of ``programs/`` in a contestant's own environment: its seconds, and what it told."""
        question, answer = self.folder / "asked.json", self.folder / "told.json"
        question.write_text(json.dumps(asked), encoding="utf-8")
        source = Path(__file__).parent / "programs" / f"{name}.py"
        whole = self.run([str(python), str(source), str(question), str(answer)], environment)
        return whole, json.loads(answer.read_text(encoding="utf-8"))


Ask = Callable[[Sequence[Work], Place], list[Told]]
"""A contestant: does jobs in a place, and tells of each. Raises Failed."""
