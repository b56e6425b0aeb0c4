"""The replies of a run folder -> its scores and reports. Needs no model, no tokenizer and no engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from localeval import record
from localeval.config import TaskConfig, load_config
from localeval.identity import forced_key
from localeval.jobs import Job, config_of_mode, load_jobs, settings_digest
from localeval.nearest import nearest
from localeval.noise import Noise, noise_text
from localeval.offline import go_offline
from localeval.progress import LATE, say, track, warn
from localeval.reply import Tags
from localeval.report.build import NOT_CONSTRAINED, Asked, build_report, report_json
from localeval.report.finished import Finished, of_this_version
from localeval.report.markdown import markdown
from localeval.report.page import run_page
from localeval.report.side_by_side import side_by_side
from localeval.report.text import console_text, title
from localeval.rereading import ReadAgain, earlier, read_again
from localeval.results import read_results
from localeval.samples import AskedSample, write_samples
from localeval.schema import Completion, LocalevalError, Report, RunFailed, Sample, Score
from localeval.store import PREDICTIONS, SAMPLES, RunFolder, Scored
from localeval.tables import PARQUET, samples_table, scores_table, write_parquet

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Run:
    """One dataset asked of one model. metrics: name -> value; None for what is not defined.

    noise: how much the result moves by itself, where it was asked several times. read_again: what has changed, if the
    replies of an earlier run were read again.
    """

    folder: Path
    report: Report
    metrics: Mapping[str, float | None]
    noise: Noise | None = None
    read_again: ReadAgain | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """What could not be evaluated, a model of several or the replies of a run folder of several, and why."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """All runs of one config, and what the command prints of them.

    Of several models also: failed, those that could not be evaluated; below, the results that lie further below the
    baseline's than the config allows, as sentences; folder, where table, curve and comparison are.
    """

    runs: tuple[Run, ...]
    report_text: str
    failed: tuple[Failed, ...] = ()
    below: tuple[str, ...] = ()
    folder: Path | None = None

    def to_pandas(self, table: Literal["scores", "samples"] = "scores") -> pd.DataFrame:
        """The runs' scores as one tidy table, or their samples; docs/tables.md describes both.

        Raises ValueError for any other table, RunFailed where there are no runs.
        """
        if table not in ("scores", "samples"):
            raise ValueError(f"table is {table!r}; expected 'scores' or 'samples'")
        if not self.runs:
            raise RunFailed("there is no table: none of the models could be evaluated")
        runs = find_finished([run.folder for run in self.runs])
        return scores_table(runs) if table == "scores" else samples_table(runs)


def runs_text(runs: Sequence[Run]) -> str:
    """What a run of one model prints."""
    noise = [f"{title(run.report)}: {noise_text(run.noise)}" for run in runs if run.noise is not None]
    return "\n\n".join([console_text([run.report for run in runs]), *noise])


def judge_of(job: Job, facts: Mapping[str, Any]) -> Callable[[Sample, Completion], Score]:
    """Reads and scores a reply. facts: what ``record.read_as`` has put into run.json."""
    return functools.partial(
        job.judge,
        thinking=facts["thinking"],
        reasoning_opened=bool(facts["reasoning_opened"]),
        reasoning_tags=_tags_of(facts),
    )


def _tags_of(facts: Mapping[str, Any]) -> tuple[Tags, ...]:
    """The model's own tags of reasoning; a run that states none was read with the known ones alone."""
    return tuple(Tags(str(opening), str(closing)) for opening, closing in facts.get("reasoning_tags", ()))


def finish(job: Job, folder: RunFolder, scores: Sequence[Score], facts: Mapping[str, Any]) -> Run:
    """Writes scores.jsonl and report.json. scores: one a sample and in its order."""
    samples = job.dataset.samples
    dropped = facts["dropped_shots"]
    asked = Asked(
        dataset=job.name,
        model=facts["model"]["name"],
        task=job.task,
        mode=job.mode,
        subsets=job.dataset.subsets,
        group_names=list(job.dataset.spec.groups),
        labels=job.labels,
        limited=facts["config"]["limit"] is not None,
        comparable=not facts["config"]["samples"],
        reused=facts["reused"],
        forced=_forces(job, facts),
        notes=(
            *([f"{dropped} prompts lost shots to fit the model"] if dropped else []),
            *_how_read(job),
            *facts["warnings"],
        ),
    )
    report = build_report(asked, samples, scores)
    for note in report.notes:
        if note.startswith(NOT_CONSTRAINED):
            warn(f"{job.title}: {note}")
    folder.write_scores(
        Scored(score, sample.subset, sample.meta) for sample, score in zip(samples, scores, strict=True)
    )
    folder.write_json("report.json", report_json(report))
    return Run(folder.path, report, {name: value.value for name, value in report.metrics.items()})


