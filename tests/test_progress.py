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


def test_short_work_says_nothing_and_long_work_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 1.5, 1.9])  # the beginning, two items, the end
    monkeypatch.setattr("localeval.progress.time.monotonic", lambda: next(clock))
    assert list(progress.track("ab", None, "rows", progress.LATE)) == ["a", "b"]
    assert capsys.readouterr().err == ""
    clock = iter([0.0, 4.0, 14.0, 16.0])
    assert list(progress.track("ab", None, "rows", progress.LATE)) == ["a", "b"]
    # How many there will be is not known: no time is left that could be told.
    assert capsys.readouterr().err.splitlines() == [
        "localeval: rows: 2, 0.1/s",
        "localeval: rows: 2 in 16 s (0.1/s)",
    ]


def test_bytes_of_long_work_are_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for seconds, said in ((1.0, ""), (4.0, "localeval: hashing: 8.0 MB in 4.0 s (2.0 MB/s)\n")):
        clock = iter([0.0, seconds / 2, seconds, seconds])
        monkeypatch.setattr("localeval.progress.time.monotonic", lambda: next(clock))  # noqa: B023
        with progress.measure(8_000_000, "hashing", progress.LATE) as passed:
            passed(3_000_000)
            passed(5_000_000)
        assert capsys.readouterr().err == said


def test_on_a_terminal_the_bar_comes_late_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.progress import Progress

    shown: list[str] = []
    monkeypatch.setattr(Progress, "start", lambda _: shown.append("start"))
    monkeypatch.setattr(Progress, "stop", lambda _: shown.append("stop"))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    times = iter([0.0, 1.0, 3.0])
    monkeypatch.setattr("localeval.progress.time", type("Clock", (), {"monotonic": lambda: next(times, 3.0)}))
    seen = [(each, list(shown)) for each in progress.track("abc", 3, "rows", 2.0)]
    assert seen == [("a", []), ("b", []), ("c", ["start"])]
    assert shown == ["start", "stop"]
    shown.clear()
    times = iter([0.0, 1.0])
    assert list(progress.track("a", 1, "rows", 9.0)) == ["a"]
    assert shown == []
