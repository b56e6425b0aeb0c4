"""The page of several models: ranks and marks by hand, which flips are shown and how, what stands in the page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from localeval import LocalevalError, run_task
from localeval.cli import main
from localeval.compare import against_best, compare_entries
from localeval.metrics.paired import Paired
from localeval.report.build import report_json, report_of
from localeval.report.comparison import Block, Comparison, Contrast, Flip
from localeval.report.finished import Finished
from localeval.report.flipped import chosen_flips, flipped
from localeval.report.leaderboard import Board, Entry, boards
from localeval.report.several import Several, several_page
from localeval.schema import Sample
from localeval.scoring import find_finished
from localeval.together import entries_of, link_from, page_of, several_of, write_page
from tests.conftest import NER_YAML, Replies
from tests.test_page import Page

HOSTILE = "</script><b onclick=alert(1)>x{{ 7 * 7 }}&amp;<!--\u202e"


# --- the leaderboard ---


def entry(label: str, value: float | None) -> Entry:
    report = {"dataset": "quiz", "mode": "generate", "task": "mcq", "metrics": {"accuracy": {"value": value}}}
    return Entry(Finished(label, Path("/runs") / label, {}, {**report, "macro": {"over": "subsets"}}))


def block(base: str, *tests: tuple[str, float, float]) -> Block:
    """tests: a candidate, its difference from the base, and p after Holm's correction."""
    found = [
        Contrast(name, f"/runs/{name}", "accuracy", "", "", Paired(100, "t", 0.5, 0.5, difference), p)
        for name, difference, p in tests
    ]
    return Block("quiz", "generate", "mcq", base, f"/runs/{base}", tuple(found))


def marks(board: Board) -> list[tuple[str, int | None, str, str]]:
    """Of each place: model, rank, standing against the best, verdict against the baseline."""
    return [
        (place.entry.run.label, place.rank, place.standing, place.change.verdict if place.change else "")
        for place in board.places
    ]


def test_ranks_and_what_chance_allows_to_be_said() -> None:
    entries = [entry("base", 0.5), entry("a", 0.7), entry("b", 0.9), entry("c", 0.88), entry("d", 0.4)]
    against_base = block("base", ("a", 0.2, 0.049), ("b", 0.4, 0.0), ("c", 0.38, 0.001), ("d", -0.1, 0.01))
    leaders = [block("b", ("base", -0.4, 0.0), ("a", -0.2, 0.0499), ("c", -0.02, 0.05), ("d", -0.5, 0.0))]
    (board,) = boards(entries, Comparison((against_base,), ()), leaders)
    assert marks(board) == [
        ("b", 1, "best", "better"),
        ("c", 2, "leading", "better"),  # p of 0.05 is not below 0.05
        ("a", 3, "behind", "better"),
        ("base", 4, "behind", ""),
        ("d", 5, "behind", "worse"),
    ]
    assert [place.entry.run.label for place in board.places if place.is_baseline] == ["base"]
    assert board.tested


def test_equal_values_share_a_rank_and_what_has_none_has_no_rank() -> None:
    entries = [entry("a", 0.5), entry("b", None), entry("c", 0.75), entry("d", 0.75), entry("e", 0.25)]
    leaders = [block("c", ("a", -0.25, 1.0), ("d", 0.0, 1.0), ("e", -0.5, 0.2))]
    (board,) = boards(
        entries, Comparison((block("a", ("c", 0.25, 1.0), ("d", 0.25, 1.0), ("e", -0.25, 1.0)),), ()), leaders
    )
    assert marks(board) == [
        ("c", 1, "best", "not shown"),
        ("d", 1, "leading", "not shown"),
        ("a", 3, "leading", ""),
        ("e", 4, "leading", "not shown"),
        ("b", None, "not compared", ""),
    ]


def test_without_a_comparison_there_are_ranks_and_no_marks() -> None:
    (board,) = boards([entry("a", 0.25), entry("b", 0.5)])
    assert marks(board) == [("b", 1, "", ""), ("a", 2, "", "")]
    assert not board.tested
    (alone,) = boards([entry("a", 0.25)])
    assert marks(alone) == [("a", None, "", "")]


Ask = Callable[..., Path]


