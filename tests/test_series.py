"""Several models in one command: which, in what order, what is recorded. The engine is a fake that knows answers."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from localeval import LocalevalError, run_task
from localeval.checkpoints import find_checkpoints, state_of, step_of, why_not_whole
from localeval.cli import main
from localeval.engines.base import EngineConfig, EngineDied
from localeval.engines.successive import Successive, difference_of
from tests.conftest import FakeEngine
from tests.fakes import make_adapter, make_model


def make_series(folder: Path, steps: Iterable[int], **changes: Any) -> Path:
    for step in steps:
        make_model(folder / f"checkpoint-{step}", seed=step, **changes)
    return folder


# --- which, and in what order ---


def names(asked: list[str], **known: Any) -> list[str]:
    return [each.label for each in find_checkpoints(asked, known)]


def test_patterns_folders_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("checkpoint-10", "checkpoint-9", "checkpoint-100", "final"):
        make_folder(tmp_path / "x" / name)
    (tmp_path / "x" / "logs").mkdir()
    (tmp_path / "x" / "tmp-checkpoint-11").mkdir()
    (tmp_path / "x" / "checkpoint-11.txt").touch()
    make_folder(tmp_path / "y" / "checkpoint-10")
    make_folder(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    in_order = ["checkpoint-9", "checkpoint-10", "checkpoint-100"]
    assert names(["x/checkpoint-*"]) == in_order
    assert names(["x"]) == names(["x/"]) == names(["x/*"]) == [*in_order, "final"]
    assert names(["x/checkpoint-100", "x/checkpoint-9"]) == ["checkpoint-9", "checkpoint-100"]
    assert names(["base", "x/checkpoint-*", "base"]) == ["base", *in_order]
    assert names(["x", "y"]) == ["checkpoint-9", "x/checkpoint-10", "checkpoint-100", "final", "y/checkpoint-10"]
    assert names([str(tmp_path / "x" / "checkpoint-?"), "x/checkpoint-9"]) == ["checkpoint-9"]
    assert names(["org/name", "short"], short=1) == ["name", "short"]
    assert [each.step for each in find_checkpoints(["base", "x"], {})] == [None, 9, 10, 100, None]
    assert [each.series for each in find_checkpoints(["base", "x/checkpoint-9"], {})] == ["", "x"]
    assert names([str(tmp_path / "x"), "x/checkpoint-9", "y/../x", "x/final"]) == [*in_order, "final"]
    assert {
        each.series for each in find_checkpoints([str(tmp_path / "x" / "checkpoint-9"), "x/checkpoint-10"], {})
    } == {str(tmp_path / "x")}
    for asked, said in (("x/step-*", "nothing matches"), ("x/log*", "no checkpoint matches; 1 files and folders do")):
        with pytest.raises(LocalevalError, match=said):
            names([asked])


def make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500), ("step_0200", 200), ("global_step1200", 1200), ("iter_0001000", 1000), ("ckpt3", 3),
        ("epoch=2-step=900", 900), ("Qwen2.5-7B", None), ("llama-3", None), ("final", None), ("footstep7", None),
    ],
)  # fmt: skip
def test_steps_in_names(name: str, step: int | None) -> None:
    assert step_of(Path(name)) == step


def test_the_trainers_own_word_goes_first(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "checkpoint-500")
    (folder / "trainer_state.json").write_text('{"global_step": 480}')
    assert step_of(folder) == 480
    for odd in ('{"global_st', '{"global_step": "480"}', '{"global_step": true}', '{"global_step": -1}', "[" * 100_000):
        (folder / "trainer_state.json").write_text(odd)  # the first is still being written
        assert step_of(folder) == 500


def test_whole_or_not(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", shard="60KB")
    assert why_not_whole(folder) is None
    before = state_of(folder)
    shard = sorted(folder.glob("*.safetensors"))[1]
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    assert f"{shard.name} has {len(content) - 1:,} bytes, and its header speaks of {len(content):,}" == why_not_whole(
        folder
    )
    assert state_of(folder) != before
    shard.write_bytes(content[:5])
    assert "its header can't be read" in str(why_not_whole(folder))
    shard.unlink()
    assert (
        f"1 of {len(list(folder.glob('*.safetensors'))) + 1} weight files are missing: {shard.name}"
        == why_not_whole(folder)
    )
    (folder / "config.json").unlink()
    assert why_not_whole(folder) == "no config.json"


# --- when an engine goes on ---


def test_what_keeps_weights_out_of_an_engine(tmp_path: Path) -> None:
    running = EngineConfig(tmp_path / "a", 100, frame={"config.json hidden_size": "64", "tokenizer.json": "1"})
    other = replace(running, folder=tmp_path / "b")
    assert difference_of(running, other) == ""
    assert difference_of(running, replace(other, max_model_len=99)) == ""
    assert (
        difference_of(running, replace(other, max_model_len=101)) == "max_model_len 101 is longer than the engine's 100"
    )
    assert difference_of(running, replace(other, dtype="float16")) == "dtype None -> float16"
    assert difference_of(running, replace(other, constrained=True)) == "replies are now constrained"
    frame = {"config.json hidden_size": "128", "tokenizer.json": "2"}
    assert difference_of(running, replace(other, frame=frame)) == (
        "config.json hidden_size 64 -> 128, tokenizer.json differs"
    )


def test_one_engine_at_a_time(fake_engine: type[FakeEngine], tmp_path: Path) -> None:
    successive = Successive()
    configs = [EngineConfig(tmp_path / f"checkpoint-{n}", 100) for n in (1, 2, 4, 4)]
    served = [successive.serve("vllm", config)[1] for config in configs]
    assert [each.how for each in served] == ["started", "swapped", "started", "same"]
    assert [each.because for each in served] == ["", "", "lm_head computes 3% off", ""]
    assert fake_engine.started == ["checkpoint-1", "checkpoint-4"]


def test_an_engine_that_died_while_it_waited_keeps_no_checkpoint_from_being_served(
    fake_engine: type[FakeEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(engine: FakeEngine, config: EngineConfig) -> None:
        raise EngineDied("the engine's process was killed")

    successive = Successive()
    successive.serve("vllm", EngineConfig(tmp_path / "checkpoint-1", 100))
    monkeypatch.setattr(FakeEngine, "swap", dead)
    serving = successive.serve("vllm", EngineConfig(tmp_path / "checkpoint-2", 100))[1]
    assert (serving.how, serving.because) == ("started", "the engine's process was killed")
    assert fake_engine.started == ["checkpoint-1", "checkpoint-2"]


# --- a whole command ---


def test_weights_that_were_written_anew_are_not_those_that_were_there(
    fake_engine: type[FakeEngine], tmp_path: Path
) -> None:
    successive = Successive()
    first = EngineConfig(tmp_path / "checkpoint-1", 10, fingerprint="a")
    assert successive.serve("vllm", first)[1].how == "started"
    assert successive.serve("vllm", first)[1].how == "same"
    assert successive.serve("vllm", replace(first, fingerprint="b"))[1].how == "swapped"
    adapter = replace(first, fingerprint="b", adapter=tmp_path / "x", adapter_fingerprint="c")
    assert successive.serve("vllm", adapter)[1].how == "adapter"
    assert successive.serve("vllm", adapter)[1].how == "same"
    assert successive.serve("vllm", replace(adapter, adapter_fingerprint="d"))[1].how == "adapter"


def test_checkpoints_in_one_command(
    fake_engine: type[FakeEngine], tmp_path: Path, mcq_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = make_series(tmp_path / "x", (1, 3, 5))
    make_model(runs / "checkpoint-4")
    make_model(runs / "checkpoint-6-bad")
    half = make_model(runs / "checkpoint-7") / "model.safetensors"
    half.write_bytes(half.read_bytes()[:-100])
    nan = make_model(runs / "checkpoint-8") / "model.safetensors"
    spoil_with_nan(nan)
    work = tmp_path / "out"
    command = [
        "--model",
        str(runs),
        "--datasets",
        str(mcq_dataset),
        "--engine",
        "transformers",
        "--work-dir",
        str(work),
    ]
    assert main(command) == 1
    said = capsys.readouterr()
    (folder,) = work.glob("checkpoints-*")
    rows = [json.loads(line) for line in (folder / "checkpoints.jsonl").read_text().splitlines()]
    assert [(row["label"], row["step"], row["status"]) for row in rows] == [
        ("checkpoint-1", 1, "done"),
        ("checkpoint-3", 3, "done"),
        ("checkpoint-4", 4, "done"),
        ("checkpoint-5", 5, "done"),
        ("checkpoint-6-bad", 6, "failed"),
        ("checkpoint-7", 7, "failed"),
        ("checkpoint-8", 8, "failed"),
    ]
    assert [row["served"] and row["served"]["how"] for row in rows[:4]] == ["started", "swapped", "started", "swapped"]
    assert rows[2]["served"]["because"] == "lm_head computes 3% off"
    assert "vLLM can't load it: no room" in rows[4]["reason"]
    assert "its header speaks of" in rows[5]["reason"]
    assert "model.layers.1.mlp.down_proj.weight holds NaN" in rows[6]["reason"]
    with (folder / "curve.csv").open() as file:
        curve = [(row["step"], row["value"]) for row in csv.DictReader(file) if row["subset"] == ""]
    assert curve == [("1", "0.2"), ("3", "0.6"), ("4", "0.8"), ("5", "1.0")]
    assert "failed: checkpoint-7: " in said.out
    assert "quiz against checkpoint-1, n 5" in said.out
    comparison = json.loads((folder / "comparison.json").read_text())
    overall = [test for test in comparison["blocks"][0]["tests"] if test["kind"] == "all"]
    assert [(test["candidate"]["model"], test["gained"], test["lost"]) for test in overall] == [
        ("checkpoint-3", 2, 0),
        ("checkpoint-4", 3, 0),
        ("checkpoint-5", 4, 0),
    ]
    assert "checkpoint-5" in (folder / "report.html").read_text()
    run_json = json.loads((Path(rows[2]["runs"][0]) / "run.json").read_text())
    assert run_json["served"]["because"] == "lm_head computes 3% off"
    assert run_json["config"]["model"] == str(runs / "checkpoint-4")
    report = (Path(rows[1]["runs"][0]) / "report.md").read_text()
    assert "put into a running engine in place of another checkpoint's, and proven there" in report

    # Again: nothing is asked, the failed ones are tried anew.
    fake_engine.started.clear()
    assert main(command) == 1
    assert fake_engine.started == []
    assert (folder / "curve.csv").read_text().count("\n") == 1 + 4


def spoil_with_nan(file: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    tensors["model.layers.1.mlp.down_proj.weight"][3, 5] = float("nan")
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "[]"),
        ("generation_config.json", "{"),
        ("tokenizer.json", "{}"),
        ("model.safetensors.index.json", '{"weight_map": {"a": 7}}'),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../w.safetensors"}}'),
        ("tokenizer.model", None),
    ],
)
def test_one_broken_file_is_one_failure(
    fake_engine: type[FakeEngine], tmp_path: Path, mcq_dataset: Path, name: str, content: str | None
) -> None:
    runs = make_series(tmp_path / "x", (1, 2, 3))
    file = runs / "checkpoint-2" / name
    if content is None:
        file.symlink_to("/nowhere/at/all")
    else:
        file.write_text(content)
    config = {"model": str(runs), "datasets": [str(mcq_dataset)], "engine": "transformers"}
    result = run_task({**config, "work_dir": str(tmp_path / "out")})
    assert [each.model for each in result.failed] == ["checkpoint-2"]
    assert any(word in result.failed[0].reason for word in (name, "tokenizer", "nowhere", "weight files"))
    assert [run.report.model for run in result.runs] == ["checkpoint-1", "checkpoint-3"]


def test_weights_that_are_written_anew_while_an_engine_loads_them_are_no_checkpoint(
    fake_engine: type[FakeEngine], tmp_path: Path, mcq_dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = make_series(tmp_path / "x", (1, 2, 3))
    swap = FakeEngine.swap

    def swapped_while_training_writes(engine: FakeEngine, config: EngineConfig) -> None:
        swap(engine, config)
        if config.folder.name == "checkpoint-2":
            file = config.folder / "model.safetensors"
            file.write_bytes(file.read_bytes())

    monkeypatch.setattr(FakeEngine, "swap", swapped_while_training_writes)
    config = {"model": str(runs), "datasets": [str(mcq_dataset)], "engine": "transformers"}
    result = run_task({**config, "work_dir": str(tmp_path / "out")})
    (failed,) = result.failed
    assert failed.model == "checkpoint-2"
    assert f"{runs / 'checkpoint-2' / 'model.safetensors'} was changed while the engine loaded it" in failed.reason
    assert [run.report.model for run in result.runs] == ["checkpoint-1", "checkpoint-3"]
    # What it holds is not known: the next one gets an engine of its own.
    assert fake_engine.started == ["checkpoint-1", "checkpoint-3"]


def test_the_type_of_the_weights_keeps_them_out_of_an_engine(tmp_path: Path) -> None:
    """Where config.json is silent an engine computes in the type of the file."""
    from safetensors.torch import load_file, save_file

    from localeval.config import load_config
    from localeval.model import find_model

    frames = []
    for name, kind in (("a", "bfloat16"), ("b", "float16")):
        folder = make_model(tmp_path / name)
        tensors = {key: each.to(getattr(torch, kind)) for key, each in load_file(folder / "model.safetensors").items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        told = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({key: told[key] for key in told if key != "dtype"}))
        frames.append(find_model(load_config({"model": str(folder), "datasets": ["milu"]}), str(folder)).frame)
    configs = [EngineConfig(tmp_path, 100, frame=frame) for frame in frames]
    assert difference_of(*configs) == "the type of the weights differs"


def test_a_gate_without_a_comparison_does_not_pass(
    fake_engine: type[FakeEngine], tmp_path: Path, mcq_dataset: Path
) -> None:
    runs = make_series(tmp_path / "x", (3, 5))
    command = ["--model", str(runs), "--datasets", str(mcq_dataset), "--engine", "transformers"]
    command += ["--work-dir", str(tmp_path / "out"), "--fail-below-baseline", "0.5"]
    assert main([*command, "--baseline", str(tmp_path / "nowhere")]) == 2  # before any model is loaded
    assert fake_engine.started == []
    assert main(command) == 0
    (folder,) = (tmp_path / "out").glob("checkpoints-*")
    assert (folder / "comparison.json").is_file()
    limited = next((tmp_path / "out").glob("checkpoint-3-*"))
    assert main([*command, "--limit", "2", "--baseline", str(limited)]) == 1
    other = ["--mcq", "logprob", "--baseline", str(limited)]
    assert main([*command, *other]) in (1, 2)


def test_below_the_baseline_is_a_status(fake_engine: type[FakeEngine], tmp_path: Path, mcq_dataset: Path) -> None:
    runs = make_series(tmp_path / "x", (3, 5))
    command = ["--model", str(runs), "--datasets", str(mcq_dataset), "--engine", "transformers"]
    command += ["--work-dir", str(tmp_path / "out"), "--fail-below-baseline", "0.5"]
    assert main(command) == 0
    assert main([*command, "--baseline", "best"]) == 1
    earlier = next((tmp_path / "out").glob("checkpoint-5-*"))
    result = run_task(
        {
            "model": [str(runs / "checkpoint-3"), str(runs / "checkpoint-5")],
            "datasets": [str(mcq_dataset)],
            "engine": "transformers",
            "work_dir": str(tmp_path / "out"),
            "baseline": str(earlier),
            "fail_below_baseline": 0.5,
        }
    )
    assert result.below == ("quiz: checkpoint-3 has accuracy 0.6000, 40.00 points below checkpoint-5 (1.0000)",)


def test_a_tokenizer_of_its_own_is_asked_anew(fake_engine: type[FakeEngine], tmp_path: Path, mcq_dataset: Path) -> None:
    """Prompts are built once for checkpoints with one tokenizer, and again for another."""
    from tests.fakes import WITH_BOS

    runs = make_series(tmp_path / "x", (3, 5))
    make_model(runs / "checkpoint-6", template=WITH_BOS)
    config = {"model": str(runs), "datasets": [str(mcq_dataset)], "engine": "transformers", "limit": 1}
    result = run_task({**config, "work_dir": str(tmp_path / "out")})
    ids = [json.loads((run.folder / "run.json").read_text())["first_prompt"]["token_ids"] for run in result.runs]
    assert ids[0] == ids[1]
    assert ids[2] == [0, *ids[0]]
    keys = [json.loads((run.folder / "predictions.jsonl").read_text())["key"] for run in result.runs]
    assert len(set(keys)) == 3


# --- adapters ---


def test_an_adapter_is_found_with_its_base(tmp_path: Path) -> None:
    from localeval.weights import Sources, find_weights

    base = make_model(tmp_path / "base")
    adapter = make_adapter(tmp_path / "adapter", base)
    found = find_weights(str(adapter), Sources({}), print)
    assert (found.folder, found.name, found.tokenizer) == (base, "adapter", base)
    assert found.adapter is not None
    assert found.adapter.rank == 8
    assert found.adapter.modules == ("down_proj", "q_proj", "v_proj")
    other = make_model(tmp_path / "other", seed=1)
    again = find_weights(str(adapter), Sources({}, base=str(other)), print)
    assert again.folder == other
    assert len({found.fingerprint, again.fingerprint, find_weights(str(base), Sources({}), print).fingerprint}) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peft_type": "LOHA"}, "only LoRA adapters are applied; merge it into its base model"),
        ({"modules_to_save": ["embed_tokens"]}, "modules_to_save can't be applied by the engine"),
        ({"use_dora": True, "bias": "all"}, "use_dora, bias can't be applied"),
        ({"base_model_name_or_path": None}, "names no base model: give it with --base"),
        ({"base_model_name_or_path": "org/gone"}, r"is an adapter, and its base model: --model org/gone: not found"),
    ],
)
def test_adapters_that_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    from localeval.weights import Sources, find_weights

    adapter = make_adapter(tmp_path / "adapter", make_model(tmp_path / "base"))
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(LocalevalError, match=said):
        find_weights(str(adapter), Sources({}), print)


def test_a_pickled_adapter_is_refused(tmp_path: Path) -> None:
    from localeval.weights import Sources, find_weights

    adapter = make_adapter(tmp_path / "adapter", make_model(tmp_path / "base"))
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(LocalevalError, match=r"no adapter_model.safetensors \(an adapter that is pickled"):
        find_weights(str(adapter), Sources({}), print)
