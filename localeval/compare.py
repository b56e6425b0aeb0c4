"""Finished runs of several models -> a paired comparison on the samples that they share. Reads run folders alone.

Only runs that asked the same are compared: anything else is refused with the names of what differs, or, where the user
insists, compared on the shared samples and stamped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from localeval.metrics import mcq, ner
from localeval.metrics.paired import Paired, holm, paired_f1, paired_means, paired_proportions
from localeval.progress import LATE, track
from localeval.report.build import HEADLINE
from localeval.report.comparison import Block, Comparison, Contrast, Flip
from localeval.report.finished import Finished, of_this_version
from localeval.schema import LocalevalError, Tally, title_of
from localeval.scoring import find_baseline, find_finished
from localeval.store import PREDICTIONS, SCORES, Scored, read_predictions, read_scores


def compare_paths(paths: Sequence[str | Path], baseline: str = "first", force: bool = False) -> Comparison:
    """Compares the runs in some folders: run folders, folders of one model, or folders of several.

    baseline: ``first``, ``best`` (of each dataset), or a folder. force: compares also runs that did not ask the same.
    Raises LocalevalError for runs that can't be compared, with the fields in which they differ.
    """
    entries = find_finished(paths)
    if len(entries) < 2 and baseline in ("first", "best"):
        raise LocalevalError(f"there is nothing to compare: {len(entries)} finished run in what was named")
    with of_this_version():
        comparison = compare_entries(entries, baseline, force)
    if comparison.refused:
        raise LocalevalError("\n".join(comparison.refused) + _HOW_TO_COMPARE)
    return comparison


_HOW_TO_COMPARE = "\nAsk again with the same settings, or compare the shared samples with --force"


def told_apart(entries: Sequence[Finished]) -> list[Finished]:
    """Models of one name get their fingerprint beside it; the folder, where one model was asked twice."""
    prints: dict[str, set[str]] = {}
    for entry in entries:
        prints.setdefault(entry.label, set()).add(entry.fingerprint)
    named = [
        replace(entry, label=f"{entry.label} ({entry.fingerprint[:8]})") if len(prints[entry.label]) > 1 else entry
        for entry in entries
    ]
    times = Counter((entry.label, entry.dataset, entry.mode) for entry in named)
    return [
        replace(entry, label=f"{entry.label} {entry.folder.name.rsplit('-', 1)[-1]}")
        if times[entry.label, entry.dataset, entry.mode] > 1
        else entry
        for entry in named
    ]


def compare_entries(entries: Sequence[Finished], baseline: str = "first", force: bool = False) -> Comparison:
    """As ``compare_paths``, of runs that were found already; pairs that can't be compared are in ``refused``."""
    chosen: set[Path] = set()
    if baseline not in ("first", "best"):
        named = find_baseline(baseline)
        chosen = {entry.folder for entry in named}
        entries = [*named, *(entry for entry in entries if entry.folder not in chosen)]
    entries = told_apart(entries)
    blocks, flips, refused = [], [], []
    for bucket in _buckets(entries):
        if len(bucket) < 2 or all(entry.folder in chosen for entry in bucket):
            continue
        base = _baseline(bucket, baseline, chosen)
        if base is None:
            refused.append(f"--baseline {baseline} holds no run of {title_of(bucket[0].dataset, bucket[0].mode)}")
            continue
        others = []
        for entry in bucket:
            differing = [] if force or entry is base else differences(base, entry)
            refused += [_refusal(base, entry, differing)] if differing else []
            others += [] if differing or entry is base else [entry]
        if others:
            block, flipped = _block(base, others, force)
            blocks.append(block)
            flips += flipped
    if not blocks and not refused:
        raise LocalevalError("there is nothing to compare: no dataset was asked of two of the runs")
    return Comparison(_adjusted(blocks), tuple(flips), tuple(refused))


def against_best(entries: Sequence[Finished], comparison: Comparison) -> tuple[Block, ...]:
    """The runs of a comparison by the metric that names their result, each against the best of its table.

    Who is best was chosen by the same samples, so its lead is flattered. Holm's correction is over these tests alone.
    """
    compared = {folder for block in comparison.blocks for folder in (block.folder, *(t.folder for t in block.tests))}
    blocks = []
    for bucket in _buckets(told_apart([entry for entry in entries if str(entry.folder) in compared])):
        best = _baseline(bucket, "best", set())
        if len(bucket) < 2 or best is None:
            continue
        rows = {entry.folder: _rows(entry) for entry in bucket}
        tests = []
        for entry in (each for each in bucket if each is not best):
            result = _headline_test(entry.task)(*_shared(best, entry, rows, force=True))
            tests.append(Contrast(entry.label, str(entry.folder), HEADLINE[entry.task], "", "", result))
        blocks.append(Block(best.dataset, best.mode, best.task, best.label, str(best.folder), tuple(tests)))
    return _adjusted(blocks)


