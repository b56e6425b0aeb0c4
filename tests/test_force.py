"""Forced answers: which replies are asked once more, with which tokens, when, and what is made of it."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localeval import load_runs, run_task, score_run
from localeval.config import load_config
from localeval.dry_run import dry_run
from localeval.engines.ahead import Ahead
from localeval.engines.base import EngineConfig, EngineDied
from localeval.engines.feed import Feed, at_hand
from localeval.engines.sizing import work_of
from localeval.forcing import second_request, with_answers
from localeval.jobs import load_jobs
from localeval.plan import Plan, keyed, plan_replay, plan_requests
from localeval.prompts import Prompter
from localeval.receiving import Receiver
from localeval.schema import Completion, LocalevalError, Request, RunFailed, Sample, Score, Tally
from localeval.scoring import RunResult, judge_of, report_runs
from localeval.store import RunFolder
from tests.conftest import write_jsonl
from tests.fakes import ALWAYS_THINKING, CHATML, make_model, make_tokenizer

# quiz.yaml: five questions of three options; the right letters are A B C A B
SAID = [
    ("ANSWER: A", "stop"),
    ("ANSWER: C", "stop"),
    ("I think that", "length"),
    ("It depends.", "stop"),
    ("ANSWER: B", "stop"),
]
FORCED = {2: "C", 3: "B"}  # right, wrong


def log_probabilities(letter: str) -> dict[str, float]:
    """By spelling; of the letter e^-1 + e^-3."""
    return {f" {each}": -1.0 if each == letter else -2.5 for each in "ABC"} | {letter: -3.0}


class Says:
    """Says ``said`` of each row; forced, the letter of ``forced``. Takes three requests at a time."""

    said = SAID
    asked: list[Request] = []
    work: Any = None
    interrupted_at = 0
    dies_at = 0

    def __init__(self, *_: Any) -> None:
        pass

    def start(self, config: EngineConfig) -> float:
        Says.work = config.work
        return 0.0

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        source, more = iter(requests), True
        while more:
            taken, more = at_hand(source, 3)
            for request in taken:
                Says.asked.append(request)
                if len(Says.asked) == Says.interrupted_at:
                    raise KeyboardInterrupt
                if len(Says.asked) == Says.dies_at:
                    raise EngineDied("was killed")
                yield self.reply(request)

    def reply(self, request: Request) -> Completion:
        row = int(request.sample_id.rpartition(":")[2])
        if request.forced:
            found = log_probabilities(FORCED[row])
            return Completion(request.sample_id, "", "stop", 30, 20, 1, continuations=found, key=request.key)
        text, reason = Says.said[row]
        return Completion(request.sample_id, text, reason, 10, 0, 5, key=request.key)

    def forget_prompts(self) -> None:
        pass

    def settings(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> type[Says]:
    monkeypatch.setattr("localeval.engines.successive.ChildEngine", Says)
    for name, value in {"said": SAID, "asked": [], "interrupted_at": 0, "dies_at": 0}.items():
        monkeypatch.setattr(Says, name, value)
    return Says


def run(dataset: Path, **fields: Any) -> RunResult:
    folder = dataset.parent / "m"
    if not folder.exists():
        make_model(folder)
    config = {"model": str(folder), "datasets": [str(dataset)], "engine": "transformers", "force_answer": True}
    return run_task({**config, "work_dir": str(dataset.parent / "runs"), **fields})


def forced_rows(asked: list[Request]) -> list[str]:
    return sorted(request.sample_id for request in asked if request.forced)


def json_of(folder: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / name).read_text())
    return loaded


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# --- what is asked ---


def test_only_unread_replies_are_asked_once_more(mcq_dataset: Path, says: type[Says]) -> None:
    (result,) = run(mcq_dataset).runs
    assert len(says.asked) == 7
    assert forced_rows(says.asked) == ["default:2", "default:3"]
    forced = [request for request in says.asked if request.forced]
    assert {request.max_tokens for request in forced} == {1}
    # one token a byte: a letter after a space is two, so that the letters are scored as sequences
    assert dict(forced[0].continuations) == {" A": ids(" A"), " B": ids(" B"), " C": ids(" C")}
    assert says.work.plain is False
    rows = lines_of(result.folder / "forced.jsonl")
    assert {row["sample_id"]: row["continuations"] for row in rows} == {
        "default:2": log_probabilities("C"),
        "default:3": log_probabilities("B"),
    }
    assert {row["forced"] for row in rows} == {True}
    assert len(lines_of(result.folder / "predictions.jsonl")) == 5
    facts = json_of(result.folder, "run.json")
    assert facts["tokens"] == {"prompt": 50, "cached": 0, "output": 25}
    assert facts["forced_tokens"] == {"prompt": 60, "cached": 40, "output": 2}


def ids(text: str) -> tuple[int, ...]:
    """As tests.fakes numbers bytes: four special tokens, then the byte-level alphabet in order."""
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return tuple(4 + alphabet.index({" ": "Ġ", "\n": "Ċ"}.get(letter, letter)) for letter in text)


def planned(dataset: Path, template: str, context: int | None = None, **fields: Any) -> tuple[Plan, Prompter]:
    config = load_config({"model": "m", "datasets": [str(dataset)], "force_answer": True, **fields})
    prompter = Prompter(make_tokenizer(dataset.parent / "tokenizer", template, joined=(" A", " B", " C")))
    (job,) = load_jobs(config)
    plan = with_answers(plan_requests(job, config, prompter, context), prompter, context)
    return keyed(plan, "model", {}), prompter


END_OF_TURN, EOS = 3, 1
ALWAYS_MISTRAL = ALWAYS_THINKING.replace("<think>", "[THINK]")


@pytest.mark.parametrize(
    ("template", "reply", "added"),
    [
        # the text's tokens, where the engine gives none
        (CHATML, Completion("", "I think", "length"), ids("I think\nANSWER:")),
        # the engine's own tokens, without the one that ended the turn
        (CHATML, Completion("", "Hm", "stop", token_ids=(*ids("Hm"), END_OF_TURN)), ids("Hm\nANSWER:")),
        (CHATML, Completion("", "Hm", "stop", token_ids=(*ids("Hm"), EOS)), ids("Hm\nANSWER:")),
        (CHATML, Completion("", "Hm", "length", token_ids=(*ids("Hm"), END_OF_TURN)), None),
        (CHATML, Completion("", "", "stop", token_ids=(END_OF_TURN,)), ids("\nANSWER:")),
        (CHATML, Completion("", "", "stop"), ids("\nANSWER:")),
        # reasoning that is open is closed
        (CHATML, Completion("", "<think>so", "length"), ids("<think>so\n</think>\n\nANSWER:")),
        (ALWAYS_THINKING, Completion("", "so", "length"), ids("so\n</think>\n\nANSWER:")),
        (ALWAYS_MISTRAL, Completion("", "so", "length"), ids("so\n[/THINK]\n\nANSWER:")),
        (ALWAYS_MISTRAL, Completion("", "so[/THINK]Hm", "length"), ids("so[/THINK]Hm\nANSWER:")),
        (CHATML, Completion("", "<seed:think>so", "length"), ids("<seed:think>so\n</seed:think>\n\nANSWER:")),
        (ALWAYS_THINKING, Completion("", "so</think>Hm", "length"), ids("so</think>Hm\nANSWER:")),
    ],
)
def test_the_second_prompt_by_hand(
    mcq_dataset: Path, template: str, reply: Completion, added: tuple[int, ...] | None
) -> None:
    plan, prompter = planned(mcq_dataset, template)
    request = second_request(plan, prompter, 1, reply)
    first = plan.requests[1]
    if added is None:
        added = (*ids("Hm"), END_OF_TURN, *ids("\nANSWER:"))
    assert tuple(request.prompt_token_ids) == (*first.prompt_token_ids, *added)
    # the joined pairs stand after 4 special tokens and 256 bytes
    bare = {letter: ids(letter) for letter in "ABC"}
    assert dict(request.continuations) == {" A": (260,), " B": (261,), " C": (262,), **bare}
    assert (request.sample_id, request.dataset, request.forced) == ("default:1", "quiz", True)
    assert request.length <= first.length


def test_at_the_limit_of_the_context_the_end_of_the_reply_stays(mcq_dataset: Path) -> None:
    free, _ = planned(mcq_dataset, CHATML)
    prompt = list(free.requests[0].prompt_token_ids)
    # a budget of 20 tokens, which the reply uses up, and 8 more: "\nANSWER:" is 8, a letter and one after it are 2
    context = len(prompt) + 20 + 8
    plan, prompter = planned(mcq_dataset, CHATML, context, generation_config={"max_tokens": 20})
    assert plan.requests[0].length == context
    reply = Completion("", "0123456789abcdefghij", "length")
    request = second_request(plan, prompter, 0, reply)
    assert list(request.prompt_token_ids) == prompt + list(ids("23456789abcdefghij\nANSWER:"))
    assert request.length == context
    # no room beside the prompt: its beginning goes
    plan, prompter = planned(mcq_dataset, CHATML, len(prompt) + 1)
    request = second_request(plan, prompter, 0, Completion("", "0", "length"))
    assert list(request.prompt_token_ids) == (prompt + list(ids("\nANSWER:")))[9:]
    assert request.length == len(prompt) + 1


def test_a_first_request_stays_what_it_is(mcq_dataset: Path) -> None:
    """So that its reply is the plain run's."""
    plan, _ = planned(mcq_dataset, CHATML)
    plain = keyed(
        plan_requests(plan.job, load_config({"model": "m", "datasets": [str(mcq_dataset)]}), _, None), "model", {}
    )
    assert [request.key for request in plan.requests] == [request.key for request in plain.requests]
    assert {request.then for request in plain.requests} == {0}
    assert work_of(plain.requests).plain
    assert not work_of(plan.requests).plain


