"""The run folder: nothing that was written is lost, nothing broken is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localeval.appending import Appended
from localeval.schema import Completion, LocalevalError, RunFailed, Score, Tally
from localeval.store import RunFolder, Scored, read_predictions, read_scores, write_atomically


def reply(number: int, text: str = "text") -> Completion:
    return Completion(f"default:{number}", text, "stop", 10, 4, 3, key=f"k{number}")


def filled(path: Path, count: int = 3) -> RunFolder:
    folder = RunFolder(path)
    assert folder.open({"k0"}) == set()
    for number in range(count):
        folder.append(reply(number))
    folder.close()
    return folder


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    full = Completion(
        "default:9", 'उत्तर\n"x" \ud800', "length", 5, 0, 2, (7, 8), ({7: -0.5, 8: -1.0}, {8: -0.1}), {" A": -4.25}, "k9"
    )
    folder = RunFolder(tmp_path)
    folder.open(set())
    folder.append(full)
    folder.close()
    assert list(read_predictions(tmp_path / "predictions.jsonl")) == [full]


def test_rows_have_the_documented_fields(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    row = json.loads((tmp_path / "predictions.jsonl").read_text())
    assert row == {
        "sample_id": "default:0",
        "text": "text",
        "finish_reason": "stop",
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "output_tokens": 3,
        "key": "k0",
    }


def test_a_torn_last_line_is_dropped_and_never_appended_to(tmp_path: Path) -> None:
    filled(tmp_path)
    file = tmp_path / "predictions.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    folder = RunFolder(tmp_path)
    assert folder.open({"k0", "k1", "k2"}) == {"k0", "k1"}
    assert list(folder.rows()) == [reply(0), reply(1)]
    folder.append(reply(2, "again"))
    folder.close()
    assert list(read_predictions(file)) == [reply(0), reply(1), reply(2, "again")]


def test_rows_of_other_settings_are_set_aside(tmp_path: Path) -> None:
    filled(tmp_path)
    folder = RunFolder(tmp_path)
    assert folder.open({"k1", "new"}) == {"k1"}
    folder.close()
    assert list(read_predictions(tmp_path / "predictions.jsonl")) == [reply(1)]
    assert list(read_predictions(tmp_path / "predictions.stale.jsonl")) == [reply(0), reply(2)]


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path)
    file = tmp_path / "predictions.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0] + "{broken\n" + lines[2])
    with pytest.raises(LocalevalError, match=r"predictions.jsonl, line 2: not a prediction"):
        RunFolder(tmp_path).open({"k0"})


def test_one_process_at_a_time(tmp_path: Path) -> None:
    first = RunFolder(tmp_path)
    first.open(set())
    with pytest.raises(LocalevalError, match="another localeval is writing here"):
        RunFolder(tmp_path).open(set())
    first.close()
    RunFolder(tmp_path).open(set())


def test_no_space_left(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(set())
    folder._predictions = Appended(Path("/dev/full"))  # the device that is always full
    folder._predictions.open()
    with pytest.raises(RunFailed, match="No space left on device; what was written before is kept"):
        folder.append(reply(0))
    folder.close()


@pytest.mark.parametrize("change", [{"text": 5}, {"key": []}, {"prompt_tokens": "x"}, {"sample_id": None}])
def test_rows_of_wrong_types(tmp_path: Path, change: dict[str, object]) -> None:
    filled(tmp_path, 1)
    file = tmp_path / "predictions.jsonl"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}) + "\n")
    with pytest.raises(LocalevalError, match=r"line 1: not a prediction .*; take the line out"):
        RunFolder(tmp_path).open({"k0"})


def test_a_folder_that_cant_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalevalError, match="name another folder with --work-dir"):
        RunFolder(tmp_path / "file" / "run").open(set())


def test_atomic_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_atomically(path, ["old"])

    def lines() -> list[str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, (line for line in lines()))
    assert path.read_text() == "old"


def test_scores_and_strict_json(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_scores([Scored(Score("default:0", None, {"answer": Tally(0, 0, 1)}, {"unparsed": 1}), "default", {})])
    assert json.loads((tmp_path / "scores.jsonl").read_text()) == {
        "sample_id": "default:0",
        "subset": "default",
        "parsed": None,
        "tallies": {"answer": [0, 0, 1]},
        "notes": {"unparsed": 1},
    }


def test_scores_are_read_as_they_were_written(tmp_path: Path) -> None:
    tallies = {"answer": Tally(1, 1, 1), "letter:B": Tally(1, 1, 1)}
    score = Score("Hindi:3", "B", tallies, {"truncated": 1}, {"A": -2.5, "B": -0.1}, {"A": 0.08, "B": 0.9})
    rows = [Scored(score, "Hindi", {"domain": "Science"}), Scored(Score("Odia:0", None, {}), "Odia", {})]
    RunFolder(tmp_path).write_scores(rows)
    assert list(read_scores(tmp_path / "scores.jsonl")) == rows


def test_strict_json(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(ValueError, match="Out of range float"):
        folder.write_json("x.json", {"value": float("nan")})
    with pytest.raises(LocalevalError, match="can't be read"):
        folder.read_json("none.json")
