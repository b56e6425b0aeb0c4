"""Rows -> samples, each checked; and a dataset as a whole: its samples, its shots, its fingerprints.

A row that can't be right is refused with file, row, column and value; one that is merely odd is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from localeval.datasets.conll import DOCSTART
from localeval.datasets.reading import Row, read_rows
from localeval.datasets.source import find_root, find_split
from localeval.datasets.spec import DatasetSpec, McqColumns, NerColumns, apply_case, nearest
from localeval.identity import refuse_changed, state_of
from localeval.schema import LocalevalError, Sample


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset as this run asks it.

    samples: in the order of subsets and rows. shots: by subset, the first rows of the shots' split, a few more than
    are asked for, so that none needs to be the sample itself. fingerprints: ``<subset>/<split>`` -> SHA-256 of the
    files' bytes. warnings: what is odd -> the places.
    """

    spec: DatasetSpec
    subsets: tuple[str, ...]
    samples: tuple[Sample, ...]
    shots: Mapping[str, tuple[Sample, ...]]
    files: Mapping[str, str]
    fingerprints: Mapping[str, str]
    warnings: Mapping[str, tuple[str, ...]]
    root: Path = Path()
    """The folder that holds its files."""

    def data_fingerprint(self, subset: str) -> str:
        """The bytes that a subset's samples come from."""
        return self.fingerprints[f"{subset}/{self.spec.split}"]


def load_dataset(
    spec: DatasetSpec,
    *,
    dataset_dir: str | None = None,
    local_path: str | None = None,
    bundle: Path | None = None,
    subsets: Sequence[str] | None = None,
    limit: int | None = None,
    shots: int = 0,
) -> Dataset:
    """Finds, reads and checks the rows of a dataset.

    limit: at most so many rows of each subset. shots: how many examples the prompts will hold. Raises LocalevalError.
    """
    root = find_root(spec, dataset_dir, local_path, bundle)
    chosen = chosen_subsets(spec, subsets)
    splits = {subset: _load_split(spec, root, subset, spec.split, limit) for subset in chosen}
    examples: dict[str, _Split] = {}
    if shots:  # twice as many and a few more: an example that is the sample itself is passed over
        examples = {subset: _load_split(spec, root, subset, spec.shots_split, 2 * shots + 8) for subset in chosen}
    parts = {f"{subset}/{spec.shots_split}": split for subset, split in examples.items()}
    parts |= {f"{subset}/{spec.split}": split for subset, split in splits.items()}
    samples = tuple(sample for split in splits.values() for sample in split.samples)
    if not samples:
        raise LocalevalError(f"dataset {spec.name}: there is no row in {'; '.join(s.files for s in splits.values())}")
    return Dataset(
        spec,
        chosen,
        samples,
        shots={subset: split.samples for subset, split in examples.items()},
        files={name: split.files for name, split in parts.items()},
        fingerprints={name: split.fingerprint for name, split in parts.items()},
        warnings=_oddities(splits),
        root=root,
    )


def chosen_subsets(spec: DatasetSpec, subsets: Sequence[str] | None) -> tuple[str, ...]:
    """All of a dataset's subsets, or those that are named. Raises LocalevalError for one that it hasn't."""
    unknown = [name for name in subsets or () if name not in spec.subsets]
    if unknown:
        hint = nearest(unknown[0], spec.subsets)
        raise LocalevalError(f"{spec.name} has no subset {unknown[0]!r}{hint}; its subsets: {', '.join(spec.subsets)}")
    if subsets is not None and (not subsets or len(set(subsets)) < len(subsets)):
        raise LocalevalError(f"{spec.name}: subset_list {list(subsets)} is empty or names a subset twice")
    return tuple(subsets or spec.subsets)


@dataclass(frozen=True, slots=True)
class _Split:
    """One subset's split. files: the paths as text. fingerprint: of their bytes."""

    samples: tuple[Sample, ...]
    files: str
    fingerprint: str


