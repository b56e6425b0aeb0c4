"""Files over HTTP: broken off and gone on with, held against their hashes, and what a server may do wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from localeval import retry
from localeval.retry import Passing, check_status
from localeval.schema import LocalevalError, RunFailed
from localeval.transfer import Origin, Wanted, transfer, whole
from tests.hub import Fault, Hub, git_sha1, sha256

ID = "one/numbers"
BIG = bytes(range(256)) * 4096  # 1 MiB
OPEN = Origin({}, "accept the terms first")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSE", 0.0)


def _wanted(hub: Hub, folder: Path, path: str, data: bytes, **other: object) -> Wanted:
    known: dict[str, object] = {"size": len(data), "sha256": sha256(data)} | other
    return Wanted(f"{hub.url}/{ID}/resolve/main/{path}", folder / path, **known)  # type: ignore[arg-type]


def _bring(*wanted: Wanted) -> tuple[list[str], int]:
    told: list[int] = []
    return transfer(list(wanted), OPEN, told.append), sum(told)


def test_several_files_each_in_its_place(hub: Hub, tmp_path: Path) -> None:
    files = {f"deep/{number}.json": b"x" * number for number in range(20)} | {"model.safetensors": BIG}
    hub.add("model", ID, files)
    digests, told = _bring(*(_wanted(hub, tmp_path, path, data) for path, data in files.items()))
    assert digests == [sha256(data) for data in files.values()]
    assert told == sum(range(20)) + len(BIG)
    there = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert there == files


def test_git_s_hash_is_enough(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", ID, {"config.json": b"{}"})
    right = _wanted(hub, tmp_path, "config.json", b"{}", sha256=None, git_sha1=git_sha1(b"{}"))
    assert git_sha1(b"{}") == "9e26dfeeb6e641a33dae4961196235bdb965b21b"  # as `git hash-object` says
    assert _bring(right)[0] == [sha256(b"{}")]
    with pytest.raises(RunFailed, match="git's SHA-1"):
        _bring(_wanted(hub, tmp_path, "config.json", b"{}", sha256=None, git_sha1=git_sha1(b"[]")))


@pytest.mark.parametrize("after", [1, 100_000, len(BIG) - 1])
def test_after_a_break_only_the_rest_comes(hub: Hub, tmp_path: Path, after: int) -> None:
    hub.add("model", ID, {"model.safetensors": BIG})
    hub.faults = [Fault("/cdn/", "cut", after=after, times=2)]
    assert _bring(_wanted(hub, tmp_path, "model.safetensors", BIG)) == ([sha256(BIG)], len(BIG))
    assert hub.sent["model.safetensors"] == len(BIG)
    asked = [one.range for one in hub.log if one.file is not None]
    second = f"bytes={2 * after}-" if 2 * after < len(BIG) else None  # the rest is shorter than what is cut after
    assert asked[:2] == [None, f"bytes={after}-"]
    assert asked[2:] == ([second] if second else [])
    assert (tmp_path / "model.safetensors").read_bytes() == BIG


def test_a_server_that_knows_no_ranges_begins_anew(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", ID, {"model.safetensors": BIG})
    hub.ignores_range = True
    hub.faults = [Fault("/cdn/", "cut", after=300_000)]
    assert _bring(_wanted(hub, tmp_path, "model.safetensors", BIG)) == ([sha256(BIG)], len(BIG))
    assert hub.sent["model.safetensors"] == 300_000 + len(BIG)


def test_what_an_earlier_transfer_left_damaged_comes_again(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", ID, {"model.safetensors": BIG})
    wanted = _wanted(hub, tmp_path, "model.safetensors", BIG)
    wanted.part.write_bytes(b"\0" * 1000)
    assert _bring(wanted)[0] == [sha256(BIG)]
    assert hub.sent["model.safetensors"] == len(BIG) - 1000 + len(BIG)
    assert list(tmp_path.iterdir()) == [wanted.target]


def test_a_part_is_of_one_version_only(hub: Hub, tmp_path: Path) -> None:
    old, new = (_wanted(hub, tmp_path, "model.safetensors", data) for data in (b"old" * 9, BIG))
    assert old.part != new.part
    assert old.part.parent == new.part.parent == tmp_path


@pytest.mark.parametrize(
    ("fault", "other", "message"),
    [
        (Fault("/cdn/", "corrupt", times=9), {}, "SHA-256"),
        (None, {"size": len(BIG) - 1}, "1,048,576 bytes, and the hub lists 1,048,575"),
    ],
)
def test_other_bytes_than_listed_are_not_kept(
    hub: Hub, tmp_path: Path, fault: Fault | None, other: dict[str, object], message: str
) -> None:
    hub.add("model", ID, {"model.safetensors": BIG})
    hub.faults = [fault] if fault else []
    with pytest.raises(RunFailed, match=rf"model\.safetensors: what came is not what the hub lists.*{message}"):
        _bring(_wanted(hub, tmp_path, "model.safetensors", BIG, **other))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_shorter_than_listed_is_asked_for_a_few_times(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", ID, {"config.json": b"{}"})
    with pytest.raises(RunFailed, match=r"config\.json: .*in a row"):
        _bring(_wanted(hub, tmp_path, "config.json", b"{}", size=5))
    assert not (tmp_path / "config.json").exists()


def test_a_server_out_of_order_is_asked_again_and_not_for_ever(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", ID, {"config.json": b"{}"})
    hub.faults = [Fault("config.json", "status", status=503), Fault("config.json", "status", status=429)]
    wanted = _wanted(hub, tmp_path, "config.json", b"{}")
    assert _bring(wanted)[0] == [sha256(b"{}")]
    assert len(hub.log) == 3
    hub.faults = [Fault("config.json", "status", status=502, times=99)]
    wanted.target.unlink()
    with pytest.raises(RunFailed, match=r"config\.json: the server answers with status 502 \(6 times in a row\)"):
        _bring(wanted)
    hub.faults = [Fault("config.json", "status", retry_after="4000")]
    with pytest.raises(RunFailed, match="asks for a pause of 4000 s"):
        _bring(wanted)


def test_nobody_there(hub: Hub, tmp_path: Path) -> None:
    hub.close()
    with pytest.raises(RunFailed, match=r"config\.json: ConnectError.*HTTPS_PROXY"):
        _bring(_wanted(hub, tmp_path, "config.json", b"{}"))


def test_refused_and_gone(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", ID, {"config.json": b"{}"}, gated=["huggingface"])
    with pytest.raises(LocalevalError, match="accept the terms first"):
        _bring(_wanted(hub, tmp_path, "config.json", b"{}"))
    hub.add("model", "one/open", {})
    with pytest.raises(RunFailed, match=r"gone\.json: the server answers with status 404"):
        _bring(Wanted(f"{hub.url}/one/open/resolve/main/gone.json", tmp_path / "gone.json", 2))


def test_the_token_stays_with_the_hub(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", ID, {"model.safetensors": BIG})
    for number, headers in enumerate(({"Authorization": "Bearer x"}, {"Cookie": "m_session_id=x"})):
        hub.log.clear()
        wanted = _wanted(hub, tmp_path / str(number), "model.safetensors", BIG)
        transfer([wanted], Origin(headers, ""), lambda _: None)
        assert [one.token for one in hub.log] == ["x", None]  # localhost is another host than 127.0.0.1


def test_whole(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"{}")
    cases = [
        (Wanted("", file, 2, sha256(b"{}")), sha256(b"{}")),
        (Wanted("", file, None, sha256(b"{}")), sha256(b"{}")),
        (Wanted("", file, 2, None, git_sha1(b"{}")), sha256(b"{}")),
        (Wanted("", file, 2), None),  # nothing to hold it against
        (Wanted("", file, 3, sha256(b"{}")), None),
        (Wanted("", file, 2, sha256(b"[]")), None),
        (Wanted("", tmp_path / "b", 2, sha256(b"{}")), None),
    ]
    assert [whole(wanted, lambda _: None) for wanted, _ in cases] == [expected for _, expected in cases]


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        ("7", 7, 7),
        ("in 300 s", 200, 300),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_retry_after(asked: str | None, least: float | None, most: float | None) -> None:
    if asked == "in 300 s":
        asked = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    with pytest.raises(Passing) as caught:
        check_status(503, {"Retry-After": asked} if asked else {})
    wait = caught.value.wait
    if least is None or most is None:
        assert wait is None
    else:
        assert wait is not None
        assert least <= wait <= most
    check_status(404, {})


def test_hugging_face_says_when_it_answers_again() -> None:
    with pytest.raises(Passing) as caught:
        check_status(429, {"RateLimit": '"api";r=0;t=55', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'})
    assert caught.value.wait == 55.0


def test_a_long_pause_is_spoken_of(capsys: pytest.CaptureFixture[str]) -> None:
    slept: list[float] = []
    patience = retry.Patience("the hub", sleep=slept.append)
    patience.after(Passing("status 429", 2.0))
    patience.after(Passing("status 429", 55.0))
    assert slept == [2.0, 55.0]
    assert capsys.readouterr().err == "localeval: the hub: status 429; it is asked again in 55 s\n"
