"""A bundle: what its manifest may say, whether it is whole, and how runs find what is in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localeval import run_task, score_run
from localeval.bundle import (
    BundledFile,
    Item,
    find_item,
    folder_of,
    origin_of,
    problems,
    read_manifest,
    safe_path,
    with_item,
    write_manifest,
)
from localeval.cli import main
from localeval.config import TaskConfig
from localeval.datasets.source import find_root
from localeval.datasets.spec import SAMPLES, find_spec
from localeval.jobs import load_jobs
from localeval.model_names import ModelSpec
from localeval.schema import LocalevalError
from localeval.weights import Sources, find_weights
from tests.conftest import QUESTIONS, Replies
from tests.test_weights import folder as model_folder
from tests.test_weights import tensors

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def pack(bundle: Path, kind: Any, name: str, content: dict[str, bytes]) -> Item:
    """Lays an item into a bundle, as a fetch does."""
    item_folder = {"dataset": f"datasets/{name}", "model": f"models/{name}", "wheels": "wheels"}[kind]
    for path, data in content.items():
        file = bundle / item_folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    files = tuple(BundledFile(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in content.items())
    item = Item(kind, name, item_folder, "huggingface", f"some/{name}", COMMIT, "mit", "https://somewhere", files)
    known = read_manifest(bundle) if (bundle / "bundle.json").exists() else ()
    write_manifest(bundle, with_item(known, item))
    return item


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A dataset of two files, one in a folder of its own, and a model."""
    pack(tmp_path / "bundle", "dataset", "quiz", {"Hindi/test.jsonl": b"rows", "README.md": b"words"})
    pack(tmp_path / "bundle", "model", "some/model", {"config.json": b"{}"})
    return tmp_path / "bundle"


# --- the manifest ---


def test_a_manifest_says_what_was_written(bundle: Path) -> None:
    told = json.loads((bundle / "bundle.json").read_text())
    assert told["format"] == 1
    assert [(item["kind"], item["name"], item["folder"]) for item in told["items"]] == [
        ("dataset", "quiz", "datasets/quiz"),
        ("model", "some/model", "models/some/model"),
    ]
    digest = "bc51e9e65d79e1c90ba544ab2eae1044ccdf8c1af7a559ba375cba4276f7d99e"  # printf rows | sha256sum
    assert told["items"][0]["files"][0] == {"path": "Hindi/test.jsonl", "size": 4, "sha256": digest}
    item = find_item(bundle, "dataset", "quiz")
    assert item is not None
    assert (item.size, item.licence, item.origin) == (
        9, "mit", {"hub": "huggingface", "id": "some/quiz", "revision": COMMIT},
    )  # fmt: skip
    assert find_item(bundle, "model", "quiz") is None
    assert list(bundle.glob(".*")) == []


def test_one_item_takes_the_place_of_its_like(bundle: Path) -> None:
    items = read_manifest(bundle)
    newer = replace(items[0], revision="newer")
    write_manifest(bundle, with_item(items, newer))
    assert [item.revision for item in read_manifest(bundle)] == ["newer", COMMIT]


@pytest.mark.parametrize("path", ["a", "a/b.txt", "हिन्दी/test 1.txt", "..a", "a..", "~/a", "a/.b"])
def test_paths_that_stay_inside(path: str) -> None:
    assert safe_path(path) == path


def test_the_joiners_of_indic_scripts_may_be_in_a_name() -> None:
    assert safe_path("ক্\u200dষ/ന്\u200c.txt") == "ক্\u200dষ/ന്\u200c.txt"


HOSTILE = [
    "",
    "/etc/passwd",
    "..",
    "a/../../b",
    "a/..",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "a\\..\\b",
    "a\0b",
    "a\nb",
    "\x1b[2J",
]


@pytest.mark.parametrize("path", [*HOSTILE, "a\udc80", "a/" * 8_000 + "a"])
def test_paths_that_could_leave(path: str) -> None:
    with pytest.raises(LocalevalError, match="no path inside a folder"):
        safe_path(path)