def _refusal(base: Finished, entry: Finished, differing: Sequence[str]) -> str:
    return (
        f"{entry.label} and {base.label} did not ask {entry.dataset} alike, so their numbers can't be compared: "
        f"{'; '.join(differing)} ({entry.folder}, {base.folder})"
    )


def _buckets(entries: Sequence[Finished]) -> list[list[Finished]]:
    """Runs of one dataset in one mode; of one dataset alone, where no mode has two of them."""
    by_mode: dict[tuple[str, str], list[Finished]] = {}
    by_dataset: dict[str, list[Finished]] = {}
    for entry in entries:
        by_mode.setdefault((entry.dataset, entry.mode), []).append(entry)
        by_dataset.setdefault(entry.dataset, []).append(entry)
    found = []
    for dataset, bucket in by_dataset.items():
        modes = [each for (name, _), each in by_mode.items() if name == dataset]
        found += [bucket] if all(len(each) == 1 for each in modes) else modes
    return found


def _baseline(bucket: Sequence[Finished], baseline: str, chosen: Set[Path]) -> Finished | None:
    """None where a folder was named as the baseline that has no such run."""
    if baseline == "first":
        return bucket[0]
    if baseline == "best":
        return max(bucket, key=lambda entry: -1.0 if entry.headline is None else entry.headline)
    found = [entry for entry in bucket if entry.folder in chosen]
    if len(found) > 1:
        title = title_of(bucket[0].dataset, bucket[0].mode)
        raise LocalevalError(f"--baseline {baseline} holds {len(found)} runs of {title}; name one run folder")
    return found[0] if found else None


# --- one dataset ---


def _block(base: Finished, others: Sequence[Finished], force: bool) -> tuple[Block, list[Flip]]:
    rows = {entry.folder: _rows(entry) for entry in (base, *others)}
    stamps = ["accuracy is as read: forced answers are not compared"] if any(map(_has_forced, (base, *others))) else []
    tests: list[Contrast] = []
    flips: list[Flip] = []
    for entry in track(others, len(others), f"comparing {title_of(base.dataset, base.mode)}", LATE):
        differing = differences(base, entry)
        first, second = _shared(base, entry, rows, force)
        if differing:
            stamps.append(f"{entry.label} did not ask the same: {'; '.join(differing)} ({len(first):,} shared samples)")
        tests += _tests(entry, first, second)
        flips += _flips(base, entry, first, second)
    return (
        Block(base.dataset, base.mode, base.task, base.label, str(base.folder), tuple(tests), tuple(stamps)),
        flips,
    )


def _has_forced(entry: Finished) -> bool:
    return entry.report.get("forced") is not None


def differences(one: Finished, other: Finished) -> list[str]:
    """What two runs did not ask alike, as ``field: value / value``; nothing where they compare."""
    left, right = _conditions(one), _conditions(other)
    return [
        f"{name}: {_short(left.get(name))} / {_short(right.get(name))}"
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name)
    ]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _conditions(entry: Finished) -> dict[str, Any]:
    """All that must be equal for a difference to be the models'."""
    facts, config = entry.facts, entry.facts["config"]
    generation = {f"generation_config {name}": value for name, value in config["generation_config"].items()}
    return {
        "mode": entry.mode,
        **facts["asked_parts"],
        "data": dict(sorted(facts["dataset"]["fingerprints"].items())),
        "reading rules": entry.report.get("reading"),
        "answer_pattern": facts["dataset"].get("answer_pattern"),
        "read": config.get("read") if entry.task == "ner" else None,
        # A template without reasoning (None) asks as one does in which it is switched off.
        "thinking": "on" if facts["thinking"] == "on" else "off",
        "chat_template_args": config["chat_template_args"],
        "stop_at_end_tag": config["stop_at_end_tag"] if entry.task == "ner" else None,
        "dropped_shots": facts["dropped_shots"],
        **(generation if entry.mode in ("generate", "constrained") else {}),
    }


Rows = Mapping[str, Scored]
_Pair = tuple[list[Scored], list[Scored]]


def _rows(entry: Finished) -> Rows:
    rows = list(read_scores(entry.folder / SCORES))
    by_id = {row.score.sample_id: row for row in rows}
    if len(by_id) < len(rows):
        raise LocalevalError(f"{entry.folder / SCORES}: a sample stands there twice; localeval score RUN_DIR mends it")
    return by_id