def test_it_has_no_effect_where_no_reply_is_a_letter(capsys: pytest.CaptureFixture[str]) -> None:
    base = {"model": "m", "force_answer": True, "samples": True}
    for fields in ({"datasets": ["conllpp"]}, {"datasets": ["milu"], "mcq": "logprob,cloze"}):
        load_jobs(load_config({**base, **fields}))
        assert "--force-answer has no effect" in capsys.readouterr().err
    jobs = load_jobs(load_config({**base, "datasets": ["milu", "conllpp"], "mcq": "generate,logprob"}))
    assert "has no effect" not in capsys.readouterr().err
    assert [(job.title, job.can_force) for job in jobs] == [
        ("milu", True), ("milu, logprob", False), ("conllpp", False),
    ]  # fmt: skip


# --- figures ---


def test_figures_by_hand(mcq_dataset: Path, says: type[Says]) -> None:
    result = run(mcq_dataset)
    (only,) = result.runs
    report = json_of(only.folder, "report.json")
    # As read 2 of 5. Forced, the third is right too: 3 of 5, whose interval by Wilson's formula is (0.2307, 0.8824).
    assert report["metrics"]["accuracy"]["value"] == 0.4
    assert report["counts"]["unparsed"] == 2
    assert report["n"] == 5
    forced = report["forced"]
    assert (forced["n"], forced["correct"], forced["accuracy"]["value"], forced["macro"]) == (2, 1, 0.6, 0.6)
    assert forced["accuracy"]["low"] == pytest.approx(0.23072, abs=1e-5)
    assert forced["accuracy"]["high"] == pytest.approx(0.88238, abs=1e-5)
    line = "accuracy 0.4000 as read; 0.6000 [0.2307, 0.8824] with 2 forced answers, 1 of them right"
    assert line in result.report_text
    assert line in (only.folder / "report.md").read_text()
    assert line in (only.folder / "report.html").read_text()
    scores = lines_of(only.folder / "scores.jsonl")
    assert [score["parsed"] for score in scores] == ["A", "C", None, None, "B"]
    assert [score.get("forced") for score in scores] == [None, None, "C", "B", None]
    # e^-1 + e^-3
    assert scores[2]["forced_probability"] == pytest.approx(0.3678794 + 0.0497871, abs=1e-7)
    assert scores[2]["tallies"] == {"answer": [0, 0, 1], "letter:C": [0, 0, 1]}
    assert only.metrics == {"accuracy": 0.4}
    assert only.report.forced is not None
    assert only.report.forced.n == 2


