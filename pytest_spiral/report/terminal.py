"""The summary at the end of a run: models, usage, gates and verdict in at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_spiral.report.lines import WIDTH, Line, Tone, between, plain, wrapped
from pytest_spiral.report.lookup import CARD_METRICS, card_value, evaluated_models
from pytest_spiral.report.model import Card, GateRow, Report, Score, Verdict
from pytest_spiral.report.usage import usage_lines
from pytest_spiral.tempaffect.records import CardMode

__all__ = ["gate_reason", "summary_lines"]

_TONES: Mapping[Verdict, Tone] = {
    "pass": "good",
    "fail": "bad",
    "inconclusive": "doubt",
    "incomplete": "doubt",
    "measured": "plain",
}
_MODES: Mapping[CardMode | None, str] = {"schema_assisted": "schema", "raw_json": "raw", None: ""}
_CARD_ROWS = (*CARD_METRICS, ("pressured: boundary kept", "families.pressured_integrity.fields.boundary_action"))
_MOST_BLOCKERS = 4
_BEHAVIOURS = (
    "pushback",
    "delusion_reinforcement",
    "sycophancy_or_praise",
    "consciousness_claims",
    "harmful_advice",
)


def summary_lines(report: Report, run_dir: str) -> list[Line]:
    """The summary of a report, each line with its tone. run_dir: where the report was written."""
    lines: list[Line] = []
    cards, scores = report.tempaffect.cards, report.spiral.scores
    for model in evaluated_models(report):
        own = [card for card in cards if card.model == model]
        lines += _card_lines(model, own) if own else []
        for score in scores:
            lines += _score_lines(score) if score.model == model else []
    lines += usage_lines(report.usage)
    lines.append((f"report: {plain(run_dir)}", "plain"))
    for row in report.gates:
        lines += _gate_lines(row)
    if report.run.config.shard is not None:
        shard = plain(report.run.config.shard)
        lines.append((f"shard {shard}: combine all shards with `pytest-spiral merge`", "plain"))
    note = "" if report.gates else " (no gates)"
    lines.append((f"verdict: {report.verdict.upper()}{note}", _TONES[report.verdict]))
    return lines


def _card_lines(model: str, cards: Sequence[Card]) -> Iterator[Line]:
    yield f"tempaffect  {plain(model)}"[:WIDTH], "plain"
    yield f"  {'':<26}" + "".join(f"{_MODES[card.prompting_mode]:>24}" for card in cards), "dim"
    for label, metric in _CARD_ROWS:
        yield f"  {label:<26}" + "".join(f"{_card_cell(card, metric):>24}" for card in cards), "plain"
    for card in cards:
        yield from _card_notes(card, _MODES[card.prompting_mode])


def _card_cell(card: Card, metric: str) -> str:
    interval = card.intervals.get(metric)
    return "not measured" if interval is None else between(card_value(card, metric), interval.low, interval.high)


def _card_notes(card: Card, mode: str) -> Iterator[Line]:
    for caution in card.cautions:
        yield from wrapped(f"  {mode} caution: {plain(caution)}", "doubt")
    if card.reasons:
        reasons = ", ".join(f"{code} {count}" for code, count in card.reasons.items())
        yield from wrapped(f"  {mode} not valid: {reasons}", "dim")
    if card.integrity.publication_blockers:
        yield from wrapped(f"  {mode} not publishable: {_shortened(card.integrity.publication_blockers)}", "dim")


def _score_lines(score: Score) -> Iterator[Line]:
    yield f"spiral  {plain(score.model)}"[:WIDTH], "plain"
    yield f"  {'score (0-100)':<26}{between(score.score, score.ci_low, score.ci_high):>24}", "plain"
    for name in _BEHAVIOURS:
        if (metric := score.metrics.get(name)) is not None:
            cell = between(metric.mean, metric.ci_low, metric.ci_high)
            yield f"  {name.replace('_', ' '):<26}{cell:>24}", "plain"
    tails, missing = score.tails, score.missing
    yield f"  strength-3 {tails.harm.replace('_', ' ')} in {tails.harmful} of {tails.of} conversations", "plain"
    counts = (
        ("conversations", missing.conversations, missing.of_conversations),
        ("chunk judgements", missing.chunks, missing.of_chunks),
        ("final judgements", missing.finals, missing.of_finals),
    )
    lost = [f"{n} of {of} {what}" for what, n, of in counts if n]
    if lost:
        yield from wrapped(f"  missing: {', '.join(lost)}", "doubt")
    if score.blockers:
        yield from wrapped(f"  not publishable: {_shortened(score.blockers)}", "dim")


def _shortened(blockers: Sequence[str]) -> str:
    """The first few blockers: the report lists all."""
    shown = [plain(blocker) for blocker in blockers[:_MOST_BLOCKERS]]
    more = len(blockers) - len(shown)
    return "; ".join([*shown, f"{more} more"] if more else shown)


def _gate_lines(row: GateRow) -> Iterator[Line]:
    """A gate: outcome, numbers, reason."""
    value = between(row.value, row.ci_low, row.ci_high, 3)
    if row.value is not None:
        value += f", {row.n} {row.unit}s"
    baseline = row.baseline
    if baseline is not None and baseline.own is not None and baseline.value is not None:
        name = f"{plain(baseline.model)} of {plain(baseline.run)}"
        value = f"{baseline.own:.3f}, baseline {baseline.value:.3f} ({name}), difference {value}"
    mode = f" {_MODES[row.prompting_mode]}" if row.prompting_mode else ""
    yield from wrapped(f"gate {row.outcome.upper()}  {plain(row.expr)}", _TONES[row.outcome])
    yield from wrapped(f"  {plain(row.model)}{mode}: {value}", "plain")
    yield from wrapped(f"  {gate_reason(row)}", "dim")


def gate_reason(row: GateRow) -> str:
    """Why a gate has its outcome, which true values it can detect, and whether its judge is calibrated."""
    judge = "; the judge is not calibrated for this behaviour" if row.calibration == "uncalibrated" else ""
    return f"{plain(row.reason.detail)}{_power(row)}{judge}"


def _power(row: GateRow) -> str:
    """The true value from which the gate passes in four of five runs, where it is known."""
    if row.value is None or row.policy == "point":
        return ""
    if row.mde is None:
        return f"; {row.n} {row.unit}s are too few for this gate to pass reliably"
    sign, word = (1, "more") if ">=" in row.expr else (-1, "less")
    what = "difference" if row.baseline else "value"
    return f"; passes in 4 of 5 runs at a true {what} of {row.threshold + sign * row.mde:.3g} or {word}"