@pytest.fixture
def ask(tmp_path: Path, mcq_dataset: Path, replies: Replies) -> Ask:
    """Runs a model that gives these letters to five questions whose right ones are ABCAB."""

    def run(model: str, letters: str, **config: object) -> Path:
        said = {f"default:{n}": f"ANSWER: {letter}" if letter != "." else "?" for n, letter in enumerate(letters)}
        engine = f"replay:{replies(said, Path(model).name + '.jsonl')}"
        fields = {"model": model, "engine": engine, "datasets": [str(mcq_dataset)], **config}
        return run_task({**fields, "work_dir": str(tmp_path / "runs")}).runs[0].folder

    return run


def test_each_against_the_best_by_hand(ask: Ask) -> None:
    folders = [ask("low", "CCCCC"), ask("high", "ABCAB"), ask("middle", "ABCCC"), ask("other", "ABCAB", limit=4)]
    runs = find_finished(folders)
    (best,) = against_best(runs, compare_entries(runs))
    assert (best.baseline, [test.candidate for test in best.tests]) == ("high", ["low", "middle"])  # other: refused
    # McNemar, exact: 4 lost, 2 * (1/2)^4; 2 lost, 2 * (1/2)^2. Holm: the smaller p twice, and no less for the other.
    assert [test.result.p for test in best.tests] == [0.125, 0.5]
    assert [test.p_holm for test in best.tests] == [0.25, 0.5]


# --- flips ---


def flips(candidate: str, names: Sequence[int]) -> list[Flip]:
    return [Flip("quiz", "generate", f"s:{n}", "base", candidate, "gained", ("A", "B"), ("?", "?")) for n in names]


def shown(found: Sequence[Flip]) -> Counter[str]:
    return Counter(flip.candidate for flip in found)


def test_so_many_flips_are_shown_the_same_ones_each_time() -> None:
    few = Comparison((), (*flips("a", range(500)), *flips("b", range(7))))
    assert shown(chosen_flips(few)) == {"a": 200, "b": 7}
    several = Comparison((), tuple(flip for n in range(8) for flip in flips(str(n), range(500))))
    assert shown(chosen_flips(several)) == {str(n): 125 for n in range(8)}  # 1,000 in all
    assert len({flip.sample_id for flip in chosen_flips(several)}) == 125  # of each model the same samples
    turned = replace(few, flips=tuple(reversed(few.flips)))
    assert list(reversed(chosen_flips(turned))) == chosen_flips(few)
    (first, second) = flipped(few, {})
    assert (first.candidate, first.gained, first.lost, len(first.rows)) == ("a", 500, 0, 200)
    assert (second.candidate, len(second.rows)) == ("b", 7)


def test_readings_in_words() -> None:
    question = Sample("s:0", "s", "Which?", ("B",), choices=("one", "two" * 200))
    sentence = Sample(
        "s:1", "s", "Ann Lee saw Rome", ("B-PER", "I-PER", "O", "B-LOC"), tokens=("Ann", "Lee", "saw", "Rome")
    )
    found = [
        Flip("quiz", "logprob", "s:0", "x", "y", "gained", ("A", "B"), (None, None)),
        Flip("names", "generate", "s:1", "x", "y", "lost", ("B-PER I-PER O B-LOC", "O O O O"), (None, None)),
        Flip("names", "generate", "s:2", "x", "y", "lost", ("B-PER O", None), (None, None)),
    ]
    samples = {("quiz, logprob", "s:0"): question, ("names", "s:1"): sentence}
    one, two = flipped(Comparison((), tuple(found)), samples)
    (row,) = one.rows
    long = "B: " + "two" * 200
    assert (one.title, row.question, row.first, row.second, row.gold) == (
        "quiz, logprob", "Which?", "A: one", long[:149] + "…", long[:149] + "…",
    )  # fmt: skip
    assert [(row.gold, row.first, row.second) for row in two.rows] == [
        ("PER: Ann Lee · LOC: Rome", "PER: Ann Lee · LOC: Rome", "no entity"),
        ("", "B-PER O", "not read"),  # its run folder holds no samples
    ]


# --- the page ---


