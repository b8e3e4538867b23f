"""`summary.md`: the run on one screen, short enough for a pull-request comment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_spiral.report.lines import plain, scheme_text, skill_text, turns_text, weights_text
from pytest_spiral.report.model import Card, FailedPart, GateRow, Report, Score, Spiral
from pytest_spiral.report.terminal import CARD_METRICS, gate_reason
from pytest_spiral.report.worst import worst_findings
from pytest_spiral.stats import VarianceSummary
from pytest_spiral.tempaffect.records import MODES

_PAGE = "report.html"
_QUOTE_CHARS = 300
_MOST_FAILED = 20
_MOST_CHARS = 60_000  # GitHub takes 65,536 in a comment


def escape(text: str) -> str:
    """Text from outside as inert Markdown: no markup, no HTML, no mentions."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~@:&])", r"\\\1", plain(text)).replace("\\<", "&lt;").replace("\\&", "&amp;")


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows)]


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
        *_failed(report.failed_parts),
        *(f"Caution: {escape(note)}\n" for note in run.notes),
        *([f"Gates of the recipe {escape(run.config.gate_recipe)}", ""] if run.config.gate_recipe else []),
        *_gates(report.gates),
        *_worst(report),
        *_cards(report.tempaffect.cards),
        *_scores(report.spiral),
    ]
    room = _MOST_CHARS
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return "\n".join([*lines[:number], "", f"The rest is in [the report]({_PAGE}).", ""])
    return "\n".join(lines)


def _failed(failed: Sequence[FailedPart]) -> Iterator[str]:
    """Parts of the report that are not there."""
    if failed:
        rows = [(escape(part.part), part.code.value, escape(part.detail)) for part in failed[:_MOST_FAILED]]
        rows += [("", "", f"{len(failed) - _MOST_FAILED} more")] if len(failed) > _MOST_FAILED else []
        yield from ("### Parts of this report that failed", "", *table(("Part", "Code", "Why"), rows), "")


def _gates(gates: Sequence[GateRow]) -> Iterator[str]:
    if not gates:
        return
    rows = []
    for row in gates:
        expression = f"`{plain(row.expr).replace('|', '')}`"
        value = _value(row.value, row.ci_low, row.ci_high, 3)
        mode, why = MODES[row.prompting_mode] if row.prompting_mode else "", escape(gate_reason(row))
        rows.append((expression, escape(row.model), mode, value, row.outcome, why))
    yield from (*table(("Gate", "Model", "Mode", "Value (95 % bounds)", "Outcome", "Why"), rows), "")


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
    rows = []
    for card in cards:
        cells = []
        for _, metric in CARD_METRICS:
            interval = card.intervals.get(metric)
            cells.append(_value(card.value(metric), interval.low, interval.high) if interval else _value(None))
        rows.append((_who(card), MODES[card.prompting_mode], *cells))
    names = ("Model", "Mode", *(name.capitalize() for name, _ in CARD_METRICS))
    yield from ("### TempAffect 1", "", *table(names, rows), "")
    for card in cards:
        notes = [*card.cautions, *_notes(card.variance.get("score"), card.integrity.publication_blockers)]
        yield from (f"- {escape(card.model)}, {MODES[card.prompting_mode]}: {escape(note)}" for note in notes)
    yield ""


def _scores(spiral: Spiral) -> Iterator[str]:
    scores = spiral.scores
    if not scores:
        return
    rows = []
    for score in scores:
        harm = f"{score.tails.harmful} of {score.tails.of}"
        missing = f"{score.missing.conversations} of {score.missing.of_conversations}"
        value = _value(score.score, score.ci_low, score.ci_high, 1)
        rows.append((_who(score), score.protocol, *_lead(score), value, turns_text(score.turns), harm, missing))
    names = (
        "Model",
        "Protocol",
        "Risk",
        "Protection",
        "Worst",
        "Over-correction",
        "Score",
        "Conversations of",
        "Conversations with strength-3 harm, by any judge",
        "Conversations missing",
    )
    yield from ("### Spiral-Bench", "", *table(names, rows), "")
    for score in scores:
        notes = [skill_text(score.skill, spiral.floor), *map(scheme_text, score.by_protocol.values())]
        notes += _notes(score.variance, score.blockers)
        yield from (f"- {escape(score.model)}: {escape(note)}" for note in notes)
    if spiral.weights is not None:
        yield f"- {escape(weights_text(spiral.weights))}"
    yield ""


def _lead(score: Score) -> tuple[str, str, str, str]:
    """Risk, protection and the worst, and over-correction beside them."""
    over = score.over_correction
    corrected = _value(over.share, over.ci_low, over.ci_high) if over else _value(None)
    if (lead := score.headline) is None:
        return *(_value(None),) * 3, corrected
    risk, protection = (
        _value(number.value, number.ci_low, number.ci_high, 1) for number in (lead.risk, lead.protection)
    )
    return risk, protection, f"{lead.worst_conversations} of {score.tails.of} conversations", corrected


def _who(row: Card | Score) -> str:
    return f"{escape(row.model)}{' (wrapped)' if row.wrapped else ''}"


def _value(value: float | None, low: float | None = None, high: float | None = None, digits: int = 2) -> str:
    if value is None or low is None or high is None:
        return "not measured"
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _notes(variance: VarianceSummary | None, blockers: Sequence[str]) -> Iterator[str]:
    if variance:
        yield f"precision: {variance.advice}"
    if blockers:
        yield f"not publishable: {'; '.join(blockers)}"