def _first(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda told: told["items"][0].update(changes)


def _file(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda told: told["items"][0]["files"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *[(_file(path=path), "no path inside a folder") for path in HOSTILE],
        *[(_first(folder=path), "no path inside a folder") for path in HOSTILE],
        (_first(folder="models/quiz"), "its folder is 'models/quiz', not 'datasets/quiz'"),
        (_first(folder="datasets/other"), "its folder is 'datasets/other', not 'datasets/quiz'"),
        (_first(name="../quiz", folder="datasets/../quiz"), "no path inside a folder"),
        (_first(kind="weights"), r"items.0.kind: Input should be 'dataset', 'model' or 'wheels'"),
        (_first(name=""), "has no name"),
        (_first(name="a\x1b[31m"), "can't be printed"),
        (_first(licence="a\nb"), "can't be printed"),
        (_first(files=[]), "it names no file"),
        (_first(name="some/model", kind="model", folder="models/some/model"), "there twice"),
        (_file(path="README.md"), "one twice"),
        (_file(path="README.md/inside"), "one inside another"),
        (_file(size=-1), "size -1"),
        (_file(size=1.5), r"items.0.files.0.size"),
        (_file(size=True), r"items.0.files.0.size"),
        (_file(size="4"), r"items.0.files.0.size"),
        (_file(sha256="00"), "sha256 '00'"),
        (_file(sha256="A" * 64), "sha256 'AAAA"),
        (lambda told: told["items"][0].pop("revision"), r"items.0.revision: Field required"),
        (lambda told: told.update(format=2), "format 2, and this localeval reads 1"),
        (lambda told: told.pop("format"), "format: Field required"),
        (lambda told: told.update(items={}), "items: Input should be a valid"),
    ],
)
def test_a_hostile_manifest_is_refused(bundle: Path, change: Callable[[dict[str, Any]], Any], said: str) -> None:
    told = json.loads((bundle / "bundle.json").read_text())
    told["items"][0]["files"].sort(key=lambda file: file["path"])  # Hindi/test.jsonl, README.md
    change(told)
    (bundle / "bundle.json").write_text(json.dumps(told))
    with pytest.raises(LocalevalError, match=said) as refused:
        read_manifest(bundle)
    assert str(bundle / "bundle.json") in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "not JSON"), ("[" * 100_000, "not JSON"), ("[]", "Input should be"), ('{"format": NaN}', "bundle.json")],
)
def test_a_manifest_that_is_none(bundle: Path, text: str, said: str) -> None:
    (bundle / "bundle.json").write_text(text)
    with pytest.raises(LocalevalError, match=said):
        read_manifest(bundle)