def page(paths: Sequence[Path], label: Callable[[str], str] = str) -> str:
    entries = entries_of(find_finished(paths), lambda folder: f"{folder.name}.html")
    entries = [replace(each, run=replace(each.run, label=label(each.run.label))) for each in entries]
    return page_of(several_of(entries, compare_entries([each.run for each in entries])))


def cells(text: str) -> list[str]:
    """What stands in the page, tag by tag, without scripts."""
    body = text[text.index("<body>") : text.index("<script>")]
    found = [piece.split(">", 1)[-1].strip() for piece in body.split("<")]
    return [" ".join(piece.split()) for piece in found if piece]


def test_its_numbers_are_those_of_the_runs(ask: Ask) -> None:
    folders = [ask("run/checkpoint-1", "CC.AC"), ask("run/checkpoint-20", "ABCAA")]
    text = page(folders)
    shown = Page(text)
    dots, curve = shown.specs
    assert [(datum["label"], datum["value"], datum["leads"]) for datum in dots["data"]["values"]] == [
        ("checkpoint-20", 0.8, True),
        ("checkpoint-1", 0.2, True),  # 3 gained, 0 lost: p is 0.25
    ]
    assert {(datum["step"], datum["value"]) for datum in curve["data"]["values"]} == {(1, 0.2), (20, 0.8)}
    found = cells(text)
    at = found.index("★ leading (p 0.2500)")
    assert found[at - 5 : at + 8] == [
        "2", "1", "0.2000", "[0.0362, 0.6245]", "0.2000", "★ leading (p 0.2500)", "–", "–", "–", "–", "5", "1", "0",
    ]  # fmt: skip
    assert {"0.8000", "0.2000", "+0.6000", "0.2500", "not shown", "★ best"} <= set(found)
    assert "quiz: checkpoint-20" in found  # its flips
    assert {"A: one 0", "C: three 0", "Question 2?", "not read: no answer", "▲ gained"} <= set(found)
    links = [tag["href"] for name, tag in shown.tags if name == "a" and str(tag.get("href", "")).startswith("quiz")]
    assert f"{folders[0].name}.html#sample=default%3A0" in links


def test_strangers_names_stay_text(ask: Ask) -> None:
    folders = [ask("a", "CCCCC"), ask("b", "ABCAB")]
    facts = json.loads((folders[1] / "report.json").read_text())
    (folders[1] / "report.json").write_text(json.dumps({**facts, "notes": [HOSTILE]}))
    plain, text = Page(page(folders)), page(folders, lambda label: label + HOSTILE)
    hostile = Page(text)
    assert [name for name, _ in hostile.tags if name in ("b", "script")] == ["script"] * len(plain.scripts)
    assert hostile.specs[0]["data"]["values"][0]["label"] == "b" + HOSTILE
    assert "\\u202e" in text.split("<script>")[0]  # is shown, and turns nothing
    assert "{{ 7 * 7 }}" in text
    addresses = [value for _, tag in hostile.tags for name, value in tag.items() if name in ("src", "href", "action")]
    assert not [address for address in addresses if str(address).startswith(("http", "javascript", "//"))]


def test_failed_models_and_refusals_are_said(ask: Ask) -> None:
    runs = find_finished([ask("a", "CCCCC"), ask("b", "ABCAB", limit=4), ask("c", "ABCAB")])
    entries = entries_of(runs, lambda folder: "")
    several = Several("t", {}, entries, compare_entries(runs), failed=[("d", "no room <here>")])
    found = cells(page_of(several))
    assert "failed: d: no room &lt;here&gt;" in found
    assert any(line.startswith("not compared: b and a did not ask quiz alike") for line in found)
    at = found.index("not compared")
    assert found[at - 5 :][:3] == ["b", "–", "1.0000"]  # last, without a rank
    assert "LIMITED: only the first rows of each subset; not comparable with a full run" in found


