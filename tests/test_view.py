"""``localeval view``: whom the server lets in, what its filters find, how it begins and ends. Over a real socket."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from localeval import LocalevalError, run_task
from localeval.results import SampleResult
from localeval.schema import Completion, Score, Tally
from localeval.view import viewer as viewer_module
from localeval.view.catalogue import key_of
from localeval.view.rows import Rows
from localeval.view.server import Server, serving, view
from localeval.view.viewer import Viewer
from tests.conftest import NER_YAML

ODD = "ANSWER: B \ud800 </script><b> İ"


@pytest.fixture
def runs(tmp_path: Path, mcq_dataset: Path) -> dict[str, Path]:
    """Two runs of five questions (right: ABCAB), and one of three sentences."""
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "test.txt").write_text(
        "Ann B-PER\nLee I-PER\nleft O\n\nParis B-LOC\nslept O\n\nNobody O\ncame O\n"
    )
    (tmp_path / "names.yaml").write_text(NER_YAML.replace("path: rows", "path: names"))
    said: dict[str, list[Any]] = {
        "a": ["ANSWER: A", "ANSWER: B", ("?", "length"), "ANSWER: C", ODD],
        "b": ["ANSWER: B", "ANSWER: B", "ANSWER: C", "ANSWER: A", "ANSWER: B"],
        "names": [
            "<response><person>Ann</person> Lee left</response>",
            "<response><person>Paris</person> slept</response>",
            "<response>Nobody <location>came</location> <person>Eve</person></response>",
        ],
    }
    found = {}
    for name, texts in said.items():
        file = tmp_path / f"{name}.jsonl"
        rows = [
            dict(zip(("text", "finish_reason"), t, strict=True)) if isinstance(t, tuple) else {"text": t} for t in texts
        ]
        file.write_text("".join(json.dumps({"sample_id": f"default:{n}", **row}) + "\n" for n, row in enumerate(rows)))
        config: dict[str, Any] = {"model": name, "engine": f"replay:{file}", "work_dir": str(tmp_path / "runs")}
        config |= {"datasets": [str(tmp_path / "names.yaml" if name == "names" else mcq_dataset)]}
        found[name] = run_task(config).runs[0].folder
    return found


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[tuple[Server, Viewer, Thread]] = []

    def start(*places: Path) -> Server:
        viewer = Viewer(places)
        server = serving(viewer, 0)
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        started.append((server, viewer, thread))
        return server

    yield start
    for server, viewer, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()
        viewer.close()


def ask(
    server: Server, path: str, host: str | None = None, method: str = "GET"
) -> tuple[http.client.HTTPResponse, str]:
    """path: as it goes over the socket; what begins without a slash is below the server's own address."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    whole = path if path.startswith("/") else f"/{server.secret}/{path}"
    connection.putrequest(method, whole, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def rows(server: Server, folder: Path, **asked: Any) -> dict[str, Any]:
    answer, text = ask(server, f"run/{key_of(folder)}/rows?{urlencode(asked, errors='surrogatepass')}")
    assert (answer.status, answer.getheader("Content-Type")) == (200, "application/json"), text
    found: dict[str, Any] = json.loads(text)
    return found


def ids(found: dict[str, Any]) -> list[str]:
    return [row["id"] for row in found["rows"]]


# --- what is let in ---


def test_this_machine_alone(runs: dict[str, Path], serve: Serve) -> None:
    server = serve(runs["a"].parent.parent)
    assert server.socket.getsockname()[0] == "127.0.0.1"
    own = server.server_port
    assert [ask(server, "", host)[0].status for host in (f"localhost:{own}", "127.0.0.1:1", "localhost")] == [200] * 3
    for host in (
        f"evil.example:{own}", "", "127.0.0.1.evil.example", "[::1]", f"10.0.0.1:{own}", "localhost@evil",
        "evil@localhost", "[", "localhost:x",
    ):  # fmt: skip
        answer, text = ask(server, "", host or " ")
        assert (answer.status, "quiz" in text) == (403, False), host


def test_who_does_not_know_the_address_sees_nothing(runs: dict[str, Path], serve: Serve) -> None:
    server = serve(runs["a"])
    for path in ("/", f"/{server.secret[:-1]}/", f"/{server.secret}", "/%00/", "//evil.example/", "/[", "//["):
        answer, text = ask(server, path)
        assert (answer.status, "quiz" in text) == (404, False), path
        assert "Open the whole address" in text
    assert ask(server, "/favicon.ico")[0].status == 204  # browsers ask by themselves; there is none
    assert len(server.secret) >= 22  # 128 bits
    assert serve(runs["a"]).secret != server.secret


@pytest.mark.parametrize(
    "path",
    [
        "run/../../run.json", "run/%2e%2e/rows", "../runs/", "run/{key}/run.json", "run/{key}", "run/{key}/../../",
        "run//", "models/{key}/", "run/{folder}/", "x", "run/{key}/rows/../../../../etc/passwd",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(path: str, runs: dict[str, Path], serve: Serve) -> None:
    server = serve(runs["a"])
    answer, text = ask(server, path.format(key=key_of(runs["a"]), folder=runs["a"]))
    assert answer.status == 404
    assert "There is no such page" in text or text == "this run is not there any more"


def test_get_and_no_more(runs: dict[str, Path], serve: Serve) -> None:
    server = serve(runs["a"])
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"):
        answer, _ = ask(server, "", method=method)
        assert (answer.status, answer.getheader("Allow")) == (405, "GET")
    answer, text = ask(server, f"run/{key_of(runs['a'])}/")
    assert answer.getheader("Access-Control-Allow-Origin") is None
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Content-Security-Policy") == "frame-ancestors 'none'"
    assert "connect-src 'self'; base-uri 'none'; form-action 'self'" in unescape(text)


# --- what is found ---


def expected(folder: Path, test: Callable[[dict[str, Any], dict[str, Any]], bool]) -> list[str]:
    """The samples whose rows of samples.jsonl.gz and scores.jsonl pass, in order."""
    samples = map(json.loads, gzip.decompress((folder / "samples.jsonl.gz").read_bytes()).splitlines())
    scores = map(json.loads, (folder / "scores.jsonl").read_bytes().splitlines())
    return [sample["sample_id"] for sample, score in zip(samples, scores, strict=True) if test(sample, score)]


def test_filters_of_choices_find_what_the_run_folder_says(runs: dict[str, Path], serve: Serve) -> None:
    server, folder = serve(runs["a"].parent.parent), runs["a"]

    def read(row: dict[str, Any]) -> str:
        return str(row["parsed"])

    for asked, wanted in (
        ({}, ["default:0", "default:1", "default:2", "default:3", "default:4"]),
        ({"outcome": "right"}, expected(folder, lambda sample, score: read(score) == sample["gold"])),
        ({"outcome": "wrong"}, expected(folder, lambda sample, score: read(score) != sample["gold"])),
        ({"outcome": "unparsed"}, ["default:2"]),
        ({"outcome": "truncated", "subset": "default"}, ["default:2"]),
        ({"subset": "other"}, []),
        ({"by.topic": "birds"}, expected(folder, lambda sample, _: sample["groups"]["topic"] == "birds")),
        ({"by.nothing": "birds"}, []),
        ({"by.topic": "birds", "outcome": "right"}, ["default:4"]),
        ({"gold": "A"}, ["default:0", "default:3"]),
        ({"gold": "A", "read": "C"}, ["default:3"]),
        ({"read": ""}, ["default:2"]),
        ({"unknown": "x"}, ["default:0", "default:1", "default:2", "default:3", "default:4"]),
    ):
        found = rows(server, folder, **asked)
        assert (ids(found), found["matched"], found["of"]) == (wanted, len(wanted), 5), asked
    assert len(ids(rows(server, folder, outcome="right"))) == 3


def test_filters_of_entities(runs: dict[str, Path], serve: Serve) -> None:
    """Gold: Ann Lee (PER), Paris (LOC), none. Read: Ann (PER), Paris (PER), came (LOC) and an invented PER."""
    server, folder = serve(runs["names"]), runs["names"]
    for asked, wanted in (
        ({"type": "LOC"}, [1, 2]),
        ({"type": "PER", "outcome": "invented"}, [2]),
        ({"gold": "LOC", "read": "PER"}, [1]),
        ({"gold": "PER", "read": "PER", "ends": "same"}, []),
        ({"gold": "PER", "read": "PER", "ends": "other"}, [0]),
        ({"gold": ""}, [2]),
        ({"gold": "", "read": "PER"}, [2]),  # the invented one
        ({"gold": "", "ends": "other"}, []),  # what is not there has no ends
        ({"read": ""}, []),
        ({"ends": "same"}, [1]),
    ):
        assert ids(rows(server, folder, **asked)) == [f"default:{n}" for n in wanted], asked


def test_search_in_all_that_was_said(runs: dict[str, Path], serve: Serve) -> None:
    server, folder = serve(runs["a"]), runs["a"]
    for sought, wanted in (
        ("question 3", [3]),
        ("QUESTION 3?\n", [3]),
        ("one 1", [1]),  # in the prompt alone
        ("One of A", [0, 1, 2, 3, 4]),
        ("default:4", [4]),
        ("</SCRIPT><b>", [4]),
        ("i\u0307", [4]),  # a capital I with a dot, in small letters
        ("%", []),
        ("'; DROP TABLE rows; --", []),
        ("", [0, 1, 2, 3, 4]),
    ):
        assert ids(rows(server, folder, q=sought)) == [f"default:{n}" for n in wanted], sought
    answer, text = ask(server, f"run/{key_of(folder)}/rows?q={'x' * 201}")
    assert (answer.status, text) == (409, "search for at most 200 characters; these are 201")


def test_a_row_is_that_of_the_page(runs: dict[str, Path], serve: Serve) -> None:
    server, folder = serve(runs["a"]), runs["a"]
    (row,) = rows(server, folder, id="default:4")["rows"]
    assert (row["reply"], row["read"], row["gold"], row["choices"]) == (ODD, "B", "B", ["one 4", "two 4", "three 4"])
    assert row["prompt"] == "Q: Question 4?\nA) one 4\nB) two 4\nC) three 4\nOne of A,B,C."
    assert rows(server, folder, id="default:5") == {"rows": []}


def many(n: int, prompt: Callable[[int], str] = "shots, shots, shots. Question {}?".format) -> Iterator[SampleResult]:
    for i in range(n):
        tally, read = {"answer": Tally(i % 3 == 0, 1, 1)}, "A" if i % 3 == 0 else "B"
        reply = Completion(f"s:{i}", f"ANSWER: {read}", "stop")
        score = Score(f"s:{i}", read, tally)
        yield SampleResult(f"s:{i}", "s", {}, f"Question {i}?", (), ("x", "y"), "A", prompt(i), True, reply, score)


def test_pages_hold_every_row_once() -> None:
    table = Rows(many(1000))
    wanted = {"outcome": "wrong"}
    found = [table.find(wanted, offset, 50) for offset in range(0, 700, 50)]
    names = [row["id"] for each in found for row in each.rows]
    assert names == [f"s:{i}" for i in range(1000) if i % 3]
    assert {(each.matched, each.of) for each in found} == {(666, 1000)}
    around = table.find(wanted, 0, 50, "s:500")  # 333 wrong ones are before it
    assert (around.offset, around.rows[33]["id"]) == (300, "s:500")
    assert table.find(wanted, 50, 50, "s:0").offset == 50  # it is right
    assert table.find(wanted, 700, 50).rows == []
    for offset, limit in ((-1, 50), (0, 0), (0, 201)):
        with pytest.raises(LocalevalError, match="expected up to 200 rows"):
            table.find({}, offset, limit)
    table.close()


def test_what_prompts_share_is_kept_once_and_found_in_each() -> None:
    head = "Shown: what is the capital of Peru? " * 100

    def prompt(i: int) -> str:
        return f"{head}{'Now' if i % 2 else 'Then'}: question {i}?"

    table = Rows(many(60, prompt))
    assert [row["prompt"] for row in table.find({}, 0, 60).rows] == [prompt(i) for i in range(60)]
    for sought, number in (("CAPITAL of peru", 60), ("peru? now", 30), ("peru? then: question 8?", 1), ("lima", 0)):
        assert table.find({"q": sought}, 0, 60).matched == number, sought
    assert table.find({"q": (head[-150:] + "Now: question 1?").lower()}, 0, 60).matched == 1
    table.close()


def test_a_sample_of_other_beginnings_each() -> None:
    table = Rows(many(50, lambda i: f"{chr(200 + i)} {i}"))
    assert [row["prompt"] for row in table.find({}, 0, 50).rows] == [f"{chr(200 + i)} {i}" for i in range(50)]
    assert table.find({"q": " 7"}, 0, 50).matched == 1
    table.close()


# --- pages ---


def test_all_runs_and_those_that_are_none(runs: dict[str, Path], serve: Serve, tmp_path: Path) -> None:
    facts = json.loads((runs["b"] / "run.json").read_text())
    (runs["b"] / "run.json").write_text(json.dumps({**facts, "complete": False}))
    (runs["names"] / "run.json").write_text("[]")
    server = serve(tmp_path / "runs")
    text = ask(server, "")[1]
    assert f'href="run/{key_of(runs["a"])}/"' in text
    assert "0.6000" in text
    assert "not finished: the same command goes on with it" in text
    assert "run.json: expected an object" in text
    answer, text = ask(server, f"run/{key_of(runs['b'])}/")
    assert (answer.status, "not finished: the same command goes on with it" in text) == (409, True)
    (runs["b"] / "run.json").write_text(json.dumps(facts))  # it goes on, and ends
    assert f'href="run/{key_of(runs["b"])}/"' in ask(server, "")[1]
    (runs["a"] / "samples.jsonl.gz").unlink()
    answer, text = ask(server, f"run/{key_of(runs['a'])}/")
    assert (answer.status, "localeval score RUN_DIR writes it where the data is" in text) == (409, True)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("report.json", "dataset", None),
        ("report.json", "mode", ["generate"]),
        ("report.json", "n", None),
        ("report.json", "n", "five"),
        ("report.json", "metrics", {"accuracy": 0.6}),
        ("report.json", "counts", []),
        ("run.json", "config", None),
        ("run.json", "asked", None),
        ("run.json", "mode", "chat"),
        ("run.json", "seconds", "long"),
        ("run.json", "engine", 7),
    ],
)
def test_one_run_of_another_version_hides_no_other(
    name: str, field: str, value: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    file = runs["b"] / name
    content = {**json.loads(file.read_text()), field: value}
    file.write_text(json.dumps({key: each for key, each in content.items() if key != field or value is not None}))
    viewer = Viewer([tmp_path / "runs"])
    home = viewer.answer("", "")
    assert (home.status, f'href="run/{key_of(runs["a"])}/"' in home.body.decode()) == (200, True)
    keys = [key_of(runs[which]) for which in ("a", "b")]
    shown = viewer.answer(f"run/{keys[1]}/", "")
    assert (shown.status, "is not one of this version" in shown.body.decode()) == (409, True)
    assert viewer.answer(f"run/{keys[1]}/rows", "").status in (200, 404, 409)
    assert viewer.answer("compare", f"run={keys[0]}&run={keys[1]}").status in (200, 409)
    viewer.close()


def test_models_of_one_name_are_told_apart(runs: dict[str, Path], tmp_path: Path) -> None:
    assert f"{runs['b'].parent.name}/{runs['b'].name}</span>" not in home(tmp_path / "runs")
    facts = json.loads((runs["b"] / "run.json").read_text())
    (runs["b"] / "run.json").write_text(json.dumps({**facts, "model": {**facts["model"], "name": "a"}}))
    assert f"{runs['b'].parent.name}/{runs['b'].name}</span>" in home(tmp_path / "runs")


def home(place: Path) -> str:
    return Viewer([place]).answer("", "").body.decode()


def test_samples_of_another_run_are_refused(runs: dict[str, Path]) -> None:
    shutil.copy(runs["names"] / "samples.jsonl.gz", runs["a"])
    file = runs["a"] / "scores.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))
    viewer = Viewer([runs["a"]])
    assert viewer.answer(f"run/{key_of(runs['a'])}/rows", "").status == 409
    viewer.close()


def test_an_address_of_many_parts_is_answered(runs: dict[str, Path], serve: Serve) -> None:
    assert ask(serve(runs["a"]), "?" + "a&" * 20_000)[0].status == 200


def test_rows_that_are_closed_say_so() -> None:
    table = Rows(many(3))
    table.close()
    for asked in (lambda: table.find({}, 0, 50), lambda: table.row("s:0")):
        with pytest.raises(LocalevalError, match="load the page again"):
            asked()


def test_a_run_that_is_scored_anew_is_read_anew(runs: dict[str, Path], serve: Serve) -> None:
    server, folder = serve(runs["a"]), runs["a"]
    assert rows(server, folder, outcome="right")["matched"] == 3
    file = folder / "scores.jsonl"
    text = file.read_text().replace(
        '"parsed": "C", "tallies": {"answer": [0, ', '"parsed": "A", "tallies": {"answer": [1, '
    )
    file.write_text(text)
    assert rows(server, folder, outcome="right")["matched"] == 4


def test_one_run_alone_is_where_it_begins(runs: dict[str, Path], serve: Serve) -> None:
    server = serve(runs["a"])
    assert urlsplit(server.address).path == f"/{server.secret}/run/{key_of(runs['a'])}/"
    assert urlsplit(serve(runs["a"], runs["b"]).address).path.count("/") == 2
    text = ask(server, f"run/{key_of(runs['a'])}/")[1]
    assert '"rows_at":"rows"' in text
    assert "right (3)" in text  # counted over all of them
    assert 'id="rows"' not in text  # they are asked for


def test_compare_in_words_where_it_can_not_be(runs: dict[str, Path], serve: Serve) -> None:
    server = serve(runs["a"].parent.parent)
    keys = {name: key_of(folder) for name, folder in runs.items()}
    text = ask(server, f"compare?run={keys['a']}&run={keys['b']}&baseline=best")[1]
    assert "★ best" in text
    assert f'href="run/{keys["a"]}/#sample=default%3A0"' in text
    assert "not compared" not in text
    report = json.loads((runs["b"] / "report.json").read_text())
    (runs["b"] / "report.json").write_text(json.dumps({**report, "reading": 0}))
    text = ask(server, f"compare?run={keys['a']}&run={keys['b']}")[1]
    assert "not compared: b and a did not ask quiz alike" in text
    forced = f"compare?run={keys['a']}&amp;run={keys['b']}&amp;baseline=first&amp;force=1"
    assert f'href="{forced}"' in text
    assert "b did not ask the same: reading rules" in ask(server, forced.replace("&amp;", "&"))[1]
    assert (
        ask(server, f"compare?run={keys['a']}&run={keys['names']}")[0].status == 200
    )  # nothing to compare: two tables
    for query in ("", "run=0123456789abcdef", "run=../../x"):
        answer, text = ask(server, f"compare?{query}")
        assert (answer.status, "choose the runs that are to be compared" in text) == (409, True)


def test_several_models_of_one_command(runs: dict[str, Path], serve: Serve) -> None:
    folder = runs["a"].parent.parent / "checkpoints-0a1b2c3d"
    folder.mkdir()
    row: dict[str, Any] = {"series": "x", "state": "", "served": None}
    done = [
        {**row, "asked": f"x/{n}", "label": n, "step": s, "reason": None, "runs": [str(runs[n])]}
        for n, s in (("a", 1), ("b", 2))
    ]
    bad = {**row, "asked": "x/c", "label": "c", "step": 3, "reason": "no room", "runs": []}
    (folder / "checkpoints.jsonl").write_text("".join(json.dumps(each) + "\n" for each in [*done, bad]))
    server = serve(folder.parent)
    assert f'href="models/{key_of(folder)}/"' in ask(server, "")[1]
    text = ask(server, f"models/{key_of(folder)}/")[1]
    assert "failed: c: no room" in text
    assert f'href="../../run/{key_of(runs["b"])}/"' in text
    moved = [{**each, "runs": [f"/gone/{runs[each['label']].parent.name}/{runs[each['label']].name}"]} for each in done]
    (folder / "checkpoints.jsonl").write_text("".join(json.dumps(each) + "\n" for each in moved))
    assert f'href="../../run/{key_of(runs["b"])}/"' in ask(server, f"models/{key_of(folder)}/")[1]
    (folder / "checkpoints.jsonl").write_bytes(b"\xff\n")
    assert "can&#39;t decode byte 0xff" in ask(server, "")[1]
    (folder / "checkpoints.jsonl").write_text("{}\n")
    assert "not a checkpoint&#39;s row" in ask(server, "")[1]
    assert ask(server, f"models/{key_of(folder)}/")[0].status == 409


def test_a_page_waits_for_its_samples(runs: dict[str, Path], serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says how far they are read."""
    monkeypatch.setattr(viewer_module, "_AT_ONCE", 0.0)
    reading, go_on = socket.socketpair()

    def slow(folder: Path) -> Iterator[SampleResult]:
        yield from many(5)
        reading.recv(1)

    monkeypatch.setattr(viewer_module, "read_results", slow)
    server = serve(runs["a"])
    answer, text = ask(server, f"run/{key_of(runs['a'])}/")
    assert (answer.status, answer.getheader("Refresh")) == (200, "1")
    assert "of 5 samples of quiz: a are read." in text
    go_on.send(b".")
    monkeypatch.setattr(viewer_module, "_AT_ONCE", 10.0)
    assert '"rows_at":"rows"' in ask(server, f"run/{key_of(runs['a'])}/")[1]
    reading.close()
    go_on.close()


# --- how it begins and ends ---


def test_what_can_not_begin(tmp_path: Path, runs: dict[str, Path]) -> None:
    with pytest.raises(LocalevalError, match="nowhere: there is no such folder"):
        view([str(tmp_path / "nowhere")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(LocalevalError, match="empty: no run is there or below"):
        view([str(tmp_path / "empty")])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalevalError, match=f"--port {port}: Address already in use; name another one"):
            view([str(runs["a"])], port)
    with pytest.raises(LocalevalError, match="--port 65536: expected 0"):
        view([str(runs["a"])], 65536)


def test_a_browser_is_opened_where_one_can_be_seen(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def interrupted(self: Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    monkeypatch.setattr("webbrowser.open", opened.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    view([str(runs["a"])])
    monkeypatch.setenv("DISPLAY", ":0")
    view([str(runs["a"])])  # the standard output is no terminal
    view([str(runs["a"])], open_browser=False)
    assert opened == []
    view([str(runs["a"])], open_browser=True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    view([str(runs["a"])])
    assert len(opened) == 2
    assert all(address.startswith("http://127.0.0.1:") for address in opened)
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")  # it would open where nobody sits
    view([str(runs["a"])])
    assert len(opened) == 2


def test_it_says_where_it_is_and_ends_with_a_signal(runs: dict[str, Path]) -> None:
    environment = {**os.environ, "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22"}
    words = [sys.executable, "-m", "localeval", "view", str(runs["a"])]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=environment, **pipes) as started:  # type: ignore[call-overload]
        assert started.stdout
        address = urlsplit(started.stdout.readline().strip())
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=10)
        connection.request("GET", address.path)
        assert connection.getresponse().status == 200
        connection.close()
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=20)
    assert started.returncode == 0
    assert f"ssh -L {address.port}:127.0.0.1:{address.port} THIS_MACHINE" in said
    assert "Traceback" not in said