def _load_split(spec: DatasetSpec, root: Path, subset: str, split: str, limit: int | None) -> _Split:
    wanted_for = "" if split == spec.split else f" (they are wanted as examples: {spec.shots_split} is shots_split)"
    try:
        found = find_split(root, subset, split)
    except LocalevalError as error:
        raise LocalevalError(f"dataset {spec.name}{wanted_for}: {error}") from error
    before = state_of(found.files())
    rows = read_rows(found, _needed_columns(spec), spec, limit)
    # An example's id says which split it is from, so that it is the sample itself only where both are of one split.
    prefix = subset if split == spec.split else f"{subset}/{split}"
    columns = spec.columns or NerColumns()
    samples: Iterator[Sample]
    if isinstance(columns, McqColumns):
        samples = (_mcq_sample(row, f"{prefix}:{i}", subset, columns, spec) for i, row in enumerate(rows.rows))
    else:
        labels = _LabelMap(spec, rows.tag_names.get(columns.tags) or columns.tag_names)
        sentences = (row for row in rows.rows if row.values[columns.tokens] != [DOCSTART])
        samples = (_ner_sample(row, f"{prefix}:{i}", subset, columns, labels) for i, row in enumerate(sentences))
    read = tuple(samples)
    fingerprint = found.fingerprint()
    refuse_changed(before, f"dataset {spec.name} was read")  # else the fingerprint may be of other rows
    return _Split(read, ", ".join(str(path) for path in found.paths), fingerprint)


def _oddities(splits: Mapping[str, _Split]) -> dict[str, tuple[str, ...]]:
    """What may be right, but is seldom meant -> where it is."""
    questions = [sample for split in splits.values() for sample in split.samples if sample.choices]
    found = {
        "subsets without a row": [subset for subset, split in splits.items() if not split.samples],
        "rows with two options of the same text": [
            s.id for s in questions if len({choice.strip() for choice in s.choices}) < len(s.choices)
        ],
        "rows with an empty question or option": [
            s.id for s in questions if not s.text.strip() or not all(choice.strip() for choice in s.choices)
        ],
    }
    return {what: tuple(places) for what, places in found.items() if places}


def _needed_columns(spec: DatasetSpec) -> list[str]:
    columns = spec.columns or NerColumns()
    if isinstance(columns, NerColumns):
        return list(dict.fromkeys([columns.tokens, columns.tags, *spec.groups.values()]))
    choices = [columns.choices] if isinstance(columns.choices, str) else columns.choices
    return list(dict.fromkeys([columns.question, *choices, columns.answer, *spec.groups.values()]))


# --- multiple choice ---


def _mcq_sample(row: Row, sample_id: str, subset: str, columns: McqColumns, spec: DatasetSpec) -> Sample:
    question = _text(row, columns.question)
    if isinstance(columns.choices, str):
        listed = row.values[columns.choices]
        if not isinstance(listed, list):
            raise _wrong(row, columns.choices, listed, "expected a list of options")
        choices = tuple(_as_text(row, columns.choices, value) for value in listed)
    else:
        choices = tuple(_text(row, name) for name in columns.choices)
    if not 2 <= len(choices) <= len(ascii_uppercase):
        raise _wrong(row, str(columns.choices), list(choices), "expected 2 to 26 options")
    letter = _answer_letter(row, columns, choices)
    return Sample(sample_id, subset, question, (letter,), choices=choices, meta=_meta(row, spec))


def _answer_letter(row: Row, columns: McqColumns, choices: Sequence[str]) -> str:
    value = row.values[columns.answer]
    letters = ascii_uppercase[: len(choices)]
    expected = ""
    if columns.answer_is == "column":
        names = columns.choices if isinstance(columns.choices, list) else []
        expected = f"expected one of {', '.join(names)}"
        index = names.index(value) if value in names else -1
    elif columns.answer_is == "letter":
        expected = f"expected one of {', '.join(letters)}"
        said = value.strip().upper() if isinstance(value, str) else ""
        index = letters.index(said) if len(said) == 1 and said in letters else -1
    elif columns.answer_is == "text":
        expected = "expected the text of exactly one option"
        said = _as_text(row, columns.answer, value)
        index = choices.index(said) if list(choices).count(said) == 1 else -1
    else:
        first = 0 if columns.answer_is == "index" else 1
        expected = f"expected a whole number from {first} to {len(choices) - 1 + first}"
        index = _whole(value, -1 + first) - first
    if not 0 <= index < len(choices):
        raise _wrong(row, columns.answer, value, expected)
    return letters[index]


