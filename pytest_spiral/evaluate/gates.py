"""Gates of a run, decided: from results to the rows of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pytest_spiral.compare.pairing import RecordedRun, counterpart
from pytest_spiral.evaluate.spiral import SpiralContext
from pytest_spiral.evaluate.verdict import missing_limit
from pytest_spiral.gates import (
    Decision,
    Gate,
    JudgeStanding,
    Measured,
    Policy,
    conclude,
    decide,
    limit_missing,
    nothing_measured,
    with_standing,
)
from pytest_spiral.gates.estimate import TWO_SIDED, Z_ONE_SIDED
from pytest_spiral.spiral.aggregate import Difference, MissingAs, paired_differences, score_conversations
from pytest_spiral.spiral.calibration import standing
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.score import Score
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card import CardContext, bootstrap_draws, metric_sample
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import CARD_MODES, Item, Mode

__all__ = ["CasedScores", "card_rows", "spiral_rows"]

_EXTREMES: tuple[MissingAs, MissingAs] = ("worst", "best")
_OPPOSITE: Mapping[MissingAs, MissingAs] = {"ignored": "ignored", "worst": "best", "best": "worst"}


def card_rows(
    gate: Gate,
    items: Mapping[tuple[str, Mode], Sequence[Item]],
    contexts: Mapping[tuple[str, Mode], CardContext],
    policy: Policy,
    seed: int,
    baseline: RecordedRun | None,
) -> Iterator[Mapping[str, Any]]:
    """A TempAffect gate on every card it speaks about. An unqualified gate must hold for all of them."""
    resamples = load_params().intervals.resamples

    def draws(n: int) -> Sequence[Sequence[int]]:
        return bootstrap_draws(n, resamples, seed)

    for (model, mode), found in items.items():
        if gate.qualifier not in (None, mode):
            continue
        sample = metric_sample(gate.metric, found, contexts[model, mode])
        other, against = None, None
        if gate.relative and baseline is not None:
            against = counterpart(model, baseline, "tempaffect")
            other = metric_sample(gate.metric, baseline.items.get((against, mode), ()), contexts[model, mode])
        decision = decide(gate, sample, policy, draws, other)
        beyond = sample.missing > missing_limit(sample.wanted)
        yield _row(gate, model, CARD_MODES[mode], limit_missing(decision, beyond), policy, baseline, against)


class CasedScores:
    """Scores of one model with what is missing left out, at its worst and at its best; each computed once."""

    def __init__(self, talks: Sequence[Conversation], context: SpiralContext) -> None:
        self.talks = talks
        self.context = context

    @cached_property
    def ignored(self) -> Score:
        return self._score("ignored")

    def of(self, case: MissingAs) -> Score:
        missing = self.ignored.missing
        whole = not (missing.conversations or missing.chunks or missing.finals)
        return self.ignored if whole else self.best if case == "best" else self.worst

    @cached_property
    def worst(self) -> Score:
        return self._score("worst")

    @cached_property
    def best(self) -> Score:
        return self._score("best")

    def _score(self, case: MissingAs) -> Score:
        context = self.context
        return score_conversations(
            self.talks, context.protocol, seed=context.seed, confidence=TWO_SIDED, missing_as=case
        )


def spiral_rows(
    gate: Gate,
    scores: Mapping[str, CasedScores],
    beyond: Mapping[str, bool],
    policy: Policy,
    baseline: RecordedRun | None,
) -> Iterator[Mapping[str, Any]]:
    """A Spiral gate on every model. beyond: whether more of a model is missing than the limit allows."""
    for model, found in scores.items():
        against = counterpart(model, baseline, "spiral") if gate.relative and baseline is not None else None
        if against is None or baseline is None:
            decision = _alone(gate, found, policy)
        else:
            decision = _against(gate, found, baseline.conversations[against], policy)
        metric = found.context.protocol.metrics.get(gate.metric)
        if metric is not None and metric.kind == "behaviour":
            decision = with_standing(decision, JudgeStanding(*standing(found.context.calibration, gate.metric)))
        yield _row(gate, model, None, limit_missing(decision, beyond[model]), policy, baseline, against)


def _alone(gate: Gate, scores: CasedScores, policy: Policy) -> Decision:
    measured = _measured(gate.metric, scores.ignored)
    if measured is None or not any(talk.status is Status.MEASURED for talk in scores.talks):
        return nothing_measured("prompt")
    cases = [_measured(gate.metric, scores.of(case)) for case in _EXTREMES]
    decision = conclude(gate, measured, *_worst_and_best(gate, *cases), policy)
    return replace(decision, n=scores.ignored.n_items, unit="prompt")


def _worst_and_best(
    gate: Gate, first: Measured | None, second: Measured | None
) -> tuple[Measured | None, Measured | None]:
    """The worst case of a gate is the end that its metric must stay away from, whichever end the score thinks worse."""
    if first is None or second is None:
        return None, None
    low, high = sorted((first, second), key=lambda measured: measured.value)
    return (low, high) if gate.op == ">=" else (high, low)


def _measured(metric: str, score: Score) -> Measured | None:
    if metric == "score":
        found = score.unrounded, score.ci_low, score.ci_high, score.se, score.ci_method
    elif metric.startswith("tails."):
        name = metric.removeprefix("tails.")
        low, high = (getattr(score.tails, f"{name}_ci_{end}") for end in ("low", "high"))
        se = None if low is None else (high - low) / (2 * Z_ONE_SIDED)
        found = getattr(score.tails, name), low, high, se, "exact bounds over prompts"
    else:
        row = score.metrics[metric]
        found = row.mean, row.ci_low, row.ci_high, row.se, score.ci_method
    value, low, high, se, method = found
    return None if value is None or low is None or high is None else Measured(value, low, high, method, se)


def _against(gate: Gate, scores: CasedScores, others: Sequence[Conversation], policy: Policy) -> Decision:
    """On differences to the baseline, what is missing here at one end and what is missing there at the other."""
    context = scores.context
    found = {
        case: paired_differences(
            scores.talks,
            others,
            context.protocol,
            seed=context.seed,
            confidence=TWO_SIDED,
            missing_as=(case, _OPPOSITE[case]),
        )
        for case in _OPPOSITE
    }
    rows = {case: paired.differences.get(gate.metric) for case, paired in found.items()}
    row, measured = rows["ignored"], _of_difference(rows["ignored"])
    if row is None or measured is None:
        return nothing_measured("prompt")
    cases = [_of_difference(rows[case]) for case in _EXTREMES]
    decision = conclude(gate, measured, *_worst_and_best(gate, *cases), policy)
    return replace(decision, n=len(found["ignored"].prompts), unit="prompt", candidate=row.first, baseline=row.second)


def _of_difference(row: Difference | None) -> Measured | None:
    return Measured(row.value, row.low, row.high, row.method, row.se) if row else None


def _row(
    gate: Gate,
    model: str,
    mode: str | None,
    decision: Decision,
    policy: Policy,
    baseline: RecordedRun | None,
    against: str | None,
) -> Mapping[str, Any]:
    return {
        "expr": gate.expr,
        "model": model,
        "prompting_mode": mode,
        "metric": gate.path,
        "value": decision.value,
        "ci_low": decision.low,
        "ci_high": decision.high,
        "method": decision.method,
        "threshold": gate.threshold,
        "policy": policy,
        "outcome": decision.outcome,
        "reason": decision.reason.detail,
        "mde": decision.mde,
        "worst_case": decision.worst_case,
        "best_case": decision.best_case,
        "n": decision.n,
        "unit": decision.unit,
        "calibration": decision.judge,
        "baseline": {
            "run": baseline.id,
            "model": against,
            "value": decision.baseline,
            "own": decision.candidate,
        }
        if baseline is not None and against is not None
        else None,
    }
