"""Finished runs -> tidy tables, one of scores and one of samples, as pandas and as Parquet. Reads run folders alone.

Columns, their order and their types come from one place, an Arrow schema, for both forms: words that repeat are
categories, counts are integers that may be missing, what is not defined is missing, never NaN in a file. docs/tables.md
describes the columns for users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localeval.checkpoints import step_of
from localeval.metrics.ner import entity_tally
from localeval.progress import LATE, track
from localeval.report.build import COUNTS, OF_SAMPLES
from localeval.report.finished import Finished, of_this_version
from localeval.results import SampleResult, read_results
from localeval.schema import LocalevalError
from localeval.store import replacing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

PARQUET = "scores.parquet", "samples.parquet"
_ROWS = 4096
"""Samples that are in memory at once while they are written: with prompts of 20 kB, 80 MB."""

WORD, TEXT, LIST, COUNT, YES, NUMBER = "word", "text", "list", "count", "yes", "number"
"""What a column holds. WORD: text of which there are few, a category. LIST: of texts. COUNT: an integer, or missing."""

_RUN = {"model": WORD, "fingerprint": WORD, "step": COUNT, "dataset": WORD, "mode": WORD}
SCORE_COLUMNS = {
    **_RUN,
    "task": WORD,
    "shots": COUNT,
    "limited": YES,
    "comparable": YES,
    "kind": WORD,
    "part": WORD,
    "n": COUNT,
    "metric": WORD,
    "value": NUMBER,
    "low": NUMBER,
    "high": NUMBER,
    "folder": WORD,
}
_PARTS = ("all", "macro", "subset", "type", "letter", "unparsed_reason")
"""What ``kind`` is, beside the names of groups."""
_LETTER = {"logprob": "probability_", "cloze": "logprob_"}
"""By mode, what begins the columns of each letter: its probability, or its text's log probability per character."""
_ENTITIES = ("entities_correct", "entities_predicted", "entities_gold")
_REPLY = {
    "gold": TEXT,
    "parsed": TEXT,
    "correct": YES,
    "reply": TEXT,
    "finish_reason": WORD,
    "prompt_tokens": COUNT,
    "cached_tokens": COUNT,
    "output_tokens": COUNT,
}
_FORCED = {"forced": TEXT, "forced_probability": NUMBER}
_TAKEN = {*SCORE_COLUMNS, *_PARTS, *_REPLY, *_ENTITIES, *OF_SAMPLES, "sample_id", "text", "choices"}
_TAKEN |= {"tokens", "prompt", *_FORCED}


def group_name(name: str) -> str:
    """What a dataset's group is called in the tables: its name, unless a column or a part is called so."""
    taken = name in _TAKEN or name.startswith(("probability_", "logprob_", "group_"))
    return f"group_{name}" if taken else name


# --- scores ---


def score_rows(run: Finished) -> Iterator[dict[str, Any]]:
    """One row a metric or count of each part of a run; missing where it is not defined."""
    report, facts = run.report, run.facts
    of_run = {
        **_of_run(run),
        "task": report["task"],
        "shots": facts["dataset"]["shots"],
        "limited": report["limited"],
        "comparable": report["comparable"],
        "folder": _home(run),
    }
    for kind, part, n, metrics in _parts(report):
        for metric, value in metrics.items():
            estimate = value if isinstance(value, Mapping) else {"value": value}
            yield {**of_run, "kind": kind, "part": part, "n": n, "metric": metric, **estimate}


def _parts(report: Mapping[str, Any]) -> Iterator[tuple[str, str, int, Mapping[str, Any]]]:
    """What of the samples each part is, how many there are, and its metrics: numbers, or with an interval."""
    n = report["n"]
    counts = {name: count for name, count in report["counts"].items() if count is not None}
    forced = report.get("forced")
    with_forced = {"forced": forced["n"], "accuracy_with_forced": forced["accuracy"]} if forced else {}
    yield "all", "all", n, {**report["metrics"], **counts, **with_forced}
    macro = dict(report["macro"])
    yield "macro", macro.pop("over"), n, macro
    grouped = {"subset": report["subsets"], "type": report["types"]}
    grouped |= {group_name(name): parts for name, parts in report["groups"].items()}
    for kind, parts in grouped.items():
        for part, group in parts.items():
            yield kind, part, group["n"], group["metrics"]
    for letter, tally in (report["letters"] or {}).items():
        yield "letter", letter, tally["gold"], tally
    for reason, replies in report.get("unparsed", {}).items():
        yield "unparsed_reason", reason, n, {"replies": replies}


def _home(run: Finished) -> str:
    """The run folder, said in one way, from wherever it was named."""
    return str(run.folder.resolve())


def _of_run(run: Finished) -> dict[str, Any]:
    asked = run.facts["model"]["asked_as"] or run.facts["model"]["name"]
    return {
        "model": run.facts["model"]["name"],
        "fingerprint": run.fingerprint,
        "step": step_of(Path(str(asked))),
        "dataset": run.dataset,
        "mode": run.mode,
    }


def scores_table(runs: Iterable[Finished]) -> pd.DataFrame:
    """One row a metric of each part of each run. Raises LocalevalError for a report that is none of this version."""
    return _frame((row for run in runs for row in _checked(run)), SCORE_COLUMNS)


def _checked(run: Finished) -> list[dict[str, Any]]:
    with of_this_version(run.folder):
        return list(score_rows(run))