def _how_read(job: Job) -> list[str]:
    """What is to be said of replies that were read in another way than usual."""
    said = []
    if job.read_lists:
        said.append(
            "READ LISTS: entity replies that are a JSON list, or lines 'text (TYPE)', were read too (--read lists); "
            "results without it are not the same"
        )
    if job.answer_pattern:
        said.append(f"READ BY answer_pattern: {job.answer_pattern}")
    return said


def write_report(folder: RunFolder, report: Report, facts: Mapping[str, Any], parquet: bool = False) -> None:
    """Writes report.md and report.html. facts: run.json, as it is at the end.

    parquet: also the tables; where there are some, they are written anew in any case, to say the same.
    """
    folder.write_text("report.md", markdown(report, record.measured(facts)))
    results = track(read_results(folder.path), report.n, f"page of {title(report)}", LATE)
    folder.write_text("report.html", run_page(report, facts, results))
    if parquet or facts["config"].get("parquet") or any((folder.path / name).exists() for name in PARQUET):
        write_parquet(Finished(report.model, folder.path, facts, report_json(report)))


def score_run(
    path: str | Path, dataset_dir: str | None = None, bundle: str | None = None, parquet: bool = False
) -> RunResult:
    """Reads and scores the replies of finished runs again: no model, no tokenizer.

    path: a run folder, or a folder of them. dataset_dir, bundle: where the data is now, if it has moved. parquet: write
    the tables of scores and samples, too. Raises LocalevalError where the data or the dataset's definition is not what
    it was, RunFailed where replies are missing; of several runs those that can't be scored are the result's ``failed``,
    with the reason.
    """
    go_offline()
    folders = find_runs(Path(path))
    moved = {name: place for name, place in (("dataset_dir", dataset_dir), ("bundle", bundle)) if place is not None}
    if len(folders) == 1:
        run = _score_again(RunFolder(folders[0]), moved, parquet)
        return RunResult((run,), console_text([run.report]))
    runs: list[Run] = []
    failed: list[Failed] = []
    for folder in folders:
        try:
            runs.append(_score_again(RunFolder(folder), moved, parquet))
        except (LocalevalError, RunFailed, OSError) as error:
            failed.append(Failed(str(folder), str(error)))
    parts = [console_text([run.report for run in runs])] if runs else []
    parts += [f"failed: {each.model}: {each.reason}" for each in failed]
    return RunResult(tuple(runs), "\n\n".join(parts), tuple(failed))


def find_runs(path: Path) -> list[Path]:
    """A run folder itself, or all that lie below a folder. Raises LocalevalError where there is none."""
    folders = [path] if (path / "run.json").is_file() else sorted(file.parent for file in path.rglob("run.json"))
    if not folders:
        raise LocalevalError(
            f"{path}: no run.json there or below; a run folder is <work-dir>/<model>-<hex>/<dataset>-<hex>"
        )
    return folders


def report_runs(paths: Sequence[str | Path]) -> str:
    """Finished runs next to each other, as text: free and constrained ones of one model in one table.

    paths: run folders, or folders of them. A run that is not finished is named and left out. Raises LocalevalError for
    a folder without runs, or a report that is none, RunFailed where no run is finished.
    """
    runs = find_finished(paths)
    if not runs:
        raise RunFailed("nothing to report: none of the runs is finished")
    with of_this_version():
        return side_by_side(runs)


def find_finished(paths: Sequence[str | Path], labels: Mapping[Path, str] | None = None) -> list[Finished]:
    """The finished runs in some folders, each once, in order; one that is not finished is named and left out.

    labels: by run folder how tables call the model, where that is not the model's own name.
    """
    folders = dict.fromkeys(folder.resolve() for path in paths for folder in find_runs(Path(path)))
    found = []
    for folder in folders:
        run = RunFolder(folder)
        facts = run.read_json("run.json")
        if facts.get("complete") is not True:
            warn(f"{folder} is not finished: the same command again goes on with it")
            continue
        with of_this_version(folder):
            label = (labels or {}).get(folder) or facts["model"]["name"]
            found.append(Finished(label, folder, facts, run.read_json("report.json")))
            _ = facts["asked_parts"], found[-1].fingerprint, found[-1].mode, found[-1].headline
    return found


