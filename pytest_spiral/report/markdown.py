"""`summary.md`: the run on one screen, short enough for a pull-request comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_spiral.report.lines import plain
from pytest_spiral.report.lookup import card_value
from pytest_spiral.report.model import Card, GateRow, Report, Score
from pytest_spiral.report.terminal import gate_reason
from pytest_spiral.report.worst import worst_findings
from pytest_spiral.stats import VarianceSummary

__all__ = ["escape", "summary_markdown", "table_row"]

_PAGE = "report.html"
_QUOTE_CHARS = 300
_MOST_CHARS = 60_000  # GitHub takes 65,536 in a comment
_METRICS = (
    ("Useful and bounded", "useful_bounded_response_rate"),
    ("Useful and bounded, without near-duplicates", "ubr_rate_deduped"),
    ("Score", "score"),
    ("Skill over the majority baseline", "skill"),
    ("Valid output", "valid_output_rate"),
)


def escape(text: str) -> str:
    """Text from outside as inert Markdown: no markup, no HTML, no mentions."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~@:&])", r"\\\1", plain(text)).replace("\\<", "&lt;").replace("\\&", "&amp;")


def table_row(cells: Iterable[str]) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def summary_markdown(report: Report) -> str:
    """The summary of a report as Markdown, at most 60,000 characters."""
    run = report.run
    notes = ["" if report.gates else "no gates", "" if run.complete else "interrupted"]
    note = ", ".join(filter(None, notes))
    links = f"[report]({_PAGE}), [conversations]({_PAGE}#conversations), [items]({_PAGE}#items)"
    lines = [
        f"## pytest-spiral: {report.verdict.upper()}{f' ({note})' if note else ''}",
        "",
        f"Run `{run.id}`: {links}",
        "",
        *_gates(report.gates),
        *_worst(report),
        *_cards(report.tempaffect.cards),
        *_scores(report.spiral.scores),
    ]
    return _fitting(lines)


def _table(names: Sequence[str], rows: Iterable[Iterable[str]]) -> list[str]:
    return [table_row(names), "|---" * len(names) + "|", *map(table_row, rows)]


def _gates(gates: Sequence[GateRow]) -> list[str]:
    if not gates:
        return []
    names = ("Gate", "Model", "Mode", "Value", "95 % bounds", "Outcome", "Why")
    return [*_table(names, map(_gate_cells, gates)), ""]


def _gate_cells(row: GateRow) -> tuple[str, ...]:
    bounds = "" if row.ci_low is None or row.ci_high is None else f"{row.ci_low:.3f} to {row.ci_high:.3f}"
    value = "not measured" if row.value is None else f"{row.value:.3f}"
    expression = f"`{plain(row.expr).replace('|', '')}`"
    mode = row.prompting_mode or ""
    return expression, escape(row.model), mode, value, bounds, row.outcome, escape(gate_reason(row))


def _worst(report: Report) -> Iterator[str]:
    """The worst findings, quoted and linked to their place in the page."""
    worst = worst_findings(report)
    if worst:
        yield from ("### Worst findings", "")
    for row in worst:
        quote = row.quote[:_QUOTE_CHARS] + ("\u2026" if len(row.quote) > _QUOTE_CHARS else "")
        yield f"- [{escape(row.what)}]({_PAGE}#{row.link}): {escape(row.model)}, {escape(row.where)}"
        yield from ("", f"  > {escape(quote)}", "")


def _cards(cards: Sequence[Card]) -> Iterator[str]:
    if not cards:
        return
    yield from ("### TempAffect 1", "")
    names = ("Model", "Mode", *(name for name, _ in _METRICS))
    rows = ((escape(c.model), c.prompting_mode, *(_card_cell(c, metric) for _, metric in _METRICS)) for c in cards)
    yield from (*_table(names, rows), "")
    for card in cards:
        notes = [*card.cautions, *_advice(card.variance.get("score"))]
        if card.integrity.publication_blockers:
            notes.append(f"not publishable: {'; '.join(card.integrity.publication_blockers)}")
        yield from (f"- {escape(card.model)}, {card.prompting_mode}: {escape(note)}" for note in notes)
    yield ""


def _card_cell(card: Card, metric: str) -> str:
    value, interval = card_value(card, metric), card.intervals.get(metric)
    if value is None or interval is None:
        return "not measured"
    return f"{value:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _scores(scores: Sequence[Score]) -> Iterator[str]:
    if not scores:
        return
    yield from ("### Spiral-Bench", "")
    names = ("Model", "Protocol", "Score", "Conversations with strength-3 harm", "Conversations missing")
    yield from (*_table(names, map(_score_cells, scores)), "")
    for score in scores:
        notes = _advice(score.variance)
        if score.blockers:
            notes.append(f"not publishable: {'; '.join(score.blockers)}")
        yield from (f"- {escape(score.model)}: {escape(note)}" for note in notes)
    yield ""


def _score_cells(score: Score) -> tuple[str, ...]:
    value = "not measured"
    if score.score is not None and score.ci_low is not None and score.ci_high is not None:
        value = f"{score.score:.1f} ({score.ci_low:.1f} to {score.ci_high:.1f})"
    harm = f"{score.tails.harmful} of {score.tails.of}"
    missing = f"{score.missing.conversations} of {score.missing.of_conversations}"
    return escape(score.model), score.protocol, value, harm, missing


def _advice(variance: VarianceSummary | None) -> list[str]:
    return [f"precision: {variance.advice}"] if variance else []


def _fitting(lines: Sequence[str]) -> str:
    """As many lines as a comment may hold."""
    kept: list[str] = []
    room = _MOST_CHARS
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return "\n".join([*kept, "", f"The rest is in [the report]({_PAGE}).", ""])
        kept.append(line)
    return "\n".join(kept)
