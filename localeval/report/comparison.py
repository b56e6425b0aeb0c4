"""A comparison of several runs as text, Markdown and JSON. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from localeval.metrics.paired import Paired
from localeval.report.escaping import as_markdown
from localeval.report.text import DASH, count, markdown_table, number, signed, signed_interval, table
from localeval.schema import Mode, title_of

LOWER_IS_BETTER = {"nll", "nll_per_character", "brier", "outside"}
ALPHA = 0.05
_ROUNDING = 1e-9
"""Percentage points: 7 of 1,000 samples are 0.7, and no more."""
_PARTS = 12
"""Parts that the console shows; comparison.md has all."""
_SHOWN = 20
"""Flips that are shown in Markdown; flips.jsonl has all."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """One candidate against the baseline. kind, part: of which samples or entities (``subset``, ``Hindi``); else empty.

    p_holm: the p-value after Holm's correction over all tests of its kind in the comparison.
    """

    candidate: str
    folder: str
    metric: str
    kind: str
    part: str
    result: Paired
    p_holm: float | None = None

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, or ``not shown`` where the corrected p is not below 0.05."""
        if self.p_holm is None or self.p_holm >= ALPHA or not self.result.difference:
            return "not shown"
        return "better" if (self.result.difference > 0) != (self.metric in LOWER_IS_BETTER) else "worse"


@dataclass(frozen=True, slots=True)
class Block:
    """One dataset in one mode: every other run against the baseline. stamps: what must be known before."""

    dataset: str
    mode: Mode
    task: str
    baseline: str
    folder: str
    tests: tuple[Contrast, ...]
    stamps: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return title_of(self.dataset, self.mode)

    @property
    def headline(self) -> str:
        """The metric that names the result: the first that is tested."""
        return self.tests[0].metric


@dataclass(frozen=True, slots=True)
class Flip:
    """A sample that one of two runs has right and the other has not. parsed, replies: the baseline's, the candidate's.

    change: ``gained`` where the candidate is right, else ``lost``. reasons: why one was not read.
    """

    dataset: str
    mode: Mode
    sample_id: str
    baseline: str
    candidate: str
    change: str
    parsed: tuple[str | None, str | None]
    replies: tuple[str | None, str | None]
    reasons: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All blocks of one comparison, the samples that flipped; refused: pairs that can't be compared, as sentences."""

    blocks: tuple[Block, ...]
    flips: tuple[Flip, ...]
    refused: tuple[str, ...] = ()

    def below(self, points: float) -> list[str]:
        """Why this is no pass, as sentences: results more than so many percentage points below the baseline's.

        Also those that are not defined on one side alone, and runs that could not be compared.
        """
        found = list(self.refused)
        for block in self.blocks:
            for test in block.tests:
                old, new = test.result.first, test.result.second
                if test.kind or test.metric != block.headline or old is None:
                    continue
                told = f"{block.title}: {test.candidate} has {test.metric} {number(new)}"
                if new is None:
                    found.append(f"{told}, not defined; {block.baseline} has {number(old)}")
                elif 100 * (old - new) > points + _ROUNDING:
                    found.append(f"{told}, {100 * (old - new):.2f} points below {block.baseline} ({number(old)})")
        return found


def comparison_text(comparison: Comparison) -> str:
    """For the console: one table a dataset, the parts that changed, and how the table is read."""
    blocks = [f"! not compared: {reason}" for reason in comparison.refused]
    for block in comparison.blocks:
        overall = [test for test in block.tests if not test.kind]
        samples = dict.fromkeys(f"{test.result.n:,}" for test in overall)
        lines = [
            f"{block.title} against {block.baseline}, n {' / '.join(samples)}",
            *(f"! {stamp}" for stamp in block.stamps),
        ]
        lines += ["", table(*contrast_rows(overall))]
        lines += _changed_parts(block)
        blocks.append("\n".join(lines))
    how = [_flips_line(comparison), textwrap.fill(how_text(comparison), 110)] if comparison.blocks else []
    return "\n\n".join([*blocks, *how])