# --- samples ---


def sample_columns(runs: Sequence[Finished], prompts: bool) -> dict[str, str]:
    """The columns of some runs' samples, in order, and what each holds; those that none of the runs has are not there.

    prompts: whether the prompt is among them, which is most of the bytes.
    """
    tasks: set[str] = set()
    groups: dict[str, str] = {}
    notes: dict[str, str] = {}
    letters: dict[str, str] = {}
    forced: dict[str, str] = {}
    for run in runs:
        with of_this_version(run.folder):
            tasks.add(run.task)
            groups |= {group_name(name): WORD for name in run.report["groups"]}
            notes |= dict.fromkeys(COUNTS[run.task, run.mode], COUNT)
            forced |= _FORCED if run.report.get("forced") else {}
            if run.mode in _LETTER:
                letters |= {_LETTER[run.mode] + letter: NUMBER for letter in run.report["letters"] or ()}
    return {
        **_RUN,
        "sample_id": TEXT,
        "subset": WORD,
        **groups,
        "text": TEXT,
        **({"choices": LIST} if "mcq" in tasks else {}),
        **({"tokens": LIST} if "ner" in tasks else {}),
        **_REPLY,
        **(dict.fromkeys(_ENTITIES, COUNT) if "ner" in tasks else {}),
        **({"unparsed_reason": WORD} if "unparsed" in notes else {}),
        **notes,
        **forced,
        **dict(sorted(letters.items())),
        **({"prompt": TEXT} if prompts else {}),
        "folder": WORD,
    }


def sample_rows(run: Finished) -> Iterator[dict[str, Any]]:
    """One row a sample, read from the run folder one by one. Raises LocalevalError that names the file."""
    of_run = {**_of_run(run), "folder": _home(run)}
    counted = COUNTS[run.task, run.mode]
    for result in track(read_results(run.folder), run.report["n"], f"table of {run.dataset}", LATE):
        yield {**of_run, **_sample_row(result, run, counted)}


def _sample_row(result: SampleResult, run: Finished, counted: Sequence[str]) -> dict[str, Any]:
    completion, score = result.completion, result.score
    row: dict[str, Any] = {
        "sample_id": result.sample_id,
        "subset": result.subset,
        **{group_name(name): value for name, value in result.groups.items()},
        "text": result.text,
        "gold": result.gold,
        "parsed": score.parsed,
        "correct": result.right,
        "reply": completion.text,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "cached_tokens": completion.cached_tokens,
        "output_tokens": completion.output_tokens,
        "unparsed_reason": score.unparsed_reason,
        **{name: score.notes.get(name, 0) for name in counted},
        "forced": score.forced,
        "forced_probability": score.forced_probability,
        **{_LETTER[run.mode] + letter: value for letter, value in (score.probabilities or score.logprobs).items()},
        "prompt": result.prompt,
    }
    if run.task == "mcq":
        return {**row, "choices": result.choices}
    found = entity_tally(score)
    return {
        **row,
        "tokens": result.tokens,
        **dict(zip(_ENTITIES, (found.correct, found.predicted, found.gold), strict=True)),
    }


def samples_table(runs: Sequence[Finished], prompts: bool = False) -> pd.DataFrame:
    """One row a sample of each run. prompts: with what the model was given, which is most of the bytes.

    Raises LocalevalError that names the file of a run folder that is missing or broken.
    """
    return _frame((row for run in runs for row in sample_rows(run)), sample_columns(runs, prompts))


# --- pandas, Parquet ---


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    import pyarrow as pa

    types = {
        WORD: pa.dictionary(pa.int32(), pa.string()),
        TEXT: pa.string(),
        LIST: pa.list_(pa.string()),
        COUNT: pa.int64(),
        YES: pa.bool_(),
        NUMBER: pa.float64(),
    }
    return pa.schema([(name, types[holds]) for name, holds in columns.items()])


def _batches(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    left = iter(rows)
    while some := list(islice(left, _ROWS)):
        try:
            yield pa.RecordBatch.from_pylist(some, schema=schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            folders = " or ".join(dict.fromkeys(row["folder"] for row in some))
            raise LocalevalError(
                f"{folders}: a value in its files is not of this version's type ({error}): localeval score RUN_DIR "
                "writes them anew"
            ) from error


def _frame(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    kinds = {pa.int64(): pd.Int64Dtype(), pa.string(): pd.StringDtype("pyarrow")}
    kinds[pa.list_(pa.string())] = pd.ArrowDtype(pa.list_(pa.string()))
    schema = _schema(columns)
    table = pa.Table.from_batches(_batches(rows, schema), schema).unify_dictionaries()
    frame: pd.DataFrame = table.to_pandas(types_mapper=kinds.get)
    return frame


def write_parquet(run: Finished) -> None:
    """Writes scores.parquet and samples.parquet into the run's folder; samples with their prompts.

    However many samples there are, few are in memory at once. Raises LocalevalError for a file that can't be read,
    RunFailed for one that can't be written.
    """
    scores, samples = (run.folder / name for name in PARQUET)
    _write(scores, _checked(run), SCORE_COLUMNS)
    _write(samples, sample_rows(run), sample_columns([run], prompts=True))


def _write(path: Path, rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """A Parquet file, whole or not at all."""
    import pyarrow.parquet as pq

    schema = _schema(columns)
    with replacing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in _batches(rows, schema):
            writer.write_batch(batch)
