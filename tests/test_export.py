"""What is exported, loaded by the tools themselves: EvalScope and lm-evaluation-harness."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from localeval import LocalevalError, RunFailed, run_task
from localeval.cli import main
from localeval.export.exporting import export_runs
from localeval.export.named import as_file_name
from tests.conftest import MCQ_YAML, NER_YAML, QUESTIONS, write_jsonl

PINS = Path(__file__).with_name("peers.txt")


@pytest.fixture(scope="session")
def peers(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where both tools are imported from: their wheels, which pip brings once for these pins, by its own settings.

    lm-eval has 15,000 files, so it is not unpacked; what is compiled must be.
    """
    digest = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    cache = getattr(pytestconfig, "cache", None)
    folder: Path = (cache.mkdir("peers") if cache else tmp_path_factory.mktemp("peers")) / digest
    if not folder.exists():
        making = Path(tempfile.mkdtemp(dir=folder.parent))
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "--requirement", str(PINS), "--wheel-dir", str(making)], check=True)
        for wheel in making.glob("*.whl"):
            if "-none-any" not in wheel.name:
                zipfile.ZipFile(wheel).extractall(making / "compiled")
        with suppress(OSError):  # another process was faster
            making.rename(folder)
    return os.pathsep.join(map(str, [*folder.glob("*-none-any.whl"), folder / "compiled"]))