def contrast_rows(tests: Sequence[Contrast]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table of tests: one row a test."""
    parts = any(test.kind for test in tests)
    several = len({test.metric for test in tests}) > 1
    header = [
        "",
        *(["metric"] if several else []),
        *(["n"] if parts else []),
        "baseline",
        "value",
        "difference",
        "95% interval",
        "p",
    ]
    header += ["p (Holm)", "", "gained", "lost", "detectable"]
    rows = []
    for test in tests:
        result = test.result
        rows.append(
            [
                test.candidate if not test.kind else f"{test.candidate}: {test.part}",
                *([test.metric] if several else []),
                *([f"{result.n:,}"] if parts else []),
                number(result.first),
                number(result.second),
                signed(result.difference),
                signed_interval(result.low, result.high),
                p_text(result.p),
                p_text(test.p_holm),
                test.verdict,
                count(result.gained),
                count(result.lost),
                number(result.detectable),
            ]
        )
    return header, rows


def p_text(value: float | None) -> str:
    """Four decimals, ``<0.0001``, or a dash."""
    if value is None:
        return DASH
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def _changed_parts(block: Block) -> list[str]:
    """The parts that differ beyond chance, the greatest differences first."""
    parts = [test for test in block.tests if test.kind]
    changed = [test for test in parts if test.verdict != "not shown"]
    if not changed:
        kinds = dict.fromkeys(test.kind for test in parts)
        return ["", f"No {', '.join(kinds)} differs beyond chance."] if kinds else []
    shown = sorted(changed, key=lambda test: -abs(test.result.difference or 0.0))[:_PARTS]
    kinds = dict.fromkeys(test.kind for test in changed)
    more = [f"and {len(changed) - _PARTS:,} more, in comparison.md"] if len(changed) > _PARTS else []
    return ["", f"Beyond chance, by {', '.join(kinds)}:", "", table(*contrast_rows(shown)), *more]


def _flips_line(comparison: Comparison) -> str:
    counts = Counter((flip.candidate, flip.change) for flip in comparison.flips)
    names = dict.fromkeys(flip.candidate for flip in comparison.flips)
    if not names:
        return "No sample flipped."
    return "Flipped samples: " + " · ".join(
        f"{name} +{counts[name, 'gained']:,} -{counts[name, 'lost']:,}" for name in names
    )


def how_text(comparison: Comparison) -> str:
    """How the tables are read."""
    tests = dict.fromkeys(test.result.test for block in comparison.blocks for test in block.tests)
    family = sum(not test.kind for block in comparison.blocks for test in block.tests)
    return (
        f"Paired on shared samples ({'; '.join(tests)}). p (Holm): corrected over the {family} tests over all samples, "
        f"or over all of one kind of parts; better and worse: below {ALPHA}. detectable: the smallest true difference "
        "that so many samples show four times in five; a smaller one may be there, unseen."
    )


def comparison_markdown(comparison: Comparison) -> str:
    """comparison.md: all tests, and the first flips with both replies."""
    parts = ["# Comparison", *(f"> **Not compared: {as_markdown(reason)}**" for reason in comparison.refused)]
    for block in comparison.blocks:
        parts.append(f"## {as_markdown(f'{block.title}, against {block.baseline}')}")
        parts += [f"> **{as_markdown(stamp)}**" for stamp in block.stamps]
        for kind, tests in _by_kind(block.tests):
            parts += [f"### By {as_markdown(kind)}"] if kind else []
            parts.append(markdown_table(*contrast_rows(tests)))
    parts += ["## Flipped samples", as_markdown(_flips_line(comparison))]
    if comparison.flips:
        parts.append(markdown_table(*_flip_rows(comparison.flips[:_SHOWN])))
        if len(comparison.flips) > _SHOWN:
            parts.append(f"{len(comparison.flips) - _SHOWN:,} more are in flips.jsonl.")
    return "\n\n".join([*parts, how_text(comparison)]) + "\n"


def _by_kind(tests: Sequence[Contrast]) -> Iterator[tuple[str, list[Contrast]]]:
    for kind in dict.fromkeys(test.kind for test in tests):
        yield kind, [test for test in tests if test.kind == kind]


def _flip_rows(flips: Sequence[Flip]) -> tuple[list[str], list[list[str]]]:
    header = ["sample", "candidate", "change", "baseline's reply", "candidate's reply"]
    rows = [
        [f"{flip.dataset} {flip.sample_id}", flip.candidate, flip.change, *map(_excerpt, flip.replies)]
        for flip in flips
    ]
    return header, rows


def _excerpt(reply: str | None) -> str:
    text = " ".join((reply or "").split())
    return text if len(text) <= 120 else text[:117] + "..."


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """comparison.json: every test, with full floats; null for what is not defined."""
    return {
        "refused": list(comparison.refused),
        "blocks": [
            {
                "dataset": block.dataset,
                "mode": block.mode,
                "baseline": {"model": block.baseline, "folder": block.folder},
                "stamps": list(block.stamps),
                "tests": [_test_json(test) for test in block.tests],
            }
            for block in comparison.blocks
        ],
    }


def _test_json(test: Contrast) -> dict[str, Any]:
    return {
        "candidate": {"model": test.candidate, "folder": test.folder},
        "metric": test.metric,
        "kind": test.kind or "all",
        "part": test.part,
        **asdict(test.result),
        "p_holm": test.p_holm,
        "verdict": test.verdict,
    }


def flip_rows(comparison: Comparison) -> Iterator[Mapping[str, Any]]:
    """The rows of flips.jsonl."""
    for flip in comparison.flips:
        row = asdict(flip)
        parsed, replies, reasons = row.pop("parsed"), row.pop("replies"), row.pop("reasons")
        yield {
            **row,
            "baseline_parsed": parsed[0],
            "candidate_parsed": parsed[1],
            "baseline_unparsed_reason": reasons[0],
            "candidate_unparsed_reason": reasons[1],
            "baseline_reply": replies[0],
            "candidate_reply": replies[1],
        }
