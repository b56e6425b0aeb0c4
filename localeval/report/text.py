"""A Report as text: for the console, and as Markdown. Pure functions of a Report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localeval.report.build import counts_of, headline
from localeval.schema import Estimate, Group, Report

DASH = "–"
_CHECK = {
    "unparsed": "replies that could not be read, counted as wrong",
    "truncated": "replies cut by the token budget",
    "malformed": "tags never closed, never opened, empty or unknown",
    "text_changed": "replies that changed the sentence",
    "invented": "tagged entities that are not in the sentence",
}


def number(value: float | None) -> str:
    """Four decimals, or a dash for what is not defined."""
    return DASH if value is None else f"{value:.4f}"


def interval(estimate: Estimate) -> str:
    """``[low, high]``, or a dash."""
    if estimate.low is None or estimate.high is None:
        return DASH
    return f"[{estimate.low:.4f}, {estimate.high:.4f}]"


def stamps(report: Report) -> list[str]:
    """What must be known before a number of this report is put beside another."""
    found = []
    if not report.comparable:
        found.append("SAMPLES: the rows that ship with localeval; not comparable with any published figure")
    if report.limited:
        found.append("LIMITED: only the first rows of each subset; not comparable with a full run")
    return [*found, *report.notes]


def summary_rows(reports: Sequence[Report]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table that ends a run: one row a dataset and model."""
    header = ["dataset", "n", "metric", "value", "95% interval", "macro", "unparsed", "truncated"]
    rows = []
    for report in reports:
        name = headline(report)
        value = report.metrics[name]
        rows.append(
            [
                report.dataset + ("" if report.comparable else " (samples)") + (" (limited)" if report.limited else ""),
                f"{report.n:,}",
                name,
                number(value.value),
                interval(value),
                number(report.macro[name]),
                f"{report.counts['unparsed']:,}",
                f"{report.counts['truncated']:,}",
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


def console_text(reports: Sequence[Report]) -> str:
    """What a run prints: each dataset's parts, then one table over all."""
    blocks = []
    for report in reports:
        lines = [f"{report.dataset}: {report.model}"]
        lines += [f"! {stamp}" for stamp in stamps(report)]
        parts = report.types if report.task == "ner" else report.subsets
        if len(parts) > 1:
            lines += ["", table(*_group_rows("type" if report.task == "ner" else "subset", parts))]
        for name, groups in report.groups.items():
            lines += ["", table(*_group_rows(name, groups))]
        lines += ["", _metrics_line(report), _counts_line(report)]
        blocks.append("\n".join(lines))
    if len(reports) > 1:
        blocks.append(table(*summary_rows(reports)))
    return "\n\n".join(blocks)


def _metrics_line(report: Report) -> str:
    shown = []
    for name, value in report.metrics.items():
        shown.append(f"{name} {number(value.value)}" + ("" if value.low is None else f" {interval(value)}"))
    name = headline(report)
    return "micro " + " · ".join(shown) + f" · macro over {report.macro_over}: {name} {number(report.macro[name])}"


def _counts_line(report: Report) -> str:
    return f"n {report.n:,} · " + " · ".join(f"{name} {count:,}" for name, count in counts_of(report).items())


def _group_rows(what: str, groups: Mapping[str, Group]) -> tuple[list[str], list[list[str]]]:
    names = list(next(iter(groups.values())).metrics) if groups else []
    with_interval = [name for name in names if any(g.metrics[name].low is not None for g in groups.values())]
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


# --- Markdown ---


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(header), line(["---", *(["---:"] * (len(header) - 1))]), *map(line, rows)])


def markdown(report: Report, facts: Mapping[str, str]) -> str:
    """report.md. facts: what is needed to know what was measured (fingerprints, prompt, engine), name -> value."""
    metrics = [[name, number(value.value), interval(value)] for name, value in report.metrics.items()]
    macro = [
        [f"macro {name} (mean over {report.macro_over})", number(value), DASH] for name, value in report.macro.items()
    ]
    parts = [
        f"# {report.dataset}: {report.model}",
        *(f"> **{stamp}**" for stamp in stamps(report)),
        f"{report.n:,} samples.",
        _markdown_table(["metric", "value", "95% interval"], [*metrics, *macro]),
        _markdown_table(["beside it", "count", "what it counts"], _count_rows(report)),
    ]
    if report.types:
        parts += ["## By type", _markdown_table(*_group_rows("type", report.types))]
    if len(report.subsets) > 1:
        parts += ["## By subset", _markdown_table(*_group_rows("subset", report.subsets))]
    for name, groups in report.groups.items():
        parts += [f"## By {name}", _markdown_table(*_group_rows(name, groups))]
    parts += [
        "## What was measured",
        _markdown_table(["what", "value"], [[name, value] for name, value in facts.items()]),
    ]
    parts.append(_HOW[report.task])
    return "\n\n".join(parts) + "\n"


def _count_rows(report: Report) -> list[list[str]]:
    return [[name, f"{count:,}", _CHECK[name]] for name, count in counts_of(report).items()]


_HOW = {
    "mcq": "Micro accuracy is over all samples, with its Wilson score interval; a reply that can't be read is wrong.",
    "ner": "Entity level, strict IOB2, micro over all sentences; intervals are a percentile bootstrap over sentences "
    "(1,000 resamples, seeded). Accuracy is per token. In the table by type, n counts gold entities.",
}