def find_baseline(named: str) -> list[Finished]:
    """The finished runs in the folder that ``--baseline`` names. Raises LocalevalError where there is none."""
    if not Path(named).exists():
        hint = nearest(named, ["first", "best"])
        raise LocalevalError(f"--baseline {named}: there is no such folder{hint}; or say first, or best")
    return find_finished([named])


def _score_again(folder: RunFolder, moved: Mapping[str, str], parquet: bool) -> Run:
    facts = folder.read_json("run.json")
    folder.lock()
    try:
        return _score_held(folder, facts, moved, parquet)
    finally:
        folder.close()


def _score_held(folder: RunFolder, facts: Mapping[str, Any], moved: Mapping[str, str], parquet: bool) -> Run:
    try:
        config = _config_of(facts, moved)
        settings, engine = facts["settings"], facts["model"]["identity"]
        fingerprints = dict(facts["dataset"]["fingerprints"])
        _ = facts["model"]["name"], facts["reused"], facts["dropped_shots"], facts["greedy"]
        _ = facts["thinking"], facts["reasoning_opened"], _tags_of(facts), facts["warnings"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LocalevalError(
            f"{folder.path}/run.json is no record of a run ({error!r}): run the command again"
        ) from error
    (job,) = load_jobs(config)
    if settings_digest(job, config, engine) != settings:
        raise LocalevalError(f"{folder.path}: the definition of dataset {job.name} is not what it was in this run")
    for part, digest in fingerprints.items():
        if job.dataset.fingerprints.get(part) != digest:
            raise LocalevalError(f"{folder.path}: {job.dataset.files.get(part, part)}: its bytes have changed since")
    before = earlier(folder)
    scores = _scores_of(job, folder, judge_of(job, facts), _forces(job, facts))
    if not (folder.path / SAMPLES).is_file():
        _write_samples(job, folder, facts)
    patterns = (facts["dataset"].get("answer_pattern") or "", job.answer_pattern)
    run = replace(finish(job, folder, scores, facts), read_again=read_again(before, scores, patterns))
    say(f"{folder.path}: {run.read_again}")
    if patterns[0] != patterns[1]:
        facts = {**facts, "dataset": {**facts["dataset"], "answer_pattern": job.answer_pattern or None}}
        folder.write_json("run.json", facts)
    write_report(folder, run.report, facts, parquet)
    return run


def _write_samples(job: Job, folder: RunFolder, facts: Mapping[str, Any]) -> None:
    """As far as they can be known without the model."""
    if facts["dropped_shots"]:
        raise LocalevalError(
            f"{folder.path / SAMPLES} is missing, and which prompts lost shots is not known without it: run the "
            "command again; it asks nothing anew"
        )
    write_samples(folder, (AskedSample(sample, job.message(sample), False) for sample in job.dataset.samples))


def _config_of(facts: Mapping[str, Any], moved: Mapping[str, str]) -> TaskConfig:
    """The config of a run, for its own dataset alone.

    moved: the fields that say where the data is now; where it was is then no longer asked. A bundle that has gone is
    not, either.
    """
    dataset = facts["dataset"]
    args = dict(facts["config"]["dataset_args"].get(dataset["name"]) or {})
    config = {**facts["config"], "datasets": [dataset["asked_as"]], **config_of_mode(facts["mode"])}
    config["force_answer"] = False  # of all datasets of the command; what it means for this one is asked of run.json
    if config.get("bundle") and not Path(config["bundle"]).is_dir():
        config["bundle"] = None
    if moved:
        config |= {"dataset_dir": None, **moved}
        args["local_path"] = None
    return load_config({**config, "dataset_args": {dataset["name"]: args}})


def _forces(job: Job, facts: Mapping[str, Any]) -> bool:
    return job.can_force and bool(facts["config"].get("force_answer"))


def _scores_of(job: Job, folder: RunFolder, judge: Callable[[Sample, Completion], Score], forced: bool) -> list[Score]:
    samples = {sample.id: sample for sample in job.dataset.samples}
    rows = track(folder.rows(), len(samples), f"{job.title}: scoring", LATE)
    answers = {row.key: row for row in folder.forced_rows()} if forced else {}
    scores = {}
    for row in rows:
        if (sample := samples.get(row.sample_id)) is not None:
            score = judge(sample, row)
            answer = answers.get(forced_key(row)) if answers and score.parsed is None else None
            scores[sample.id] = score if answer is None else job.with_forced(sample, score, answer)
    missing = [sample_id for sample_id in samples if sample_id not in scores]
    if missing:
        raise RunFailed(
            f"{folder.path / PREDICTIONS}: {len(missing)} samples have no reply, the first {missing[0]}; run the "
            "command again"
        )
    return [scores[sample_id] for sample_id in samples]
