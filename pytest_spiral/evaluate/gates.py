"""Gates of a run, decided on every card and score that they speak about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_spiral.compare.recording import counterpart
from pytest_spiral.evaluate.inputs import RunResults, SpiralContext
from pytest_spiral.evaluate.verdict import is_beyond_limit
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
from pytest_spiral.report.model import BaselineValue, GateRow, ProtocolScore
from pytest_spiral.spiral.aggregate import paired_differences, score_conversations
from pytest_spiral.spiral.calibration import standing
from pytest_spiral.spiral.counting import MissingAs
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card_metrics import CardMetrics, bootstrap_draws
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import CARD_MODES, CardMode

_EXTREMES: tuple[MissingAs, MissingAs] = ("worst", "best")
_OPPOSITE: Mapping[MissingAs, MissingAs] = {"ignored": "ignored", "worst": "best", "best": "worst"}


def card_rows(gate: Gate, run: RunResults) -> Iterator[GateRow]:
    """A TempAffect gate on every card. An unqualified gate must hold for all of them."""
    resamples = load_params().intervals.resamples

    def draws(n: int) -> Sequence[Sequence[int]]:
        return bootstrap_draws(n, resamples, run.run.seed)

    for (model, mode), items in run.items.items():
        if gate.qualifier not in (None, mode):
            continue
        context = run.contexts[model, mode]
        sample = CardMetrics(items, context.scenarios, context.skill_floor).sample(gate.metric)
        other, against = None, None
        if gate.relative and run.baseline is not None:
            against = counterpart(model, run.baseline, "tempaffect")
            old = run.baseline.items.get((against, mode), ())
            other = CardMetrics(old, context.scenarios, context.skill_floor).sample(gate.metric)
        decision = decide(gate, sample, run.policy, draws, other)
        decision = limit_missing(decision, is_beyond_limit(sample.missing, sample.wanted))
        yield _row(gate, model, CARD_MODES[mode], decision, run, against)


class SpiralGates:
    """Spiral-Bench gates of a run; scores with bounds for missing measurements are computed once for all gates."""

    def __init__(self, run: RunResults, incomplete: Mapping[str, bool]) -> None:
        """incomplete: by model, whether more is missing than the limit allows."""
        self._run = run
        self._incomplete = incomplete
        self._scores = {
            model: _ScoreBounds(conversations, run.spiral)
            for model, conversations in run.conversations.items()
            if run.spiral is not None
        }

    def rows(self, gate: Gate) -> Iterator[GateRow]:
        """A gate on every model."""
        policy, baseline = self._run.policy, self._run.baseline
        for model, scores in self._scores.items():
            against = counterpart(model, baseline, "spiral") if gate.relative and baseline is not None else None
            if against is None or baseline is None:
                decision = _decide_alone(gate, scores, policy)
            else:
                decision = _decide_difference(gate, scores, baseline.conversations[against], policy)
            metric = scores.context.protocol.metrics.get(gate.metric)
            if metric is not None and metric.kind == "behaviour":
                judge = JudgeStanding(*standing(scores.context.calibration, gate.metric))
                decision = with_standing(decision, judge)
            decision = limit_missing(decision, self._incomplete[model])
            yield _row(gate, model, None, decision, self._run, against)


class _ScoreBounds:
    """Scores of one model with missing measurements ignored, at their worst and at their best; each computed once."""

    def __init__(self, conversations: Sequence[Conversation], context: SpiralContext) -> None:
        self.conversations = conversations
        self.context = context
        self._scores: dict[MissingAs, ProtocolScore] = {}

    def of(self, case: MissingAs) -> ProtocolScore:
        """The score in a case. Where nothing is missing all cases are the same."""
        if case != "ignored":
            missing = self.of("ignored").missing
            case = case if missing.conversations or missing.chunks or missing.finals else "ignored"
        if case not in self._scores:
            context = self.context
            self._scores[case] = score_conversations(
                self.conversations, context.protocol, seed=context.seed, confidence=TWO_SIDED, missing_as=case
            )
        return self._scores[case]


def _decide_alone(gate: Gate, scores: _ScoreBounds, policy: Policy) -> Decision:
    measured = _measured(gate.metric, scores.of("ignored"))
    if measured is None or not any(c.status is Status.MEASURED for c in scores.conversations):
        return nothing_measured("prompt")
    cases = [_measured(gate.metric, scores.of(case)) for case in _EXTREMES]
    decision = conclude(gate, measured, *_worst_and_best(gate, *cases), policy)
    return replace(decision, n=scores.of("ignored").n_items, unit="prompt")


def _worst_and_best(
    gate: Gate, first: Measured | None, second: Measured | None
) -> tuple[Measured | None, Measured | None]:
    """The worst case of a gate is the end that its metric must stay away from, not the one with the lower score."""
    if first is None or second is None:
        return None, None
    low, high = sorted((first, second), key=lambda measured: measured.value)
    return (low, high) if gate.at_least else (high, low)


def _measured(metric: str, score: ProtocolScore) -> Measured | None:
    if metric == "score":
        numbers = score.unrounded, score.ci_low, score.ci_high, score.se, score.ci_method
    elif metric.startswith("tails."):
        name = metric.removeprefix("tails.")
        low, high = (getattr(score.tails, f"{name}_ci_{end}") for end in ("low", "high"))
        se = None if low is None else (high - low) / (2 * Z_ONE_SIDED)
        numbers = getattr(score.tails, name), low, high, se, "exact bounds over prompts"
    else:
        row = score.metrics[metric]
        numbers = row.mean, row.ci_low, row.ci_high, row.se, score.ci_method
    value, low, high, se, method = numbers
    return None if value is None or low is None or high is None else Measured(value, low, high, method, se)


def _decide_difference(gate: Gate, scores: _ScoreBounds, others: Sequence[Conversation], policy: Policy) -> Decision:
    """On differences to the baseline, with what is missing here at one end and what is missing there at the other."""
    context = scores.context
    rows = {
        case: paired_differences(
            scores.conversations,
            others,
            context.protocol,
            seed=context.seed,
            confidence=TWO_SIDED,
            missing_as=(case, opposite),
        ).differences.get(gate.metric)
        for case, opposite in _OPPOSITE.items()
    }
    measured = rows["ignored"]
    if measured is None:
        return nothing_measured("prompt")
    worst, best = _worst_and_best(gate, *(rows[case] for case in _EXTREMES))
    return replace(conclude(gate, measured, worst, best, policy), unit="prompt")


def _row(
    gate: Gate,
    model: str,
    mode: CardMode | None,
    decision: Decision,
    run: RunResults,
    against: str | None,
) -> GateRow:
    """against: the baseline's model that a relative gate compares with."""
    baseline = None
    if run.baseline is not None and against is not None:
        baseline = BaselineValue(run=run.baseline.id, model=against, value=decision.baseline, own=decision.candidate)
    return GateRow(
        expr=gate.expr,
        model=model,
        prompting_mode=mode,
        metric=gate.path,
        value=decision.value,
        ci_low=decision.low,
        ci_high=decision.high,
        method=decision.method,
        threshold=gate.threshold,
        at_least=gate.at_least,
        policy=run.policy,
        outcome=decision.outcome,
        mde=decision.mde,
        worst_case=decision.worst_case,
        best_case=decision.best_case,
        reason=decision.reason,
        n=decision.n,
        unit=decision.unit,
        calibration=decision.judge,
        baseline=baseline,
    )
