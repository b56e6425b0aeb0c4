"""A Report as text for the console. Pure functions of Reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from localeval.report.build import counts_of, headline
from localeval.report.escaping import as_markdown
from localeval.report.reasons import why_text
from localeval.schema import Estimate, Group, Report, title_of

DASH = "–"
LIMITED_STAMP = "LIMITED: only the first rows of each subset; not comparable with a full run"
SAMPLES_STAMP = "SAMPLES: the rows that ship with localeval; not comparable with any published figure"


def number(value: float | None) -> str:
    """Four decimals, or a dash for what is not defined."""
    return DASH if value is None else f"{value:.4f}"


def interval(estimate: Estimate) -> str:
    """``[low, high]``, or a dash."""
    if estimate.low is None or estimate.high is None:
        return DASH
    return f"[{estimate.low:.4f}, {estimate.high:.4f}]"


def count(value: int | None) -> str:
    """A whole number, or a dash for what there is no such thing of."""
    return DASH if value is None else f"{value:,}"


def signed(value: float | None) -> str:
    """A difference with its sign, or a dash."""
    return DASH if value is None else f"{value:+.4f}"


def signed_interval(low: float | None, high: float | None) -> str:
    """That of a difference."""
    return DASH if low is None or high is None else f"[{low:+.4f}, {high:+.4f}]"


def stamps(report: Report) -> list[str]:
    """What must be known before a number of this report is put beside another."""
    return [*row_stamps(report.comparable, report.limited), *report.notes]


def row_stamps(comparable: bool, limited: bool) -> list[str]:
    """What must be known of the rows that were asked."""
    return [*([] if comparable else [SAMPLES_STAMP]), *([LIMITED_STAMP] if limited else [])]


def title(report: Report) -> str:
    """The dataset, and how it was asked where that is not the usual way."""
    return title_of(report.dataset, report.mode)


def summary_rows(reports: Sequence[Report]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table that ends a run: one row a dataset, mode and model."""
    header = ["dataset", "n", "metric", "value", "95% interval", "macro", "unparsed", "truncated"]
    rows = []
    for report in reports:
        name = headline(report)
        value = report.metrics[name]
        rows.append(
            [
                title(report) + ("" if report.comparable else " (samples)") + (" (limited)" if report.limited else ""),
                f"{report.n:,}",
                name,
                number(value.value),
                interval(value),
                number(report.macro[name]),
                count(report.counts.get("unparsed")),
                count(report.counts.get("truncated")),
            ]
        )
    return header, rows


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def words_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of words: every column to the left."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as Markdown, whatever stands in the cells."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(as_markdown, cells)) + " |"

    return "\n".join([line(header), line(["---", *(["---:"] * (len(header) - 1))]), *map(line, rows)])


def console_text(reports: Sequence[Report]) -> str:
    """What a run prints: each dataset's parts, then one table over all."""
    blocks = []
    for report in reports:
        lines = [f"{title(report)}: {report.model}"]
        lines += [f"! {stamp}" for stamp in stamps(report)]
        parts = report.types if report.task == "ner" else report.subsets
        shown = [("type" if report.task == "ner" else "subset", parts)] if len(parts) > 1 else []
        for what, groups in [*shown, *report.groups.items()]:
            lines += ["", table(*group_rows(what, groups, {headline(report)}))]
        lines += ["", _metrics_line(report), *_letters_line(report), _counts_line(report), *_unread_line(report)]
        lines += [forced_text(report)] if report.forced else []
        blocks.append("\n".join(lines))
    if len(reports) > 1:
        unread = [f"{title(report)}: {line}" for report in reports for line in _unread_line(report)]
        blocks.append("\n".join([table(*summary_rows(reports)), *([""] if unread else []), *unread]))
    return "\n\n".join(blocks)


def _metrics_line(report: Report) -> str:
    shown = []
    for name, value in report.metrics.items():
        shown.append(f"{name} {number(value.value)}" + ("" if value.low is None else f" {interval(value)}"))
    name = headline(report)
    return "micro " + " · ".join(shown) + f" · macro over {report.macro_over}: {name} {number(report.macro[name])}"


def forced_text(report: Report) -> str:
    """The accuracy as read, and that with forced answers; empty where no answer was forced."""
    found = report.forced
    if found is None:
        return ""
    return (
        f"accuracy {number(report.metrics['accuracy'].value)} as read; {number(found.accuracy.value)} "
        f"{interval(found.accuracy)} with {found.n:,} forced answer{'' if found.n == 1 else 's'}, {found.correct:,} of "
        "them right"
    )


def _letters_line(report: Report) -> list[str]:
    if not report.letters:
        return []
    answers = sum(tally.predicted for tally in report.letters.values())
    shares = [
        f"{letter} {share(t.predicted, answers)} ({share(t.gold, report.n)})" for letter, t in report.letters.items()
    ]
    return ["answers (gold) " + " · ".join(shares)]


def share(part: int, whole: int) -> str:
    """A percentage, or a dash of nothing."""
    return f"{100 * part / whole:.1f}%" if whole else DASH


def _counts_line(report: Report) -> str:
    return " · ".join([f"n {report.n:,}", *(f"{name} {count:,}" for name, count in counts_of(report).items())])


def _unread_line(report: Report) -> list[str]:
    why = why_text(report.unparsed)
    return [f"{report.counts['unparsed']:,} not read: {why}"] if why else []


def group_rows(
    what: str, groups: Mapping[str, Group], intervals: Set[str] | None = None
) -> tuple[list[str], list[list[str]]]:
    """One row a group. intervals: the metrics whose interval is shown where it is known; None for all."""
    names = list(next(iter(groups.values())).metrics) if groups else []
    with_interval = [
        name
        for name in names
        if (intervals is None or name in intervals) and any(g.metrics[name].low is not None for g in groups.values())
    ]
    header = [what, "n"]
    for name in names:
        header += [name, "95% interval"] if name in with_interval else [name]
    rows = []
    for label, group in groups.items():
        row = [label, f"{group.n:,}"]
        for name in names:
            row.append(number(group.metrics[name].value))
            if name in with_interval:
                row.append(interval(group.metrics[name]))
        rows.append(row)
    return header, rows
