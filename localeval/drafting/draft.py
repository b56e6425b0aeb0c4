"""``localeval init``: looks at a file of rows, and writes the YAML file that makes them a dataset.

What can't be told is an error that names the columns and the option that decides. Nothing is written before the rows
have been read through the new definition as a run reads them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml
from pydantic import ValidationError

from localeval.datasets.reading import read_table
from localeval.datasets.rows import Dataset, load_dataset, odd_rows
from localeval.datasets.source import TABLES, TEXTS
from localeval.datasets.spec import DatasetSpec, builtin_names, find_spec
from localeval.drafting.definition import Place, definition
from localeval.drafting.entities import Sentences, find_layout, find_sentences, looks_like_sentences
from localeval.drafting.questions import Named, Questions, find_questions
from localeval.drafting.table import Table, table_of
from localeval.jobs import right_reply
from localeval.progress import warn
from localeval.report.text import words_table
from localeval.schema import LocalevalError
from localeval.strict import explain

MOST_TOLD = 12
"""Names of columns that are not used, in one line."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user says. name: of the YAML file, with or without its ending. tag_names: of tags that are numbers."""

    name: str
    rows: str
    task: Literal["mcq", "ner"] | None = None
    named: Named = field(default_factory=Named)
    tag_names: tuple[str, ...] = ()


def draft(wish: Wish) -> str:
    """Writes the file; gives back what to tell. Raises LocalevalError for what is there, can't be read or told."""
    rows, target = Path(wish.rows), Path(wish.name if wish.name.endswith((".yaml", ".yml")) else f"{wish.name}.yaml")
    if target.exists():
        raise LocalevalError(f"{target} is there already: take another name, or remove it")
    if target.stem in builtin_names():
        raise LocalevalError(f"{target.stem} is a built-in dataset, and reports would call both so: take another name")
    if not rows.is_file():
        raise LocalevalError(f"--from {rows}: there is no such file (looked for {rows.absolute()})")
    if rows.suffix not in (*TABLES, *TEXTS):
        raise LocalevalError(f"--from {rows}: rows are read from {', '.join((*TABLES, *TEXTS))} files")
    place = _place(wish, rows, target)
    found, table = _look(wish, rows)
    text = definition(place, found, find_spec("milu").templates)
    dataset = _read(text, target, rows)
    for line in [*odd_rows(dataset), *_doubts(dataset)]:
        warn(line)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise LocalevalError(f"{target} can't be written: {error.strerror}") from error
    return "\n\n".join([_found_text(target, rows, found, table, dataset), _first_text(dataset), _next_text(target)])


def _place(wish: Wish, rows: Path, target: Path) -> Place:
    """Where the rows are, seen from the new file. Raises LocalevalError where that can't see them."""
    home, folder = target.absolute().parent.resolve(), rows.absolute().parent.resolve()
    if not home.is_dir():
        raise LocalevalError(f"{target}: there is no folder {home}")
    if not folder.is_relative_to(home):
        raise LocalevalError(
            f"{rows} does not lie below {home}, and a dataset's rows lie beside its YAML file or below it: "
            f"localeval init {folder / target.stem} --from {rows}, or bring the rows there"
        )
    command = f"localeval init {wish.name} --from {wish.rows}"
    return Place(command, folder.relative_to(home).as_posix(), rows.stem, rows.suffix)


# --- looking ---


def _look(wish: Wish, rows: Path) -> tuple[Questions | Sentences, Table | None]:
    if rows.suffix in TEXTS or (rows.suffix == ".tsv" and (wish.task == "ner" or _is_tagged_text(rows, wish))):
        if wish.task == "mcq":
            raise LocalevalError(f"{rows}: multiple-choice rows can't be read from {rows.suffix} files")
        return find_layout(rows), None
    read = read_table(rows)
    table = table_of(row.values for row in read.rows)
    if not table.n:
        raise LocalevalError(f"{rows} has no rows")
    if rows.suffix in (".csv", ".tsv") and len(table.columns) == 1 and re.search("[;,\t|]", next(iter(table.columns))):
        expected = "commas" if rows.suffix == ".csv" else "tabs"
        raise LocalevalError(
            f"{rows}: the header is one cell, {next(iter(table.columns))!r}; {expected} are to divide it"
        )
    if wish.task == "ner" or (wish.task is None and not _names_mcq(wish) and looks_like_sentences(table)):
        return find_sentences(table, read.tag_names, wish.tag_names), table
    try:
        return find_questions(table, wish.named), table
    except LocalevalError as error:
        hint = "" if wish.task else " (--task ner, if these are sentences with tags)"
        raise LocalevalError(f"{rows}: {error}{hint}") from error


def _names_mcq(wish: Wish) -> bool:
    return wish.named != Named()