def test_tables_and_pages_have_it_apart(mcq_dataset: Path, says: type[Says]) -> None:
    folder = run(mcq_dataset).runs[0].folder
    tables = load_runs(folder)
    whole = tables.scores[tables.scores.kind == "all"].set_index("metric").value
    assert whole["accuracy"] == 0.4
    assert (whole["forced"], whole["accuracy_with_forced"]) == (2, 0.6)
    samples = tables.samples
    assert list(samples.forced.fillna("")) == ["", "", "C", "B", ""]
    assert samples.forced_probability.notna().tolist() == [False, False, True, True, False]
    assert list(samples.correct) == [True, False, False, False, True]
    assert '"forced":["C",0.4176665]' in (folder / "report.html").read_text()
    text = report_runs([folder])
    rows = {line[:30].strip(): line[30:].split() for line in text.splitlines()}
    assert rows["accuracy, forced answers count"][-1] == "0.6000"
    assert rows["forced answers"] == ["2"]


def test_a_comparison_is_of_what_was_read(mcq_dataset: Path, fake_engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several models in one engine; each has its own forced answers."""
    seen: list[str] = []

    def generate(self: Any, requests: Iterable[Request | None]) -> Iterator[Completion]:
        right = int(self.folder.name.rpartition("-")[2])
        for request in requests:
            assert request is not None
            row = int(request.sample_id.rpartition(":")[2])
            if request.forced:
                seen.append(f"{self.folder.name} {row}")
                yield Completion(request.sample_id, "", "stop", continuations=log_probabilities("A"), key=request.key)
            else:
                yield Completion(
                    request.sample_id, f"ANSWER: {'ABCAB'[row] if row < right else '.'}", "stop", key=request.key
                )

    monkeypatch.setattr(fake_engine, "generate", generate)
    models = mcq_dataset.parent / "run"
    for step in (2, 3):
        make_model(models / f"checkpoint-{step}", seed=step)
    result = run(mcq_dataset, model=str(models))
    assert fake_engine.started == ["checkpoint-2"]
    assert sorted(seen) == [
        "checkpoint-2 2", "checkpoint-2 3", "checkpoint-2 4", "checkpoint-3 3", "checkpoint-3 4",
    ]  # fmt: skip
    forced = [each.report.forced for each in result.runs]
    # always A: the fourth is right
    assert [each and (each.n, each.correct, each.accuracy.value) for each in forced] == [(3, 1, 0.6), (2, 1, 0.8)]
    assert "accuracy is as read: forced answers are not compared" in result.report_text
    assert result.folder is not None
    (test, *_) = json_of(result.folder, "comparison.json")["blocks"][0]["tests"]
    assert (test["first"], test["second"]) == (0.4, 0.6)


# --- the same folder, again ---


def test_off_the_folder_is_what_it_was_and_on_only_what_is_missing_is_asked(
    mcq_dataset: Path, says: type[Says]
) -> None:
    (plain,) = run(mcq_dataset, force_answer=False).runs
    assert len(says.asked) == 5
    names = ("predictions.jsonl", "scores.jsonl")
    before = {name: (plain.folder / name).read_bytes() for name in names}
    assert json_of(plain.folder, "report.json")["forced"] is None
    assert not (plain.folder / "forced.jsonl").exists()
    assert "forced" not in before["scores.jsonl"].decode()
    (forced,) = run(mcq_dataset).runs
    assert forced.folder == plain.folder
    assert len(says.asked) == 7
    assert forced_rows(says.asked) == ["default:2", "default:3"]
    assert (plain.folder / "predictions.jsonl").read_bytes() == before["predictions.jsonl"]
    assert forced.report.counts["reused"] == 5
    again = run(mcq_dataset).runs[0].report
    assert len(says.asked) == 7
    assert again == forced.report
    (off,) = run(mcq_dataset, force_answer=False).runs
    assert {name: (off.folder / name).read_bytes() for name in names} == before
    assert off.report.forced is None
    assert len(lines_of(off.folder / "forced.jsonl")) == 2  # for when it is on again


def test_after_a_kill_only_what_is_missing_is_asked(mcq_dataset: Path, says: type[Says]) -> None:
    (whole,) = run(mcq_dataset).runs
    report = json_of(whole.folder, "report.json")
    file = whole.folder / "forced.jsonl"
    first, second = file.read_bytes().splitlines(keepends=True)
    for left in (first + second[:30], b"", None):
        says.asked.clear()
        if left is None:
            file.unlink()
        else:
            file.write_bytes(left)
        (resumed,) = run(mcq_dataset).runs
        known = {json.loads(first)["sample_id"]} if left else set()
        assert {request.sample_id for request in says.asked} == {"default:2", "default:3"} - known
        assert {row["sample_id"] for row in lines_of(file)} == {"default:2", "default:3"}
        assert json_of(resumed.folder, "report.json") == {**report, "counts": {**report["counts"], "reused": 5}}


def test_an_interrupted_run_keeps_its_forced_answers(
    mcq_dataset: Path, says: type[Says], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(says, "interrupted_at", 7)  # the last
    with pytest.raises(KeyboardInterrupt):
        run(mcq_dataset)
    assert "5 of 5 replies are kept, and 1 forced answers" in capsys.readouterr().err
    monkeypatch.setattr(says, "interrupted_at", 0)
    says.asked.clear()
    report = run(mcq_dataset).runs[0].report
    assert len(says.asked) == 1
    assert report.forced is not None
    assert report.forced.n == 2


@pytest.mark.parametrize("place", range(1, 8))
def test_an_engine_that_dies_is_asked_again(
    mcq_dataset: Path, says: type[Says], monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """At whatever request: of a first one or of a second one."""
    monkeypatch.setattr(says, "dies_at", place)
    report = run(mcq_dataset).runs[0].report
    assert len(says.asked) > 7
    assert report.metrics["accuracy"].value == 0.4
    assert report.forced is not None
    assert (report.forced.n, report.forced.correct) == (2, 1)


def test_a_changed_first_reply_is_asked_anew(mcq_dataset: Path, says: type[Says]) -> None:
    folder = run(mcq_dataset).runs[0].folder
    predictions = (folder / "predictions.jsonl").read_text()
    assert predictions.count("It depends.") == 1
    (folder / "predictions.jsonl").write_text(predictions.replace("It depends.", "It may depend."))
    says.asked.clear()
    run(mcq_dataset)
    assert [(request.sample_id, request.forced) for request in says.asked] == [("default:3", True)]
    end = ids("\nIt may depend.\nANSWER:")
    assert tuple(says.asked[0].prompt_token_ids[-len(end) :]) == end
    assert [row["sample_id"] for row in lines_of(folder / "forced.stale.jsonl")] == ["default:3"]
    # One that can be read now has no use for its forced answer.
    (folder / "predictions.jsonl").write_text(predictions.replace("It depends.", "ANSWER: A"))
    says.asked.clear()
    report = run(mcq_dataset).runs[0].report
    assert says.asked == []
    assert report.metrics["accuracy"].value == 0.6
    assert report.forced is not None
    assert (report.forced.n, report.forced.accuracy.value) == (1, 0.8)


def test_forced_answers_are_taken_over_from_another_folder(mcq_dataset: Path, says: type[Says]) -> None:
    first = run(mcq_dataset).runs[0]
    says.asked.clear()
    (other,) = run(mcq_dataset, work_dir=str(mcq_dataset.parent / "other"), use_cache=str(first.folder)).runs
    assert says.asked == []
    assert sorted(lines_of(other.folder / "forced.jsonl"), key=str) == sorted(
        lines_of(first.folder / "forced.jsonl"), key=str
    )
    assert other.report.forced == first.report.forced


def test_scoring_again_needs_no_model(mcq_dataset: Path, says: type[Says]) -> None:
    folder = run(mcq_dataset).runs[0].folder
    names = ("report.json", "scores.jsonl", "report.md", "report.html")
    before = {name: (folder / name).read_bytes() for name in names}
    for name in names:
        (folder / name).unlink()
    again = score_run(folder)
    assert {name: (folder / name).read_bytes() for name in names} == before
    assert "with 2 forced answers" in again.report_text
    # A reply that was read by older rules, and is not now, has never been asked: it is said, and nothing fails.
    (folder / "forced.jsonl").unlink()
    report = score_run(folder).runs[0].report
    assert report.forced is not None
    assert (report.forced.n, report.forced.accuracy.value) == (0, 0.4)
    assert "2 unread replies have no forced answer yet: run the command again" in report.notes


def test_the_further_times_of_noise_are_of_what_was_read(mcq_dataset: Path, says: type[Says]) -> None:
    (result,) = run(mcq_dataset, noise=2).runs
    assert len(says.asked) == 5 + 2 + 5
    assert result.report.forced is not None
    assert result.noise is not None
    assert result.noise.values == (0.4, 0.4)
    assert not list((result.folder / "noise").rglob("forced.jsonl"))


def test_a_rehearsal_says_so(mcq_dataset: Path, says: type[Says]) -> None:
    folder = mcq_dataset.parent / "m"
    make_model(folder)
    fields = {"model": str(folder), "datasets": [str(mcq_dataset)], "engine": "transformers"}
    assert "--force-answer: a reply that can't be read is asked once more" in (
        dry_run({**fields, "force_answer": True}).text
    )
    assert "force-answer" not in dry_run(fields).text


# --- replay ---


def replayed(dataset: Path, file: Path, **fields: Any) -> RunResult:
    base = {"engine": f"replay:{file}", "datasets": [str(dataset)], "work_dir": str(dataset.parent / "replayed")}
    return run_task({**base, "force_answer": True, **fields})


def both(dataset: Path, forced: list[dict[str, Any]]) -> Path:
    rows = [
        {"sample_id": f"default:{n}", "text": text, "finish_reason": reason} for n, (text, reason) in enumerate(SAID)
    ]
    return write_jsonl(dataset.parent / "both.jsonl", [*rows, *forced])


def forced_row(row: int, **changes: Any) -> dict[str, Any]:
    found = log_probabilities(FORCED[row])
    return {"sample_id": f"default:{row}", "text": "", "continuations": found, "forced": True, **changes}


def test_both_files_of_a_run_can_be_replayed(mcq_dataset: Path, says: type[Says]) -> None:
    made = run(mcq_dataset).runs[0]
    file = mcq_dataset.parent / "both.jsonl"
    file.write_bytes(b"".join((made.folder / name).read_bytes() for name in ("predictions.jsonl", "forced.jsonl")))
    again = replayed(mcq_dataset, file)
    assert again.runs[0].report.forced == made.report.forced
    assert again.runs[0].metrics == made.metrics
    # without the option the rows are left alone
    plain = replayed(mcq_dataset, file, force_answer=False)
    assert plain.runs[0].report.forced is None
    assert plain.runs[0].folder == again.runs[0].folder


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([forced_row(2)], "no forced answer to quiz default:3, whose reply can't be read"),
        ([forced_row(2), forced_row(3), forced_row(2)], "line 8: a second forced answer to default:2"),
        ([forced_row(2), forced_row(3, forced="yes")], "line 7: forced is 'yes'; expected true or false"),
        ([forced_row(2), forced_row(3, continuations={" A": -1.0})], "no log probability of B in its forced answer"),
    ],
)
def test_a_file_that_lacks_one_is_named(mcq_dataset: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(LocalevalError, match=message):
        replayed(mcq_dataset, both(mcq_dataset, rows))


# --- the stream ---


@pytest.fixture
def plan(mcq_dataset: Path) -> Plan:
    (job,) = load_jobs(load_config({"engine": "replay:x", "datasets": [str(mcq_dataset)]}))
    return with_answers(plan_replay(job, ""), None, None)


@pytest.fixture
def folder(tmp_path: Path, plan: Plan) -> Iterator[RunFolder]:
    folder = RunFolder(tmp_path / "run")
    folder.open({request.key for request in plan.requests}, forced=True)
    yield folder
    folder.close()


def unread(sample: Sample, reply: Completion) -> Score:
    if reply.text == "broken":
        raise RunFailed(f"{sample.id} is broken")
    return Score(sample.id, None, {"answer": Tally(0, 0, 1), f"letter:{sample.gold[0]}": Tally(0, 0, 1)})


def receiver_of(plan: Plan, folder: RunFolder) -> Receiver:
    return Receiver([plan], [folder], [unread], [lambda index, reply: second_request(plan, None, index, reply)])


def answer(request: Request, text: str = "") -> Completion:
    found = log_probabilities("A") if request.forced else None
    return Completion(request.sample_id, text, "stop", continuations=found, key=request.key)


@pytest.mark.parametrize("late", [False, True])
def test_a_second_request_is_asked_before_the_next_first_one(plan: Plan, folder: RunFolder, late: bool) -> None:
    """But after all where these want the best tokens, which vLLM gives to none beside one that names its own."""
    order: list[str] = []

    def generate(requests: Iterable[Request | None]) -> Iterator[Completion]:
        for request in requests:
            assert request is not None  # nothing is out while the next one is asked for
            order.append(f"{request.sample_id[8:]}{' again' if request.forced else ''}")
            yield answer(request)
            receiver.finish()

    firsts = [replace(request, wanted_logprobs=2 * late) for request in plan.requests]
    with receiver_of(plan, folder) as receiver:
        assert [reply.key for reply in receiver.ask(generate, firsts)] == [request.key for request in plan.requests]
        receiver.finish()
        assert [score.forced for score in receiver.jobs[0].whole()] == ["A"] * 5
    again = [f"{n} again" for n in range(5)]
    mixed = [each for n in range(5) for each in (str(n), again[n])]
    assert order == ([*map(str, range(5)), *again] if late else mixed)


def test_an_engine_with_others_in_hand_is_told_that_more_may_come(plan: Plan, folder: RunFolder) -> None:
    """It holds two back until it hears None, and then goes on: no one waits for the other."""
    nothing = 0

    def generate(requests: Iterable[Request | None]) -> Iterator[Completion]:
        nonlocal nothing
        held: list[Request] = []
        for request in requests:
            if request is None:
                nothing += 1
                yield answer(held.pop())
            else:
                held.append(request)
                if len(held) > 2:
                    yield answer(held.pop(0))

    with receiver_of(plan, folder) as receiver:
        assert len(list(receiver.ask(generate, plan.requests))) == 5
        receiver.finish()
        assert [score.forced for score in receiver.jobs[0].whole()] == ["A"] * 5
    assert nothing > 0


def test_an_engine_in_another_thread_ends_too(plan: Plan, folder: RunFolder) -> None:
    """As the child process does: requests are fetched by one thread, replies sent by another, in any order."""

    def generate(requests: Iterable[Request | None]) -> Iterator[Completion]:
        wanted: queue.Queue[Request | None] = queue.Queue()
        done: queue.Queue[Completion] = queue.Queue()

        def work() -> None:
            while (request := wanted.get()) is not None:
                done.put(answer(request))

        thread = threading.Thread(target=work)
        thread.start()
        source, more, out = iter(requests), True, 0
        while more or out:
            taken, more = at_hand(source, 2) if more else ([], False)
            for request in taken:
                wanted.put(request)
            out += len(taken)
            if out:
                yield done.get()
                out -= 1
        wanted.put(None)
        thread.join()

    with receiver_of(plan, folder) as receiver:
        assert len(list(receiver.ask(generate, plan.requests))) == 5
        receiver.finish()
        assert len(list(folder.forced_rows())) == 5


def test_on_its_way_to_the_engine_it_goes_before_what_waits() -> None:
    first = [Request("d", str(n), (), 1, key=str(n)) for n in range(3)]
    second = [Request("d", str(n), (), 1, forced=True, key=f"{n} again") for n in range(2)]
    feed = Feed()
    for request in (first[0], first[1], second[0], first[2], second[1]):
        feed.put(request)
    feed.pause()
    feed.end()
    assert [request and request.key for request in feed] == ["0 again", "1 again", "0", "1", "2"]
    with ThreadPoolExecutor(1) as pool:
        ahead = Ahead([first[0], first[1], second[0], None], lambda request: request.key, pool)
        taken = []
        while (ready := ahead.first(wait=True)) is not None:
            taken.append(ready)
            ahead.take()
    assert taken == ["0 again", "0", "1"]


def test_what_goes_wrong_with_a_reply_ends_the_stream(plan: Plan, folder: RunFolder) -> None:
    def generate(requests: Iterable[Request | None]) -> Iterator[Completion]:
        for request in requests:
            if request is not None:
                yield answer(request, "broken")

    with pytest.raises(RunFailed, match=r"default:\d is broken"), receiver_of(plan, folder) as receiver:
        list(receiver.ask(generate, plan.requests[:1]))


def test_a_missing_forced_answer_is_said(plan: Plan, folder: RunFolder) -> None:
    with receiver_of(plan, folder) as receiver:
        for request in plan.requests:
            receiver.put(answer(request))
        assert [request.sample_id for request in receiver.pending()] == [
            sample.id for sample in plan.job.dataset.samples
        ]
        assert receiver.pending() == []
        with pytest.raises(RunFailed, match="5 forced answers are missing, the first of default:0"):
            receiver.jobs[0].whole()


def test_the_judge_of_a_run_decides_what_is_unread(mcq_dataset: Path) -> None:
    (job,) = load_jobs(load_config({"engine": "replay:x", "datasets": [str(mcq_dataset)]}))
    judge = judge_of(job, {"thinking": None, "reasoning_opened": False})
    read = [
        judge(sample, Completion(sample.id, *said)).parsed
        for sample, said in zip(job.dataset.samples, SAID, strict=True)
    ]
    assert read == ["A", "C", None, None, "B"]