def test_ways_of_asking_stand_side_by_side(ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [ask("m", "ABCC."), ask("m", "ABCC.", constrain=True)]
    file = tmp_path / "out" / "page.html"
    assert main(["report", *map(str, folders), "--html", str(file)]) == 0
    found = cells(file.read_text())
    at = found.index("constrained - generate")
    assert found[at - 2 : at + 5] == [
        "generate", "constrained", "constrained - generate", "accuracy", "0.6000", "0.6000", "+0.0000",
    ]  # fmt: skip
    assert not any(line.startswith("not compared") for line in found)


def test_compare_writes_the_page_beside_its_tables(ask: Ask, tmp_path: Path) -> None:
    folders = [ask("a", "CCCCC"), ask("b", "ABCAB"), ask("c", "ABCAA")]
    output = tmp_path / "runs" / "compared"
    command = ["compare", *map(str, folders[1:]), "--baseline", str(folders[0]), "--output", str(output)]
    assert main(command) == 0
    shown = Page((output / "report.html").read_text())
    assert [datum["label"] for datum in shown.specs[0]["data"]["values"]] == ["b", "c", "a"]
    links = {str(tag.get("href", "")).split("#")[0] for name, tag in shown.tags if name == "a"}
    assert f"../{folders[0].parent.name}/{folders[0].name}/report.html" in links


def test_a_flip_without_its_text_says_why(ask: Ask) -> None:
    folders = [ask("a", "CCCCC"), ask("b", "ABCAB")]
    (folders[0] / "samples.jsonl.gz").unlink()
    found = cells(page(folders))
    assert any(line.startswith("the flipped samples of quiz are shown without their text") for line in found)
    assert "quiz: b" in found


def test_the_longest_flips_are_four_megabytes() -> None:
    """In an Indic script a character has three bytes; 1,000 flips are shown."""
    long = Sample("", "Malayalam", "മ" * 1000, ("A",), choices=("മ" * 1000,) * 4)
    many = Comparison((), tuple(flip for name in "abcde" for flip in flips(name, range(1000))))
    text = page_of(Several("t", {}, [], many))
    whole = several_page(Several("t", {}, [], many, samples={("quiz", f"s:{n}"): long for n in range(1000)}))
    assert len(text.encode()) < len(whole.encode()) < 4_000_000


def test_links_stay_in_the_work_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a model-1" / "quiz-2"
    folder.mkdir(parents=True)
    assert link_from(tmp_path / "runs" / "checkpoints-3", folder) == ""  # has no page
    (folder / "report.html").touch()
    assert link_from(tmp_path / "runs" / "checkpoints-3", folder) == "../a%20model-1/quiz-2/report.html"
    assert link_from(tmp_path / "elsewhere" / "out", folder) == ""


def test_a_report_comes_back_as_it_was(ask: Ask, tmp_path: Path, replies: Replies) -> None:
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "test.txt").write_text("Ann B-PER\nLee I-PER\nleft O\n\nParis B-LOC\nslept O\n")
    (tmp_path / "names.yaml").write_text(NER_YAML.replace("path: rows", "path: names"))
    said = {"default:0": "<response><location>Ann</location> Lee left</response>", "default:1": "?"}
    config = {"engine": f"replay:{replies(said, 'said.jsonl')}", "dataset_args": {"names": {"few_shot_num": 0}}}
    config |= {"model": "m", "datasets": [str(tmp_path / "names.yaml")], "work_dir": str(tmp_path / "runs")}
    for folder in (ask("a", "ABC.A"), run_task(config).runs[0].folder):
        value = json.loads((folder / "report.json").read_text())
        report = report_of(value)
        assert json.loads(json.dumps(report_json(report))) == value
    with pytest.raises(ValueError, match="confusion"):
        report_of({name: part for name, part in value.items() if name != "confusion"})


def test_a_run_of_another_version_is_refused(ask: Ask) -> None:
    folders = [ask("a", "CCCCC"), ask("b", "ABCAB")]
    facts = json.loads((folders[1] / "run.json").read_text())
    lost = facts.pop("dropped_shots")  # which only the comparison needs
    (folders[1] / "run.json").write_text(json.dumps(facts))
    write_page(folders[0] / "page.html", folders)
    (why,) = [line for line in cells((folders[0] / "page.html").read_text()) if line.startswith("no comparison: ")]
    assert "not one of this version (KeyError(&#39;dropped_shots&#39;))" in why
    facts["dropped_shots"] = lost
    del facts["settings"]
    (folders[1] / "run.json").write_text(json.dumps(facts))
    with pytest.raises(LocalevalError, match=r"not one of this version \(KeyError\('settings'\)\)"):
        page(folders)