def read_by(peers: str, code: str, output: Path) -> Any:
    """What a script says of a folder with the tools at hand; it fills ``found``."""
    script = f"import json, sys\nfound, output = {{}}, sys.argv[1]\n{code}\nprint('\\n' + json.dumps(found))"
    env = {**os.environ, "PYTHONPATH": peers}
    done = subprocess.run(
        [sys.executable, "-c", script, str(output)], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# --- runs whose figures are known ---

LETTERS = "ABAAC"
"""What the pretended model says to QUESTIONS, whose answers are ABCAB: 0, 1 and 3 are right."""
NAMES = {
    "default:0": "<response><person>Ann Lee</person> left</response>",  # right
    "default:1": "<response><person>Paris</person> slept</response>",  # of another type
    "default:2": "I can't",  # of "Nobody came": unread
}
"""So 1 of 2 entities is found, and 1 of 2 is right; 4 of 7 tokens have the right tag."""
HALF = {"English:0": "D", "English:1": "A", "Hindi:0": "B", "Hindi:1": "E"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quiz, its letters' probabilities, and names; under runs/."""
    folder = tmp_path_factory.mktemp("exported")
    write_jsonl(folder / "rows" / "test.jsonl", QUESTIONS)
    (folder / "quiz.yaml").write_text(MCQ_YAML)
    names = folder / "names"
    (names / "rows").mkdir(parents=True)
    (names / "names.yaml").write_text(NER_YAML)
    (names / "rows" / "test.txt").write_text(
        "Ann B-PER\nLee I-PER\nleft O\n\nParis B-LOC\nslept O\n\nNobody O\ncame O\n"
    )
    said: list[dict[str, Any]] = [
        {"dataset": "quiz", "sample_id": f"default:{n}", "text": f"ANSWER: {letter}"}
        for n, letter in enumerate(LETTERS)
    ]
    said += [{"dataset": "names", "sample_id": sample_id, "text": text} for sample_id, text in NAMES.items()]
    config = {"model": "pretended", "work_dir": str(folder / "runs")}
    both = [str(folder / "quiz.yaml"), str(names / "names.yaml")]
    run_task({**config, "engine": f"replay:{write_jsonl(folder / 'said.jsonl', said)}", "datasets": both})
    logprobs = [
        {"sample_id": f"default:{n}", "text": "", "continuations": {" A": -0.5, " B": -1.5, " C": -2.5}}
        for n in range(5)
    ]
    file = write_jsonl(folder / "logprobs.jsonl", logprobs)
    run_task({**config, "model": "letters", "engine": f"replay:{file}", "datasets": both[:1], "mcq": "logprob"})
    return folder / "runs"


EVALSCOPE = """
from pathlib import Path
from evalscope.api.evaluator.cache import ModelResult
from evalscope.report.data_frames import get_acc_report_df, get_model_prediction, load_report_bundle, scan_report_refs
for ref in scan_report_refs(output):
    reports, datasets, config = load_report_bundle(output, ref)
    run = Path(output) / ref.run_id
    overview = get_acc_report_df(reports).to_dict("records")
    for report in reports:
        rows = get_model_prediction(str(run), ref.model_id, report.dataset_name, "default")
        predictions = run / "predictions" / ref.model_id / f"{report.dataset_name}_default.jsonl"
        replies = [ModelResult.model_validate_json(line) for line in predictions.open(encoding="utf-8")]
        found[f"{ref.model_id}/{report.dataset_name}"] = {
            "metrics": {metric.identity.name: metric.score for metric in report.metrics},
            "kinds": {metric.identity.name: metric.semantics.kind.value for metric in report.metrics},
            "primary": report.primary_metric.identity.name,
            "score": report.score, "num": report.num,
            "metadata": report.primary_metric.categories[0].subsets[0].metadata,
            "overview": [row for row in overview if row["Dataset"] == report.dataset_name],
            "rows": rows[["Index", "Gold", "Pred", "Generated", "NScore"]].to_dict("records"),
            "replies": [each.model_output.completion for each in replies],
            "stops": [each.model_output.stop_reason for each in replies],
            "prompts": [each.messages[0].text for each in replies],
            "seed": config["seed"],
        }
"""


def test_evalscope_loads_its_reports_and_rows(runs: Path, peers: str, tmp_path: Path) -> None:
    export_runs("evalscope", [runs], tmp_path)
    found = read_by(peers, EVALSCOPE, tmp_path)
    assert sorted(found) == ["letters/quiz_logprob", "pretended/names", "pretended/quiz"]
    quiz, names, letters = found["pretended/quiz"], found["pretended/names"], found["letters/quiz_logprob"]

    beside = ("unparsed", "truncated", "label_mismatch")
    assert quiz["metrics"] == {"accuracy": 0.6, **dict.fromkeys(beside, 0.0)}
    assert quiz["kinds"] == {"accuracy": "quality", **dict.fromkeys(beside, "diagnostic")}
    assert (quiz["primary"], quiz["score"], quiz["num"], quiz["seed"]) == ("accuracy", 0.6, 5, 0)
    assert quiz["metadata"] == pytest.approx({"low": 0.2307, "high": 0.8824, "confidence": 0.95}, abs=1e-4)  # Wilson
    assert quiz["overview"] == [{"Model": "pretended", "Dataset": "quiz", "Score": 0.6, "Num": 5}]
    assert [(row["Gold"], row["Pred"], row["NScore"]) for row in quiz["rows"]] == [
        ("A", "A", 1.0), ("B", "B", 1.0), ("C", "A", 0.0), ("A", "A", 1.0), ("B", "C", 0.0),
    ]  # fmt: skip
    assert quiz["replies"] == [f"ANSWER: {letter}" for letter in LETTERS]
    assert quiz["stops"] == ["stop"] * 5
    assert quiz["prompts"][0] == "Q: Question 0?\nA) one 0\nB) two 0\nC) three 0\nOne of A,B,C."

    ratios = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": 0.5714}
    counts = {"unparsed": 1.0, "truncated": 0.0, "malformed": 0.0, "text_changed": 0.0, "invented": 0.0}
    assert names["metrics"] == {**ratios, **counts, "unparsed_other_text": 1.0}
    assert (names["primary"], names["score"], names["num"]) == ("f1", 0.5, 3)
    assert [row["Pred"] for row in names["rows"]] == ["B-PER I-PER O", "B-PER O", ""]
    assert [row["NScore"] for row in names["rows"]] == [1.0, 0.0, 0.0]  # F1; of the last, tokens alone are defined

    # exp(-0.5) is 0.6065, of A; the answers are A, B, C, A, B. nll: (2 x 0.5 + 2 x 1.5 + 2.5) / 5
    assert letters["metrics"]["accuracy"] == 0.4
    assert letters["metrics"]["nll"] == 1.3
    assert letters["metrics"]["outside"] == pytest.approx(1 - 0.6065 - 0.2231 - 0.0821, abs=1e-4)


LM_EVAL = """
from pathlib import Path
from statistics import mean
from lm_eval.result_schema import EvalResults, SampleResult
from lm_eval.utils import get_file_task_name, get_latest_filename, get_results_filenames, get_sample_results_filenames
from lm_eval.utils import hash_string, make_table
from pydantic import TypeAdapter
files = [str(file) for file in Path(output).rglob("*") if file.is_file()]
check = TypeAdapter(SampleResult)
for model in ("pretended", "letters"):
    own = [file for file in files if f"/{model}/" in file]
    results = json.loads(Path(get_latest_filename(get_results_filenames(own))).read_text(encoding="utf-8"))
    samples = {}
    for file in get_sample_results_filenames(own):
        rows = [json.loads(line) for line in open(file, encoding="utf-8")]
        samples[get_file_task_name(Path(file).name)] = [check.validate_python(row) for row in rows]
    found[model] = {
        "results": results["results"], "table": make_table(results), "subtasks": results["group_subtasks"],
        "sizes": results["n-samples"], "samples": samples, "hashes": results["task_hashes"],
        "hashed": {
            task: hash_string("".join(row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in rows))
            for task, rows in samples.items()
        },
        "prompt_hash": hash_string(samples[next(iter(samples))][0]["arguments"]["gen_args_0"]["arg_0"]),
    }
"""


def test_lm_eval_reads_its_results_and_samples(runs: Path, peers: str, tmp_path: Path) -> None:
    export_runs("lm-eval", [runs], tmp_path)
    found = read_by(peers, LM_EVAL, tmp_path)
    pretended, letters = found["pretended"], found["letters"]

    quiz = pretended["results"]["quiz"]
    assert (quiz["acc,none"], quiz["sample_len"]) == (0.6, 5)
    assert quiz["acc_stderr,none"] == pytest.approx((0.6 * 0.4 / 4) ** 0.5)  # of a mean: sqrt(p (1 - p) / (n - 1))
    names = pretended["results"]["names"]
    assert {name: names[f"{name},none"] for name in ("precision", "recall", "f1")} == dict.fromkeys(
        ("precision", "recall", "f1"), 0.5
    )
    assert names["token_acc,none"] == pytest.approx(4 / 7)
    assert names["f1_stderr,none"] == "N/A"
    assert "|quiz " in pretended["table"]
    assert "0.2449" in pretended["table"]
    assert pretended["sizes"]["quiz"] == {"original": 5, "effective": 5}

    rows = pretended["samples"]["quiz"]
    assert [row["acc"] for row in rows] == [1.0, 1.0, 0.0, 1.0, 0.0]
    assert [row["filtered_resps"] for row in rows] == [["A"], ["B"], ["A"], ["A"], ["C"]]
    assert rows[2]["resps"] == [["ANSWER: A"]]
    assert rows[2]["doc"]["groups"] == {"topic": "birds"}
    assert next(iter(pretended["samples"].values()))[0]["prompt_hash"] == pretended["prompt_hash"]
    assert pretended["hashes"] == pretended["hashed"]
    said = pretended["samples"]["names"]
    assert said[2]["filtered_resps"] == ["[invalid]"]
    assert [sum(row[name] for row in said) for name in ("correct", "predicted", "gold")] == [1, 2, 2]

    assert letters["results"]["quiz_logprob"]["nll,none"] == pytest.approx(1.3)
    first = letters["samples"]["quiz_logprob"][0]
    assert [first["arguments"][f"gen_args_{i}"]["arg_1"] for i in range(3)] == ["A", "B", "C"]
    assert [float(option[0]) for option in first["filtered_resps"]] == [-0.5, -1.5, -2.5]


def test_subsets_are_tasks_of_a_group(tmp_path: Path) -> None:
    """Of the first two rows of both languages, whose answers are D, and B: the first is right, the second is not."""
    rows = [{"sample_id": sample_id, "text": f"ANSWER: {letter}"} for sample_id, letter in HALF.items()]
    config = {
        "model": "a/b",
        "engine": f"replay:{write_jsonl(tmp_path / 'half.jsonl', rows)}",
        "datasets": ["milu"],
        "dataset_args": {"milu": {"subset_list": ["English", "Hindi"]}},
        "samples": True,
        "limit": 2,
        "work_dir": str(tmp_path / "runs"),
    }
    folder = run_task(config).runs[0].folder
    export_runs("lm-eval", [folder], tmp_path / "lm")
    (file,) = (tmp_path / "lm").rglob("results_*.json")
    results = json.loads(file.read_text())
    assert results["group_subtasks"] == {"milu": ["milu_English", "milu_Hindi"]}
    values = {task: row["acc,none"] for task, row in results["results"].items()}
    assert values == {"milu": 0.5, "milu_English": 0.5, "milu_Hindi": 0.5}
    assert results["groups"]["milu"]["sample_len"] == 4
    assert results["n-samples"]["milu_Hindi"] == {"original": None, "effective": 2}  # of how many is not known
    export_runs("evalscope", [folder], tmp_path / "es")
    (file,) = (tmp_path / "es").rglob("reports/*/milu.json")
    report = json.loads(file.read_text())
    assert "LIMITED" in report["dataset_description"]
    assert "SAMPLES" in report["dataset_description"]
    subsets = report["metrics"][0]["categories"][0]["subsets"]
    assert [(each["name"], each["score"], each["num"], each.get("is_aggregate", False)) for each in subsets] == [
        ("English", 0.5, 2, False), ("Hindi", 0.5, 2, False), ("OVERALL", 0.5, 4, True),
    ]  # fmt: skip


def test_runs_that_would_share_a_name_are_kept_apart(runs: Path, tmp_path: Path) -> None:
    """A dataset asked in another way, of the same model: EvalScope's second folder, the harness's second file."""
    folder = next(runs.glob("pretended-*/quiz-*"))
    quiz = runs.parent / "quiz.yaml"
    config = {
        "model": "pretended",
        "engine": f"replay:{runs.parent / 'said.jsonl'}",
        "datasets": [str(quiz)],
        "limit": 2,
    }
    limited = run_task({**config, "work_dir": str(tmp_path / "runs")}).runs[0].folder
    assert len(export_runs("evalscope", [folder, limited], tmp_path / "es")) == 2
    assert len(export_runs("lm-eval", [folder, limited], tmp_path / "lm")) == 2
    with pytest.raises(LocalevalError, match="is there, and nothing is replaced"):
        export_runs("evalscope", [folder], tmp_path / "es")
    with pytest.raises(LocalevalError, match=r"results_.*json: is there, and nothing is replaced"):
        export_runs("lm-eval", [folder, limited], tmp_path / "lm")


def test_subsets_that_would_share_a_file_are_refused(runs: Path, tmp_path: Path) -> None:
    """Before anything is written: the samples of one would take the place of the other's."""
    folder = shutil.copytree(next(runs.glob("pretended-*/quiz-*")), tmp_path / "run")
    report = json.loads((folder / "report.json").read_text())
    (part,) = report["subsets"].values()
    (folder / "report.json").write_text(json.dumps({**report, "subsets": {"a b": part, "a:b": part}}))
    for tool in ("evalscope", "lm-eval"):
        with pytest.raises(LocalevalError, match="the subsets 'a b' and 'a:b' would be one file, 'a__b'"):
            export_runs(tool, [folder], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--to", "lm-eval", str(runs), "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().out.split()
    assert sorted(Path(line).parent.name for line in said) == ["letters", "pretended"]
    assert all(Path(line).is_file() for line in said)
    assert main(["export", "--to", "evalscope", str(tmp_path)]) == 2
    assert "no run.json there or below" in capsys.readouterr().err
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.json").write_text('{"complete": false}')
    with pytest.raises(RunFailed, match="none of the runs is finished"):
        export_runs("lm-eval", [tmp_path / "x"], tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Qwen/Qwen3-8B", "Qwen__Qwen3-8B"),
        ("..", "_"),
        ("a b", "a__b"),
        ("checkpoint-5", "checkpoint-5"),
        ("हिन्दी", "हिन्दी"),
    ],
)
def test_names_of_files(name: str, file: str) -> None:
    assert as_file_name(name) == file
