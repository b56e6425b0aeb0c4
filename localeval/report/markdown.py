"""A Report as report.md. Pure functions of a Report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localeval.report.build import counts_of
from localeval.report.escaping import as_markdown
from localeval.report.reasons import most_first
from localeval.report.text import DASH, forced_text, group_rows, interval, markdown_table, number, share, stamps, title
from localeval.schema import Bin, Mode, Report

COUNTED = {
    "unparsed": "replies that could not be read, counted as wrong",
    "truncated": "replies cut by the token budget",
    "label_mismatch": "replies whose letter and option text disagree; the letter counts",
    "malformed": "tags never closed, never opened, empty or unknown",
    "text_changed": "replies that changed the sentence",
    "invented": "tagged entities that are not in the sentence",
    "constraint_violations": "replies outside their grammar: cut, or not held to it",
}
"""What each count counts."""


def markdown(report: Report, facts: Mapping[str, str]) -> str:
    """report.md. facts: what is needed to know what was measured (fingerprints, prompt, engine), name -> value."""
    metrics = [[name, number(value.value), interval(value)] for name, value in report.metrics.items()]
    macro = [
        [f"macro {name} (mean over {report.macro_over})", number(value), DASH] for name, value in report.macro.items()
    ]
    parts = [
        f"# {as_markdown(f'{title(report)}: {report.model}')}",
        *(f"> **{as_markdown(stamp)}**" for stamp in stamps(report)),
        f"{report.n:,} sample{'' if report.n == 1 else 's'}.",
        markdown_table(["metric", "value", "95% interval"], [*metrics, *macro]),
    ]
    if counts_of(report):
        parts.append(markdown_table(["beside it", "count", "what it counts"], _count_rows(report)))
    if why := [[reason.short, f"{count:,}", reason.words] for reason, count in most_first(report.unparsed)]:
        parts.append(markdown_table(["not read", "count", "why"], why))
    if report.forced:
        parts.append(f"With forced answers: {forced_text(report)}. {FORCED}")
    if report.types:
        parts += ["## By type", markdown_table(*group_rows("type", report.types))]
    if len(report.subsets) > 1:
        parts += ["## By subset", markdown_table(*group_rows("subset", report.subsets))]
    for name, groups in report.groups.items():
        parts += [f"## By {as_markdown(name)}", markdown_table(*group_rows(name, groups))]
    if report.letters:
        parts += ["## By letter", markdown_table(*letter_rows(report))]
    if report.reliability:
        parts += ["## Reliability", markdown_table(*reliability_rows(report.reliability))]
    parts += [
        "## What was measured",
        markdown_table(["what", "value"], [[name, value] for name, value in facts.items()]),
    ]
    parts.append(HOW[report.task, report.mode])
    return "\n\n".join(parts) + "\n"


def _count_rows(report: Report) -> list[list[str]]:
    return [[name, f"{count:,}", COUNTED[name]] for name, count in counts_of(report).items()]


def letter_rows(report: Report) -> tuple[list[str], list[list[str]]]:
    """How often each letter is the answer, of those that could be read, and how often it should be."""
    answers = sum(tally.predicted for tally in report.letters.values())
    header = ["letter", "answers", "share", "gold", "share of gold", "precision", "recall"]
    rows = [
        [
            letter,
            f"{tally.predicted:,}",
            share(tally.predicted, answers),
            f"{tally.gold:,}",
            share(tally.gold, report.n),
            number(tally.precision),
            number(tally.recall),
        ]
        for letter, tally in report.letters.items()
    ]
    return header, rows


def reliability_rows(bins: Sequence[Bin]) -> tuple[list[str], list[list[str]]]:
    header = ["confidence", "answers", "mean confidence", "accuracy"]
    rows = [
        [
            f"{row.low:.1f} to {row.high:.1f}",
            f"{row.n:,}",
            number(row.confidence / row.n if row.n else None),
            number(row.correct / row.n if row.n else None),
        ]
        for row in bins
    ]
    return header, rows


FORCED = (
    "A reply that can't be read was asked once more, from where it ended, for the most probable letter. All other "
    "figures are of the replies as read."
)
"""What a forced answer is."""
_MCQ = "Micro accuracy is over all samples, with its Wilson score interval"
_NER = (
    "Entity level, strict IOB2, micro over all sentences; intervals are a percentile bootstrap over sentences "
    "(1,000 resamples, seeded). Accuracy is per token. In the table by type, n counts gold entities."
)
_HELD = " Each reply was held to a grammar of its own while it was generated."
_LOGPROB = (
    " The prompt ends with `ANSWER:`; the answer is the letter whose token is the most probable (with and without a "
    "space before it, added). nll and probability: of the right letter among all tokens. outside: the probability of "
    "all that is no letter of the row. brier (0 to 2) and ece (10 bins): of the letters' probabilities among "
    "themselves. Intervals of means are normal ones."
)
_CLOZE = (
    " The prompt is the question alone, without a chat template; the answer is the option whose text has the greatest "
    "log likelihood per character. nll_per_character: the negative of that, of the right option, with a normal "
    "interval."
)
HOW: dict[tuple[str, Mode], str] = {
    ("mcq", "generate"): f"{_MCQ}; a reply that can't be read is wrong.",
    ("mcq", "constrained"): f"{_MCQ}; a reply that can't be read is wrong.{_HELD}",
    ("mcq", "logprob"): f"{_MCQ}.{_LOGPROB}",
    ("mcq", "cloze"): f"{_MCQ}.{_CLOZE}",
    ("ner", "generate"): _NER,
    ("ner", "constrained"): f"{_NER}{_HELD}",
}
"""What the numbers are, by task and mode."""
