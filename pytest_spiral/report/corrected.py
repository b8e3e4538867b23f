"""Numbers corrected by labels, for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from pytest_spiral.report.lines import Line, between, plain, wrapped
from pytest_spiral.report.model.corrected import CorrectedFigure, Corrections, LabelSource
from pytest_spiral.tempaffect.records import MODES

MARKDOWN_NAMES = (
    "Model",
    "Number",
    "By the scorer or the judges",
    "By the labels (95 % interval)",
    "Labels with, without",
)


def corrected_lines(corrections: Corrections) -> Iterator[Line]:
    """The section in a terminal: whose labels, then every number as it was measured and as it is corrected."""
    for source in corrections.sources:
        yield from wrapped(f"{source.suite}: {source_text(source)}", "plain")
        own = (row for row in corrections.figures if row.suite == source.suite)
        for who, rows in groupby(own, key=who_text):
            yield f"  {plain(who)}"[:80], "plain"
            yield f"    {'':<32}{'measured':>10}  {'corrected':<20}{'labels':>8}", "dim"
            for row in rows:
                yield from _row(row)


def _row(row: CorrectedFigure) -> Iterator[Line]:
    value = "refused" if row.refused else between(row.value, row.low, row.high)
    yield f"    {row.metric:<32}{between(row.raw, None, None):>10}  {value:<20}{row.labels:>8}", "plain"
    if row.refused:
        yield from wrapped(f"      {row.refused.detail}", "doubt")
    if row.unsettled:
        yield from wrapped(f"      {unsettled_text(row)}", "doubt")


def unsettled_text(row: CorrectedFigure) -> str:
    """Drawn replies without a label."""
    return f"{row.unsettled} drawn without a label: the raters differ, cannot tell or did not answer"


def source_text(source: LabelSource) -> str:
    """Whose labels correct the numbers, and from which file."""
    adjudicator = f"; settled by {source.adjudicator}" if source.adjudicator else ""
    who = f"{source.whose} ({', '.join(source.raters)}{adjudicator})"
    return plain(f"corrected by labels of {who}: {source.file}, {source.items} items; {source.design}")


def who_text(row: CorrectedFigure) -> str:
    """Model and mode of a number."""
    return f"{row.model}, {MODES[row.prompting_mode]}" if row.prompting_mode else row.model


def corrected_cells(row: CorrectedFigure) -> Sequence[str]:
    """A number in a Markdown table, unescaped."""
    value = f"refused: {row.refused.detail}" if row.refused else between(row.value, row.low, row.high)
    open_ = f"; {row.unsettled} drawn without" if row.unsettled else ""
    counts = f"{row.positives}, {row.negatives}{open_}"
    return who_text(row), f"{row.suite}.{row.metric}", between(row.raw, None, None), value, counts