def _is_tagged_text(rows: Path, wish: Wish) -> bool:
    """Whether a .tsv file holds a token a line, and no table."""
    if wish.task == "mcq" or _names_mcq(wish):
        return False
    try:
        find_layout(rows)
    except LocalevalError:
        return False
    return True


def _read(text: str, target: Path, rows: Path) -> Dataset:
    """Reads every row through the new definition, as a run does. Raises LocalevalError where it finds another file."""
    values = yaml.safe_load(text)
    try:
        spec = DatasetSpec.model_validate({"name": target.stem, **values, "source": target.absolute()})
    except ValidationError as error:
        raise explain(error, DatasetSpec, str(target)) from error
    dataset = load_dataset(spec)
    for found in dataset.files.values():
        if not rows.samefile(found):
            raise LocalevalError(f"a run would read {found}, not {rows}: move one of them")
    return dataset


def _doubts(dataset: Dataset) -> list[str]:
    """What may be meant so, but makes scores that say little."""
    name, samples = dataset.spec.name, dataset.samples
    asked = {(sample.text, sample.choices, sample.tokens) for sample in samples}
    told = [f"{name}: {len(samples) - len(asked)} rows ask what another row asks"] if len(asked) < len(samples) else []
    if not samples[0].choices:
        return told
    right = {sample.gold for sample in samples}
    if len(right) == 1 and len(samples) >= 10:
        told.append(f"{name}: the right option is always {samples[0].gold[0]}: a model that says it always scores 1.0")
    if all(re.match(rf"\(?{chr(65 + i)} ?[).:]", text) for each in samples for i, text in enumerate(each.choices)):
        told.append(f"{name}: the options begin with their letters, which the prompt puts before them once more")
    return told


# --- telling ---


def _found_text(target: Path, rows: Path, found: Questions | Sentences, table: Table | None, dataset: Dataset) -> str:
    task = "multiple choice" if isinstance(found, Questions) else "named entities"
    lines = _questions_rows(found) if isinstance(found, Questions) else _sentences_rows(found)
    if found.groups and table is not None:
        sizes = (f"{name} ({len(set(map(str, table.columns[name])))} values)" for name in found.groups)
        lines.append(["groups", ", ".join(sizes), "reported one by one"])
    if table is not None:
        used = {*found.used, *found.groups}
        left = [name for name in table.columns if name not in used]
        left += table.partly
        more = [f"and {len(left) - MOST_TOLD} more"] if len(left) > MOST_TOLD else []
        lines += [["not used", ", ".join([*left[:MOST_TOLD], *more]), ""]] if left else []
    head = f"{target}: {task}, {len(dataset.samples):,} rows of {rows}"
    return "\n\n".join([head, words_table(["part", "where", "how"], lines)])


def _questions_rows(found: Questions) -> list[list[str]]:
    fewest, most = found.options
    one = len(found.choice_columns) == 1
    return [
        ["question", *([f"{found.context}, {found.question}", "together"] if found.context else [found.question, ""])],
        [
            "options",
            ", ".join(found.choice_columns),
            ("a list of " if one else "") + (f"{most}" if fewest == most else f"{fewest} to {most}"),
        ],
        ["answer", found.answer, found.answer_is],
    ]


def _sentences_rows(found: Sentences) -> list[list[str]]:
    if found.conll is not None:
        where = [["tokens", f"column {found.conll.token}", ""], ["tags", f"column {found.conll.tag}", "IOB2"]]
    else:
        where = [["tokens", found.tokens, ""], ["tags", found.tags, "IOB2, as numbers" if found.tag_names else "IOB2"]]
    return [*where, ["entities", _most_frequent(found.entities), f"{len(found.types)} types"]]


def _most_frequent(entities: Mapping[str, int], most: int = 8) -> str:
    """The first types, which are the most frequent, with their counts."""
    shown = [f"{label} {count:,}" for label, count in list(entities.items())[:most]]
    return ", ".join([*shown, f"and {len(entities) - most} more"] if len(entities) > most else shown)


def _first_text(dataset: Dataset) -> str:
    sample, spec = dataset.samples[0], dataset.spec
    lines = [sample.text]
    if sample.choices:
        lines += [f"{chr(ord('A') + i)}) {choice}" for i, choice in enumerate(sample.choices)]
    lines.append(f"right: {right_reply(spec, sample)}")
    return "\n".join(["The first row, as it is understood:", *(f"  {line}" for line in "\n".join(lines).splitlines())])


def _next_text(target: Path) -> str:
    shown = shlex.quote(str(target) if target.parent != Path() else f"./{target}")
    return (
        "Look at its prompts, then ask a model:\n"
        f"  localeval list {shown} --show 3\n"
        f"  localeval --model M --datasets {shown}"
    )
