"""What reading the same replies again has changed: the readings in a run's scores.jsonl against new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localeval.report.build import READING
from localeval.schema import LocalevalError, Score
from localeval.store import SCORES, RunFolder, read_scores


@dataclass(frozen=True, slots=True)
class Earlier:
    """How a run's replies were read before. parsed: by sample, None for a reply that could not be read.

    version: of the rules, None if no report states it. why_not: why ``parsed`` is empty; else None.
    """

    parsed: Mapping[str, str | None]
    version: int | None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """What has changed. newly_read: replies that could not be read before; unread: those that can't be any more.

    n: replies of which both readings are known. was: the version of the rules that read them before. patterns: the
    dataset's answer_pattern before and now, if it has changed. why_not: why there are no counts; else None.
    """

    n: int
    newly_read: int
    unread: int
    another: int
    was: int | None
    version: int = READING
    patterns: tuple[str, str] | None = None
    why_not: str | None = None

    @property
    def changed(self) -> int:
        """All readings that are not what they were."""
        return self.newly_read + self.unread + self.another

    def __str__(self) -> str:
        was = "not stated" if self.was is None else str(self.was)
        said = f"READ AGAIN by the rules of version {self.version} (was {was})"
        if self.patterns is not None:
            before, now = (repr(pattern) if pattern else "none" for pattern in self.patterns)
            said += f" and by answer_pattern {now} (was {before})"
        if self.why_not is not None:
            return f"{said}; how many readings changed is not known: {self.why_not}"
        said += f": {self.changed:,} of {self.n:,} readings changed"
        if not self.changed:
            return said
        return (
            f"{said} ({self.newly_read:,} read that were not, {self.unread:,} no longer read, "
            f"{self.another:,} another answer)"
        )


def earlier(folder: RunFolder) -> Earlier:
    """How the replies of a run folder were read the last time, out of its scores.jsonl and report.json."""
    try:
        version = folder.read_json("report.json").get("reading")
    except LocalevalError:
        version = None
    known = version if isinstance(version, int) and not isinstance(version, bool) else None
    try:
        parsed = {row.score.sample_id: row.score.parsed for row in read_scores(folder.path / SCORES)}
    except (LocalevalError, OSError) as error:
        return Earlier({}, known, str(error).partition("; localeval score")[0])
    return Earlier(parsed, known)


def read_again(before: Earlier, scores: Sequence[Score], patterns: tuple[str, str]) -> ReadAgain:
    """Count the readings that have changed. patterns: the dataset's answer_pattern before and now."""
    pairs = [(before.parsed[s.sample_id], s.parsed) for s in scores if s.sample_id in before.parsed]
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    newly_read = sum(was is None for was, _ in changed)
    unread = sum(now is None for _, now in changed)
    return ReadAgain(
        len(pairs),
        newly_read,
        unread,
        len(changed) - newly_read - unread,
        before.version,
        patterns=patterns if patterns[0] != patterns[1] else None,
        why_not=before.why_not,
    )
