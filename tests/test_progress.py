"""What a run says while it works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localeval import progress


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(0, 10_000, 6))  # each look at the clock is 6 seconds later
    monkeypatch.setattr("localeval.progress.time.monotonic", lambda: float(next(clock)))
    assert list(progress.track(range(100), 100, "replies")) == list(range(100))
    lines = capsys.readouterr().err.splitlines()
    # A line at most every 10 seconds, so after 2, 4, 6 ... items; 6 of 100 in 36 seconds leave 94 at 1/6 a second.
    assert lines[0] == "localeval: replies: 2 of 100, 0.2/s"
    assert lines[2] == "localeval: replies: 6 of 100, 0.2/s, 9 min left"
    assert lines[-1] == "localeval: replies: 100 of 100 in 10 min (0.2/s)"


def test_nothing_to_do_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.track(iter(()), 0, "replies")) == []
    assert capsys.readouterr().err == ""


def test_a_failure_passes_through(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(progress.track(broken(), 2, "replies"))
