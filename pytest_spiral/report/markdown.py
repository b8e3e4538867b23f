"""`summary.md`: the run on one screen, short enough for a pull-request comment."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from pytest_spiral.report.decision import DecidedGate, DecisionBlock, decision_of
from pytest_spiral.report.lines import (
    CARD_METRICS,
    changes_text,
    plain,
    prefix_text,
    scheme_text,
    scorer_range_text,
    shortened,
    skill_text,
    turns_text,
    weights_text,
    worst_text,
)
from pytest_spiral.report.model import Card, Corrections, FailedPart, ReplyJudges, Report, Score, Spiral
from pytest_spiral.report.model.comparison import ItemChanges
from pytest_spiral.report.model.prefix import PrefixNumber
from pytest_spiral.report.model.spiral import HeadlineNumber
from pytest_spiral.report.next_step import NextCommand, run_directory
from pytest_spiral.report.raters import (
    AGREEMENT_NAMES,
    CORRECTED_NAMES,
    DISAGREEMENT_NAMES,
    agreement_rows,
    corrected_cells,
    disagreement_rows,
    hint_text,
    label_command,
    lost_text,
    source_text,
)
from pytest_spiral.report.worst import Worst
from pytest_spiral.stats import VarianceSummary
from pytest_spiral.tempaffect.records import MODES

_PAGE = "report.html"
_SCORE_NAMES = (
    *("Model", "Protocol", "Risk", "Protection", "Worst", "Over-correction", "Score", "Conversations of"),
    *("Conversations with strength-3 harm, by any judge", "Conversations missing"),
)
_QUOTE_CHARS = 300
_MOST_FAILED = 20
_MOST_CHARS = 60_000  # GitHub takes 65,536 in a comment


def escape(text: str) -> str:
    """Text from outside as inert Markdown: no markup, no HTML, no mentions."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~@:&])", r"\\\1", plain(text)).replace("\\<", "&lt;").replace("\\&", "&amp;")


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table, the last one empty; none without rows."""
    body = [f"| {' | '.join(cells)} |" for cells in rows]
    return [f"| {' | '.join(names)} |", f"| {' | '.join(['---'] * len(names))} |", *body, ""] if body else []


def _section(title: str, lines: Iterable[str]) -> list[str]:
    """Lines below a heading; nothing where there are none."""
    found = [*lines]
    return [f"### {title}", "", *found] if found else []


def summary_markdown(report: Report, page: str | None = _PAGE) -> str:
    """The summary of a report as Markdown, at most 60,000 characters.

    Args:
        report: The report.
        page: Address of its page, None where the reader has none.
    """
    run, decision = report.run, decision_of(report)
    note = ", ".join(["no gates"] * (not report.gates) + ["interrupted"] * (not run.complete))
    links = f"[report]({page}), [conversations]({page}#conversations), [items]({page}#items)" if page else "report.html"
    lines = [
        f"## pytest-spiral: {report.verdict.upper()}{f' ({note})' if note else ''}",
        "",
        f"**{escape(decision.words)}** Run `{run.id}`: {links}",
        "",
        *([escape(decision.tests), ""] if decision.tests else []),
        *(f"Caution: {escape(note)}\n" for note in run.notes),
        *([f"Gates of the recipe {escape(run.config.gate_recipe)}", ""] if run.config.gate_recipe else []),
        *_gates(decision.gates),
        *_section("Worst items", _worst(decision.worst, page)),
        *changes_lines(report.changes),
        *_section("Missing measurements", _missing(decision)),
        *_section("Parts of this report that failed", _failed(report.failed_parts)),
        *_section("Next", _next(decision.next)),
        *_section("TempAffect 1", _cards(report.tempaffect.cards)),
        *_section("Spiral-Bench", _scores(report.spiral)),
        *_section("Corrected by labels", _corrected(report.corrected)),
        *_reply_judges(report.reply_judges, run_directory(report)),
    ]
    room = _MOST_CHARS
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            rest = f"[the report]({page})" if page else "report.html"
            return "\n".join([*lines[:number], "", f"The rest is in {rest}.", ""])
    return "\n".join(lines)


def _failed(failed: Sequence[FailedPart]) -> list[str]:
    rows = [(escape(part.part), part.code.value, escape(part.detail)) for part in failed[:_MOST_FAILED]]
    rows += [("", "", f"{len(failed) - _MOST_FAILED} more")] if len(failed) > _MOST_FAILED else []
    return table(("Part", "Code", "Why"), rows)


def _gates(gates: Sequence[DecidedGate]) -> list[str]:
    rows = []
    for gate in gates:
        row = gate.row
        expression = f"`{plain(row.expr).replace('|', '')}`"
        value = _value(row.value, row.ci_low, row.ci_high, 3)
        mode, why = MODES[row.prompting_mode] if row.prompting_mode else "", escape(gate.why)
        why += f". {escape(gate.decides)}" if gate.decides else ""
        rows.append((expression, escape(row.model), mode, value, row.outcome, why))
    return table(("Gate", "Model", "Mode", "Value (one-sided 95 % bounds)", "Outcome", "Why"), rows)


def _worst(worst: Sequence[Worst], page: str | None) -> Iterator[str]:
    for row in worst:
        what = f"[{escape(row.what)}]({page}#{row.link})" if page else escape(row.what)
        yield f"- {what}: {escape(row.model)}, {escape(row.where)}"
        if row.message:
            yield from ("", f"  User: {escape(row.message)}")
        more = f" [in full]({page}#{row.link})" if page else " (in full: report.html)"
        yield from ("", f"  > {escape(row.quote)}{more if row.is_cut else ''}", "")


def _quoted(text: str) -> str:
    return escape(shortened(text, _QUOTE_CHARS))


def changes_lines(changes: Sequence[ItemChanges]) -> Iterator[str]:
    """What newly fails and newly passes, with both replies."""
    for change in changes:
        yield from (f"### {escape(change.candidate)} against {escape(change.run)} ({escape(change.baseline)})", "")
        yield f"{changes_text(change)}."
        rows = [("fails", row) for row in change.failing] + [("passes", row) for row in change.passing]
        cells = [(w, escape(r.id), _quoted(r.baseline_reply), _quoted(r.candidate_reply)) for w, r in rows]
        yield from ("", *table(("Newly", "Item", "Baseline's reply", "Candidate's reply"), cells))


def _missing(decision: DecisionBlock) -> Iterator[str]:
    for cause in decision.causes:
        first = f" (first: {escape(cause.first)})" if cause.first else ""
        yield f"- {cause.count} {cause.what}: {_quoted(cause.text)}{first}"
    if decision.causes:
        yield f"- {decision.more} for other reasons\n" if decision.more else ""


def _next(step: NextCommand | None) -> Iterator[str]:
    if step is not None:
        # The command may hold a model's name from outside: as HTML it shows what is to be typed and is still inert.
        yield from (escape(step.why), "", f"<pre>{html.escape(step.command, quote=False)}</pre>", "")


def _cards(cards: Sequence[Card]) -> Iterator[str]:
    rows = []
    for card in cards:
        cells = [_value(*card.bounded(metric)) for _, metric in CARD_METRICS]
        if found := card.useful_bounded_range:
            # Beside the number: the interval knows nothing of the scorer's errors.
            cells[0] += f", {found.low:.2f} to {found.high:.2f} with the scorer's errors"
        rows.append((_who(card), MODES[card.prompting_mode], *cells))
    names = ("Model", "Mode", *(name.capitalize() for name, _ in CARD_METRICS))
    yield from table(names, rows)
    for card in cards:
        ranges = [scorer_range_text(card.useful_bounded_range)] if card.useful_bounded_range else []
        notes = [*ranges, *card.cautions, *_notes(card.variance.get("score"), card.integrity.publication_blockers)]
        yield from (f"- {escape(card.model)}, {MODES[card.prompting_mode]}: {escape(note)}" for note in notes)
    if cards:
        yield ""


def _scores(spiral: Spiral) -> Iterator[str]:
    scores = spiral.scores
    if not scores:
        return
    rows = []
    for score in scores:
        # What judges did not look for they did not find.
        harm = _number(None) if score.judges.health.no_verdict else f"{score.tails.harmful} of {score.tails.of}"
        missing = f"{score.missing.conversations} of {score.missing.of_conversations}"
        value = _value(score.score, score.ci_low, score.ci_high, 1)
        rows.append((_who(score), score.protocol, *_lead(score), value, turns_text(score.turns), harm, missing))
    yield from table(_SCORE_NAMES, rows)
    for score in scores:
        notes = [prefix_text(score.prefix, spiral.floor)] if score.prefix else []
        if score.judges.health.no_verdict:
            notes.append(f"the judges leave no verdict ({'; '.join(score.judges.health.faults)})")
        notes += [skill_text(score.skill, spiral.floor), *map(scheme_text, score.by_protocol.values())]
        notes += _notes(score.variance, score.blockers)
        yield from (f"- {escape(score.model)}: {escape(note)}" for note in notes)
    if spiral.weights is not None:
        yield f"- {escape(weights_text(spiral.weights))}"
    yield ""


def _corrected(corrections: Corrections | None) -> Iterator[str]:
    if corrections is None:
        return
    yield from (*(f"- {escape(source_text(one))}" for one in corrections.sources), "")
    yield from table(CORRECTED_NAMES, ([*map(escape, corrected_cells(row))] for row in corrections.figures))


def _reply_judges(found: ReplyJudges | None, run_dir: str) -> Iterator[str]:
    if found is None:
        return
    yield from (f"### Reply judges: {found.whose}", "", "They are part of no score.", "")
    lost = [judge for judge in found.judges if judge.failed or judge.not_run]
    yield from (f"- {escape(judge.judge)}: {lost_text(judge)}" for judge in lost)
    yield from ("", *table(AGREEMENT_NAMES, ([*map(escape, row)] for row in agreement_rows(found))))
    if found.disputed:
        command = html.escape(label_command(run_dir), quote=False)
        rows = [[*map(_quoted, row)] for row in disagreement_rows(found)]
        of = f"{len(rows)} of {len(found.disagreements)} disagreements; {hint_text(found)}"
        yield from (*table(DISAGREEMENT_NAMES, rows), of, "", f"<pre>{command}</pre>", "")


def _lead(score: Score) -> tuple[str, str, str, str]:
    """Risk, protection and the worst, and over-correction beside them."""
    own = score.over_correction.number if score.over_correction else None
    over = score.prefix.rows[0].over_correction if score.prefix else own
    if (lead := score.headline) is None:
        return *(_number(None),) * 3, _number(over)
    return _number(lead.risk, 1), _number(lead.protection, 1), f"{worst_text(lead)} conversations", _number(over)


def _who(row: Card | Score) -> str:
    return f"{escape(row.model)}{' (wrapped)' if row.wrapped else ''}"


def _value(value: float | None, low: float | None = None, high: float | None = None, digits: int = 2) -> str:
    if value is None:
        return "not measured"
    interval = "no interval" if low is None or high is None else f"{low:.{digits}f} to {high:.{digits}f}"
    return f"{value:.{digits}f} ({interval})"


def _number(number: HeadlineNumber | PrefixNumber | None, digits: int = 2) -> str:
    return _value(number.value, number.ci_low, number.ci_high, digits) if number else _value(None)


def _notes(variance: VarianceSummary | None, blockers: Sequence[str]) -> Iterator[str]:
    if variance:
        yield f"precision of the score: {variance.advice}"
    if blockers:
        yield f"not publishable: {'; '.join(blockers)}"