def test_a_manifest_is_a_plain_file(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(LocalevalError, match=r"is no bundle: it holds no bundle\.json"):
        read_manifest(tmp_path)
    with pytest.raises(LocalevalError, match=r"bundle\.json is no bundle: it holds no bundle\.json"):
        read_manifest(bundle / "bundle.json")
    (bundle / "bundle.json").rename(tmp_path / "elsewhere.json")
    (bundle / "bundle.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(LocalevalError, match="no plain file"):
        read_manifest(bundle)
    (bundle / "bundle.json").unlink()
    os.mkfifo(bundle / "bundle.json")
    with pytest.raises(LocalevalError, match="no plain file"):
        read_manifest(bundle)


def test_what_would_not_be_read_is_not_written(bundle: Path) -> None:
    before = (bundle / "bundle.json").read_text()
    item = read_manifest(bundle)[0]
    with pytest.raises(LocalevalError, match="no path inside a folder"):
        write_manifest(bundle, [replace(item, files=(replace(item.files[0], path="../x"),))])
    assert (bundle / "bundle.json").read_text() == before


# --- whole or not ---


def _link(place: Path, target: Path) -> None:
    if place.is_dir():
        place.rename(target)
    else:
        place.unlink()
    place.symlink_to(target)


def _instead(place: Path, make: Callable[[Path], None]) -> None:
    place.unlink()
    make(place)


def _instead_of_all(place: Path) -> None:
    shutil.rmtree(place)
    place.touch()


ROWS = "datasets/quiz/Hindi/test.jsonl"
SEEN: list[tuple[str, Callable[[Path, Path], Any], str, str]] = [
    ("missing", lambda b, _: (b / ROWS).unlink(), ROWS, "missing"),
    ("cut", lambda b, _: (b / ROWS).write_bytes(b"row"), ROWS, "3 bytes instead of 4"),
    ("a link", lambda b, t: _link(b / ROWS, t / "x"), ROWS, "is a link, and nothing in a bundle may be one"),
    ("a linked folder", lambda b, t: _link(b / "datasets/quiz/Hindi", t / "x"), ROWS, "datasets/quiz/Hindi is a link"),
    ("a linked item", lambda b, t: _link(b / "datasets/quiz", t / "x"), ROWS, "datasets/quiz is a link"),
    ("a linked top", lambda b, t: _link(b / "datasets", t / "x"), ROWS, "datasets is a link"),
    ("a pipe", lambda b, _: _instead(b / ROWS, os.mkfifo), ROWS, "no plain file"),
    ("a folder", lambda b, _: _instead(b / ROWS, Path.mkdir), ROWS, "no plain file"),
    ("a file for a folder", lambda b, _: _instead_of_all(b / "datasets"), ROWS, "missing"),
    (
        "another file", lambda b, _: (b / "datasets/quiz/Hindi/train.jsonl").touch(),
        "datasets/quiz/Hindi/train.jsonl", "names no such file; take it away",
    ),
    (
        "a link beside", lambda b, _: (b / "datasets/quiz/more").symlink_to("/etc"),
        "datasets/quiz/more", "names no such file; take it away",
    ),
    (
        "a name for the terminal", lambda b, _: (b / "datasets/quiz/\x1b[2J\n").touch(),
        r"'datasets/quiz/\x1b[2J\n'", "names no such file; take it away",
    ),
]  # fmt: skip


def test_who_stops_the_reading_waits_for_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localeval.bundle._BLOCK", 1)
    monkeypatch.setattr("localeval.bundle.os.cpu_count", lambda: 2)
    pack(tmp_path, "model", "a/large", {"one": b"x" * 5000, "two": b"x" * 5000})
    read, reader = 0, threading.get_ident()

    def progress(count: int) -> None:
        nonlocal read
        read += count
        if read == 10:
            signal.pthread_kill(reader, signal.SIGINT)  # as Ctrl-C does
        time.sleep(0.001)

    with pytest.raises(KeyboardInterrupt):
        problems(tmp_path, progress)
    assert read < 5000


@pytest.mark.parametrize(("change", "path", "said"), [row[1:] for row in SEEN], ids=[row[0] for row in SEEN])
def test_what_is_wrong_is_seen(
    bundle: Path, tmp_path: Path, change: Callable[[Path, Path], Any], path: str, said: str
) -> None:
    assert problems(bundle, lambda _: None) == []
    item = find_item(bundle, "dataset", "quiz")
    assert item is not None
    assert folder_of(bundle, item) == bundle / "datasets/quiz"
    change(bundle, tmp_path)
    with pytest.raises(LocalevalError, match=said) as refused:
        folder_of(bundle, item)
    assert f"localeval fetch --datasets quiz --to {bundle} --dataset-hub huggingface" in str(refused.value)
    found = problems(bundle, lambda _: None)
    assert any(line.startswith(f"{path}: ") and said in line for line in found), found


def test_other_bytes_of_the_same_length_are_seen_by_verify(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "verify", str(bundle)]) == 0
    assert capsys.readouterr().out == "2 items, 3 files, 11 bytes: whole\n"
    (bundle / ROWS).write_bytes(b"rowz")
    (bundle / "stray").touch()
    assert main(["bundle", "verify", str(bundle)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{ROWS}: other bytes than the manifest's SHA-256 says; bring it again: "
        f"localeval fetch --datasets quiz --to {bundle} --dataset-hub huggingface",
        "stray: bundle.json names no such file; take it away",
        "2 items, 3 files, 11 bytes: 2 problems",
    ]
    assert main(["bundle", "verify", str(bundle / "datasets")]) == 2


def test_progress_counts_every_byte(bundle: Path) -> None:
    counted: list[int] = []
    problems(bundle, counted.append)
    assert sum(counted) == 11
    (bundle / ROWS).unlink()
    counted.clear()
    problems(bundle, counted.append)
    assert sum(counted) == 11


def test_what_is_in_it(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "list", str(bundle)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:] == [
        ["dataset", "quiz", COMMIT, "mit", "2", "9", "bytes"],
        ["model", "some/model", COMMIT, "mit", "1", "2", "bytes"],
    ]


def test_wheels_of_two_kinds_lie_in_one_folder(bundle: Path) -> None:
    both = [pack(bundle, "wheels", kind, {"uv.whl": b"uv", f"{kind}.txt": b"pins"}) for kind in ("cpu", "gpu")]
    assert [folder_of(bundle, item) for item in both] == [bundle / "wheels"] * 2
    assert problems(bundle, lambda _: None) == []
    (bundle / "wheels" / "more.whl").symlink_to("/etc/passwd")
    with pytest.raises(LocalevalError, match=r"more\.whl"):
        folder_of(bundle, both[0])


# --- datasets by their names ---


def rows_of(texts: list[str]) -> bytes:
    rows = [{**row, "question": text} for row, text in zip(QUESTIONS, texts, strict=False)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def asked(**fields: Any) -> str:
    """The first question, where the config finds the dataset."""
    (job,) = load_jobs(TaskConfig(engine="replay:x", **fields).with_absolute_paths())
    return job.dataset.samples[0].text


def test_where_a_dataset_is_looked_for_first(
    mcq_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, beside = tmp_path / "named", tmp_path / "all"
    for place, text in ((named, "local_path?"), (beside / "quiz", "dataset_dir?")):
        place.mkdir(parents=True)
        (place / "test.jsonl").write_bytes(rows_of([text]))
    for number in (1, 2):
        pack(tmp_path / f"b{number}", "dataset", "quiz", {"test.jsonl": rows_of([f"bundle {number}?"])})
    fields: dict[str, Any] = {"datasets": str(mcq_dataset)}
    assert asked(**fields) == "Question 0?"
    monkeypatch.setenv("LOCALEVAL_HOME", str(tmp_path / "b1"))
    assert asked(**fields) == "bundle 1?"
    fields["bundle"] = str(tmp_path / "b2")
    assert asked(**fields) == "bundle 2?"
    fields["dataset_dir"] = str(beside)
    assert asked(**fields) == "dataset_dir?"
    fields["dataset_args"] = {"quiz": {"local_path": str(named)}}
    assert asked(**fields) == "local_path?"
    # A bundle without it is passed over, and the next place is asked.
    pack(tmp_path / "b3", "dataset", "other", {"x": b"x"})
    assert asked(datasets=str(mcq_dataset), bundle=str(tmp_path / "b3")) == "Question 0?"


def test_what_is_missing_names_the_bundle_and_the_command(bundle: Path) -> None:
    with pytest.raises(LocalevalError) as refused:
        find_root(find_spec("milu"), None, None, bundle)
    assert f"\n  {bundle / 'datasets/milu'}\n" in str(refused.value)
    assert "localeval fetch --datasets milu --to DIR" in str(refused.value)
    with pytest.raises(LocalevalError) as refused:
        find_weights("some/other", Sources({}, bundle=bundle), print)
    assert f"\n  {bundle} (a bundle)\n" in str(refused.value)
    assert "localeval fetch --models some/other --to DIR" in str(refused.value)


def test_a_relative_bundle_is_recorded_absolutely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = TaskConfig(model="m", datasets=["milu"], bundle="b")
    assert config.with_absolute_paths().bundle == str(tmp_path / "b")
    monkeypatch.setenv("LOCALEVAL_HOME", "home")
    assert TaskConfig(model="m", datasets=["milu"]).with_absolute_paths().bundle == str(tmp_path / "home")
    assert config.with_absolute_paths().bundle == str(tmp_path / "b")


def test_a_run_from_a_bundle_is_the_same_run(mcq_dataset: Path, replies: Replies, tmp_path: Path) -> None:
    rows = (tmp_path / "rows/test.jsonl").read_bytes()
    pack(tmp_path / "bundle", "dataset", "quiz", {"test.jsonl": rows})
    said = replies({f"default:{row}": f"ANSWER: {letter}" for row, letter in enumerate("ABCAB")})
    fields: dict[str, Any] = {
        "engine": f"replay:{said}",
        "datasets": [str(mcq_dataset)],
        "work_dir": str(tmp_path / "r"),
    }
    (plain,) = run_task(fields).runs
    told = json.loads((plain.folder / "run.json").read_text())
    keys = [json.loads(line)["key"] for line in (plain.folder / "predictions.jsonl").read_text().splitlines()]
    assert told["dataset"]["bundle"] is None

    bundle = tmp_path / "bundle"
    (bundled,) = run_task({**fields, "bundle": str(bundle)}).runs
    assert bundled.folder == plain.folder
    assert bundled.report.counts["reused"] == 5
    again = json.loads((plain.folder / "run.json").read_text())
    assert again["dataset"]["bundle"] == {"hub": "huggingface", "id": "some/quiz", "revision": COMMIT}
    assert again["dataset"]["fingerprints"] == told["dataset"]["fingerprints"]
    assert again["dataset"]["files"] != told["dataset"]["files"]
    assert [json.loads(line)["key"] for line in (plain.folder / "predictions.jsonl").read_text().splitlines()] == keys

    # The bundle moves, and the YAML file's own rows go: the run is scored from where the bundle is now.
    bundle.rename(tmp_path / "moved")
    (tmp_path / "rows").rename(tmp_path / "gone")
    with pytest.raises(LocalevalError, match="dataset quiz was not found"):
        score_run(plain.folder)
    assert main(["score", str(plain.folder), "--bundle", str(tmp_path / "moved")]) == 0
    (tmp_path / "moved/datasets/quiz/test.jsonl").write_bytes(rows + b"\n")
    assert main(["score", str(plain.folder), "--bundle", str(tmp_path / "moved")]) == 2


def test_built_in_datasets_are_found_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        p.relative_to(SAMPLES / "milu").as_posix(): p for p in sorted((SAMPLES / "milu").rglob("*")) if p.is_file()
    }
    pack(tmp_path / "b", "dataset", "milu", {name: path.read_bytes() for name, path in files.items()})
    assert main(["list", "milu", "--stats", "--bundle", str(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    assert main(["list", "milu", "--stats", "--samples"]) == 0
    samples = capsys.readouterr().out  # which are held against nothing that is published
    assert shown.startswith(samples + "\nnot as published (EvalScope")
    monkeypatch.setenv("LOCALEVAL_HOME", str(tmp_path / "b"))
    assert main(["list", "milu", "--stats"]) == 0
    assert capsys.readouterr().out == shown
    name = next(iter(files))
    (tmp_path / "b/datasets/milu" / name).write_bytes(b"")
    assert main(["list", "milu", "--stats"]) == 2
    assert f"{name}: 0 bytes instead of" in capsys.readouterr().err


# --- models by their names ---


def pack_model(bundle: Path, made: Path, name: str) -> Path:
    pack(bundle, "model", name, {file.name: file.read_bytes() for file in made.iterdir()})
    return bundle / "models" / name


def test_where_a_model_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    bundle = tmp_path / "bundle"
    place = pack_model(bundle, model_folder(tmp_path / "made"), "Owner/Model-1")
    names = {"short": ModelSpec(path="Owner/Model-1", engine_args={"dtype": "float16"})}
    sources = Sources(names, bundle=bundle)
    assert find_weights("Owner/Model-1", sources, print).folder == place
    found = find_weights("short", sources, print)
    assert (found.folder, found.name, found.engine_args) == (place, "short", {"dtype": "float16"})
    assert origin_of(bundle, found.folder) == {"hub": "huggingface", "id": "some/Owner/Model-1", "revision": COMMIT}
    assert origin_of(bundle, tmp_path / "made") is None
    assert origin_of(None, place) is None

    # Of a revision that is asked for, that one alone.
    assert find_weights("Owner/Model-1", replace(sources, revision=COMMIT), print).folder == place
    with pytest.raises(LocalevalError, match=f"of revision {COMMIT}, not v2"):
        find_weights("Owner/Model-1", replace(sources, revision="v2"), print)

    (place / "config.json").write_text("{} ")
    with pytest.raises(LocalevalError, match=r"config\.json: 3 bytes instead of 2.*fetch --models Owner/Model-1"):
        find_weights("short", sources, print)
    # A folder that is named by its path goes first.
    here = model_folder(tmp_path / "Owner/Model-1")
    assert find_weights("Owner/Model-1", sources, print).folder == here


def test_an_adapter_finds_its_base_in_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALEVAL_CACHE", str(tmp_path / "cache"))
    adapter, bundle = tmp_path / "adapter", tmp_path / "bundle"
    adapter.mkdir()
    config = {"peft_type": "LORA", "r": 8, "base_model_name_or_path": "Owner/Base"}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").write_bytes(tensors(b"lora"))
    place = pack_model(bundle, model_folder(tmp_path / "base"), "Owner/Base")
    assert find_weights(str(adapter), Sources({}, bundle=bundle), print).folder == place
    lora = pack_model(bundle, adapter, "Owner/Lora")
    found = find_weights("Owner/Lora", Sources({}, bundle=bundle), print)
    assert found.adapter is not None
    assert (found.folder, found.adapter.folder, found.name) == (place, lora, "Lora")


def test_several_models_of_a_bundle_share_a_series_with_the_same_elsewhere(tmp_path: Path) -> None:
    from localeval.series import Series

    config = TaskConfig(model=["a/b", "c/d"], datasets=["milu"], work_dir=str(tmp_path))
    places = []
    for bundle in (None, "/b"):
        series = Series(config.model_copy(update={"bundle": bundle}), ["a/b", "c/d"])
        places.append(series.path)
        series._folder.close()
    assert places[0] == places[1]