def _whole(value: Any, otherwise: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isdecimal():  # CSV knows only text
        return int(value)
    return otherwise


# --- entities ---


class _LabelMap:
    """The data's tags -> tags in the dataset's own labels; remembers what it has seen."""

    def __init__(self, spec: DatasetSpec, names: Sequence[str] | None) -> None:
        self._case = partial(apply_case, spec.label_case)
        self.spec = spec
        self._known = list(spec.tags)
        self._names = names
        self._seen: dict[Any, str] = {}

    def tag(self, value: Any, row: Row, column: str) -> str:
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value in self._seen:
            return self._seen[value]
        name = value
        if isinstance(value, int) and not isinstance(value, bool):
            if self._names is None:
                raise _wrong(row, column, value, "a number, and neither the file nor the YAML (tag_names) names it")
            if not 0 <= value < len(self._names):
                raise _wrong(row, column, value, f"expected a number from 0 to {len(self._names) - 1}")
            name = self._names[value]
        if not isinstance(name, str):
            raise _wrong(row, column, value, "expected a tag such as 'B-PER'")
        prefix, _, label = name.partition("-")
        tag = name if name == "O" else f"{prefix}-{self._case(label)}"
        if tag != "O" and (prefix not in ("B", "I") or self._case(label) not in self._known):
            hint = nearest(self._case(label), self._known)
            raise _wrong(row, column, name, f"expected O, or B- or I- and one of {', '.join(self._known)}{hint}")
        self._seen[value] = tag
        return tag


def _ner_sample(row: Row, sample_id: str, subset: str, columns: NerColumns, labels: _LabelMap) -> Sample:
    tokens, values = row.values[columns.tokens], row.values[columns.tags]
    for name, value in ((columns.tokens, tokens), (columns.tags, values)):
        if not isinstance(value, list):
            raise _wrong(row, name, value, "expected a list")
    if not tokens:
        raise _wrong(row, columns.tokens, tokens, "a sentence without tokens")
    if len(tokens) != len(values):
        raise _wrong(row, columns.tags, values, f"{len(values)} tags for {len(tokens)} tokens")
    for token in tokens:
        if not isinstance(token, str) or not token.strip():
            raise _wrong(row, columns.tokens, token, "expected tokens that are text and not empty")
    tags = tuple(labels.tag(value, row, columns.tags) for value in values)
    before = "O"
    for index, tag in enumerate(tags):
        if tag[0] == "I" and before[1:] != tag[1:]:
            raise _wrong(
                row,
                columns.tags,
                tag,
                f"token {index} ({tokens[index]!r}) goes on with an entity that did not begin; "
                f"tags are IOB2: the first of each entity is B{tag[1:]}",
            )
        before = tag
    return Sample(sample_id, subset, " ".join(tokens), tags, tokens=tuple(tokens), meta=_meta(row, labels.spec))


# --- both ---


def _meta(row: Row, spec: DatasetSpec) -> dict[str, str]:
    return {name: str(row.values[column]) for name, column in spec.groups.items()}


def _text(row: Row, column: str) -> str:
    return _as_text(row, column, row.values[column])


def _as_text(row: Row, column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise _wrong(row, column, value, "expected text")


def _wrong(row: Row, column: str, value: Any, why: str) -> LocalevalError:
    shown = repr(value)
    return LocalevalError(f"{row.place}, column {column}: {shown if len(shown) <= 200 else shown[:200] + '...'}: {why}")


def odd_rows(dataset: Dataset) -> list[str]:
    """One line a kind of oddity: how many, and the first places."""
    return [
        f"{dataset.spec.name}: {len(places)} {what}: {', '.join(places[:5])}" + (" ..." if len(places) > 5 else "")
        for what, places in dataset.warnings.items()
    ]
