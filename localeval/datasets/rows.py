"""A dataset as a whole: its samples, its shots, its fingerprints.

A row that can't be right is refused (``checking.py``); one that is merely odd is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localeval.datasets.checking import LabelMap, mcq_sample, ner_sample
from localeval.datasets.conll import DOCSTART
from localeval.datasets.parts import Group, McqColumns, NerColumns
from localeval.datasets.reading import read_rows
from localeval.datasets.source import find_root, find_split
from localeval.datasets.spec import SAMPLES, DatasetSpec
from localeval.identity import refuse_changed, state_of
from localeval.nearest import nearest
from localeval.progress import LATE, track
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
        found = find_split(root, spec, subset, split)
    except LocalevalError as error:
        raise LocalevalError(f"dataset {spec.name}{wanted_for}: {error}") from error
    before = state_of(found.files())
    rows = read_rows(found, _needed_columns(spec), spec, limit)
    # An example's id says which split it is from, so that it is the sample itself only where both are of one split.
    prefix = subset if split == spec.split else f"{subset}/{split}"
    columns = spec.columns or NerColumns()
    samples: Iterator[Sample]
    if isinstance(columns, McqColumns):
        samples = (mcq_sample(row, f"{prefix}:{i}", subset, columns, spec) for i, row in enumerate(rows.rows))
    else:
        labels = LabelMap(spec, subset, rows.tag_names.get(columns.tags) or columns.tag_names)
        sentences = (row for row in rows.rows if row.values[columns.tokens] != [DOCSTART])
        samples = (ner_sample(row, f"{prefix}:{i}", subset, columns, labels) for i, row in enumerate(sentences))
    read = tuple(track(samples, None, f"{spec.name}: reading {subset}", LATE))
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
    groups = [group.column if isinstance(group, Group) else group for group in spec.groups.values()]
    if isinstance(columns, NerColumns):
        return list(dict.fromkeys([columns.tokens, columns.tags, *groups]))
    return list(dict.fromkeys([*columns.question_columns, *columns.choice_columns, columns.answer, *groups]))


def odd_rows(dataset: Dataset) -> list[str]:
    """One line a kind of oddity: how many, and the first places."""
    return [
        f"{dataset.spec.name}: {len(places)} {what}: {', '.join(places[:5])}" + (" ..." if len(places) > 5 else "")
        for what, places in dataset.warnings.items()
    ]


def doubts(dataset: Dataset) -> list[str]:
    """What is to be known of the definition itself, beside its rows; nothing where it was held against real rows.

    The rows that ship with localeval were written for the definition: they are stamped as what they are.
    """
    ours = dataset.root.is_relative_to(SAMPLES)
    return [dataset.spec.doubt] if dataset.spec.unverified and not ours else []
