"""A report as long tables, one row per number, message or finding, for spreadsheets and data frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_spiral.report.lookup import card_value
from pytest_spiral.report.model import ConversationRecord, Report
from pytest_spiral.status import Reason, Status

Cell = str | float | None
Row = tuple[Cell, ...]

TABLES: Mapping[str, Sequence[str]] = {
    "metrics": ("run", "suite", "model", "variant", "metric", "value", "low", "high", "method"),
    "measurements": (
        *("run", "suite", "model", "variant", "unit", "group", "repeat"),
        *("status", "reason_code", "reason_detail", "metric", "value"),
    ),
    "messages": ("run", "model", "conversation", "category", "index", "role", "content"),
    "findings": (
        *("run", "model", "conversation", "category"),
        *("turn", "behaviour", "strength", "judge", "evidence", "quote"),
    ),
    "gates": ("run", "gate", "model", "variant", "metric", "value", "low", "high", "threshold", "policy", "outcome"),
    "usage": (
        *("run", "role", "requests", "prompt_tokens", "cached_tokens", "completion_tokens"),
        *("cost_usd", "retries", "failures"),
    ),
}
"""Tables and their columns. variant: prompting mode or protocol. unit: scenario or conversation. group: family or
category. repeat: epoch or conversation index, from 0."""


def tables(report: Report) -> dict[str, list[Row]]:
    """The long tables of a report by name, with columns as in `TABLES`."""
    makers = (_metrics, _measurements, _messages, _findings, _gates, _usage)
    return {name: [(report.run.id, *row) for row in make(report)] for name, make in zip(TABLES, makers, strict=True)}


def _metrics(report: Report) -> Iterator[Row]:
    for card in report.tempaffect.cards:
        for path, interval in card.intervals.items():
            bounds = (interval.low, interval.high, interval.method)
            yield "tempaffect", card.model, card.prompting_mode, path, card_value(card, path), *bounds
    for score in report.spiral.scores:
        key = ("spiral", score.model, score.protocol)
        yield *key, "score", score.score, score.ci_low, score.ci_high, score.ci_method
        for name, metric in score.metrics.items():
            yield *key, name, metric.mean, metric.ci_low, metric.ci_high, score.ci_method


def _measurements(report: Report) -> Iterator[Row]:
    for item in report.tempaffect.items:
        key = ("tempaffect", item.model, item.prompting_mode, item.id, item.family, item.epoch)
        state = (item.status, *_reason(item.reason))
        yield *key, *state, "score", item.score
        if item.useful_bounded is not None:
            yield *key, *state, "useful_bounded", float(item.useful_bounded)
        for metric, points in item.points.items():
            yield *key, *state, f"points.{metric}", points
    protocols = {score.model: score.protocol for score in report.spiral.scores}
    for conversation in report.spiral.conversations:
        place = (conversation.id, conversation.category, conversation.index)
        state = (conversation.status, *_reason(conversation.reason))
        for metric, value in _measured(conversation):
            yield "spiral", conversation.model, protocols.get(conversation.model), *place, *state, metric, value


def _measured(conversation: ConversationRecord) -> Iterator[tuple[str, float | None]]:
    if conversation.status is not Status.MEASURED:
        yield "findings", None
    else:
        judged = sorted({name for judgement in conversation.judgements for name in judgement.behaviours})
        if not judged:
            yield "findings", len(conversation.findings)
        for name in judged:
            strengths = (finding.strength for finding in conversation.findings if finding.behaviour == name)
            yield f"strength.{name}", sum(strengths)
    for metric, value in (conversation.final_judgement or {}).items():
        yield f"final.{metric}", value


def _reason(reason: Reason | None) -> tuple[str | None, str | None]:
    return (None, None) if reason is None else (reason.code, reason.detail)


def _messages(report: Report) -> Iterator[Row]:
    for conversation in report.spiral.conversations:
        key = (conversation.model, conversation.id, conversation.category)
        for index, message in enumerate(conversation.transcript):
            yield *key, index, message.role, message.content


def _findings(report: Report) -> Iterator[Row]:
    for conversation in report.spiral.conversations:
        key = (conversation.model, conversation.id, conversation.category)
        for f in conversation.findings:
            yield *key, f.turn, f.behaviour, f.strength, f.judge, f.evidence, f.quote


def _gates(report: Report) -> Iterator[Row]:
    for gate in report.gates:
        numbers = (gate.value, gate.ci_low, gate.ci_high, gate.threshold)
        yield gate.expr, gate.model, gate.prompting_mode, gate.metric, *numbers, gate.policy, gate.outcome


def _usage(report: Report) -> Iterator[Row]:
    for role, row in report.usage.by_role.items():
        tokens = (row.prompt_tokens, row.cached_tokens, row.completion_tokens)
        yield role, row.requests, *tokens, row.cost_usd, row.retries, row.failures