def _shared(
    base: Finished, entry: Finished, rows: Mapping[Path, Rows], force: bool
) -> tuple[list[Scored], list[Scored]]:
    left, right = rows[base.folder], rows[entry.folder]
    ids = [sample_id for sample_id in left if sample_id in right]
    if not ids or (not force and (len(ids) < len(left) or len(ids) < len(right))):
        raise LocalevalError(
            f"{entry.folder} and {base.folder} share {len(ids):,} samples of {len(right):,} and {len(left):,}: "
            "their scores.jsonl are not whole; localeval score RUN_DIR writes them anew"
        )
    return [left[sample_id] for sample_id in ids], [right[sample_id] for sample_id in ids]


def _tests(entry: Finished, first: Sequence[Scored], second: Sequence[Scored]) -> Iterator[Contrast]:
    """Of all samples each metric; of each part of them the one that names the result."""
    for metric, result in _overall(entry, first, second).items():
        yield Contrast(entry.label, str(entry.folder), metric, "", "", result)
    test, headline = _headline_test(entry.task), HEADLINE[entry.task]
    kinds: dict[str, Callable[[Scored], str]] = {"subset": lambda row: row.subset}
    for name in first[0].groups:
        kinds[name] = lambda row, name=name: row.groups[name]  # type: ignore[misc]
    for kind, value_of in kinds.items():
        parts: dict[str, list[int]] = {}
        for index, row in enumerate(first):
            parts.setdefault(value_of(row), []).append(index)
        if len(parts) < 2:
            continue
        for value, indexes in parts.items():
            result = test([first[i] for i in indexes], [second[i] for i in indexes])
            yield Contrast(entry.label, str(entry.folder), headline, kind, value, result)
    for label in entry.report["types"] if entry.task == "ner" else ():
        pair = [[row.score.tallies.get(f"entity:{label}", Tally()) for row in rows] for rows in (first, second)]
        yield Contrast(entry.label, str(entry.folder), headline, "type", label, paired_f1(*pair))


def _headline_test(task: str) -> Callable[[Sequence[Scored], Sequence[Scored]], Paired]:
    if task == "ner":
        return lambda first, second: paired_f1(*([ner.entity_tally(r.score) for r in rows] for rows in (first, second)))
    return lambda first, second: paired_proportions(*([is_right(row) for row in rows] for rows in (first, second)))


def _overall(entry: Finished, first: Sequence[Scored], second: Sequence[Scored]) -> dict[str, Paired]:
    found = {HEADLINE[entry.task]: _headline_test(entry.task)(first, second)}
    if entry.mode in ("logprob", "cloze"):
        values = [[mcq.smooth(row.score, entry.mode) for row in rows] for rows in (first, second)]
        for name in values[0][0]:
            found[name] = paired_means(*([each[name] for each in side] for side in values))
    return found


def is_right(row: Scored) -> bool:
    """Whether an answer is right, or a sentence's entities are exactly the gold ones."""
    if "answer" in row.score.tallies:
        return row.score.tallies["answer"].correct > 0
    tally = ner.entity_tally(row.score)
    return tally.correct == tally.predicted == tally.gold


def _adjusted(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Holm's correction: one family of all tests over all samples, and one of each kind of parts."""
    places = [(b, t) for b, block in enumerate(blocks) for t in range(len(block.tests))]
    kinds = dict.fromkeys(blocks[b].tests[t].kind for b, t in places)
    tests = [list(block.tests) for block in blocks]
    for kind in kinds:
        family = [(b, t) for b, t in places if tests[b][t].kind == kind]
        for (b, t), p in zip(family, holm([tests[b][t].result.p for b, t in family]), strict=True):
            tests[b][t] = replace(tests[b][t], p_holm=p)
    return tuple(replace(block, tests=tuple(each)) for block, each in zip(blocks, tests, strict=True))


def _flips(base: Finished, entry: Finished, first: Sequence[Scored], second: Sequence[Scored]) -> list[Flip]:
    """Samples that one of the two has right and the other has not, with both replies."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if is_right(a) != is_right(b)]
    wanted = {a.score.sample_id for a, _ in pairs}
    left, right = _texts(base, wanted), _texts(entry, wanted)
    return [
        Flip(
            dataset=base.dataset,
            mode=base.mode,
            sample_id=a.score.sample_id,
            baseline=base.label,
            candidate=entry.label,
            change="gained" if is_right(b) else "lost",
            parsed=(a.score.parsed, b.score.parsed),
            replies=(left.get(a.score.sample_id), right.get(a.score.sample_id)),
            reasons=(a.score.unparsed_reason, b.score.unparsed_reason),
        )
        for a, b in pairs
    ]


def _texts(entry: Finished, wanted: set[str]) -> dict[str, str]:
    file = entry.folder / PREDICTIONS
    if not wanted or not file.is_file():
        return {}
    return {row.sample_id: row.text for row in read_predictions(file) if row.sample_id in wanted}
