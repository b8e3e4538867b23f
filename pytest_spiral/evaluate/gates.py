"""Gates of a run, decided on every card and score that they speak about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from pytest_spiral.compare.recording import Recording, counterpart
from pytest_spiral.evaluate.floor import measured_skill, without_floor
from pytest_spiral.evaluate.inputs import RunResults, SpiralContext
from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.evaluate.verdict import is_beyond_limit
from pytest_spiral.gates import (
    NOTHING_MEASURED,
    DecisionCode,
    Gate,
    GateDecision,
    Measured,
    Policy,
    conclude,
    decide,
    limit_missing,
    rate_mde,
    with_moved_judges,
    with_standing,
)
from pytest_spiral.gates.estimate import TWO_SIDED, Z_ONE_SIDED
from pytest_spiral.report.model import BaselineValue, GateRow, ProtocolScore
from pytest_spiral.report.model.floor import Floor
from pytest_spiral.report.model.gate import DecisionReason
from pytest_spiral.report.parts import Parts
from pytest_spiral.spiral.aggregate import paired_differences, score_conversations
from pytest_spiral.spiral.anchors import UNCHECKED, judge_again, movements, not_the_same
from pytest_spiral.spiral.calibration import record_of, standing_of_all
from pytest_spiral.spiral.chunks import cut_replies
from pytest_spiral.spiral.counting import MissingAs
from pytest_spiral.spiral.over_correction import over_correction
from pytest_spiral.spiral.per_10k import PER_10K, scheme_beside, scheme_score
from pytest_spiral.spiral.prefix_score import PREFIX_SCALES, prefix_metric
from pytest_spiral.spiral.turn_values import TURN_VALUES
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card_metrics import CardMetrics, bootstrap_draws
from pytest_spiral.tempaffect.records import CARD_MODES, CardMode, Item, Mode

_OPPOSITE: Mapping[MissingAs, MissingAs] = {"ignored": "ignored", "worst": "best", "best": "worst"}
_ANY_DISTRIBUTION = "bounds over prompts for any distribution"

PreparedCards = Callable[[str, Mode, str | None], CardMetrics]
"""`prepare_card` of one run: from model and mode, and for a baseline the name of its model there."""


def prepare_card(run: RunResults, model: str, mode: Mode, against: str | None) -> CardMetrics:
    """The measurements of a card, or of the baseline's model `against` in that mode; the same for all gates."""
    context = run.contexts[model, mode]
    items: Sequence[Item] = run.items[model, mode]
    if against is not None:
        assert run.baseline is not None
        items = run.baseline.items.get((against, mode), ())
    return CardMetrics(items, context.scenarios, context.skill_floor)


def card_row(gate: Gate, run: RunResults, prepared: PreparedCards, model: str, mode: Mode) -> GateRow:
    """A TempAffect gate on one card."""
    sample = prepared(model, mode, None).sample(gate.metric)
    other, against = None, None
    if gate.relative and run.baseline is not None:
        against = counterpart(model, run.baseline, "tempaffect")
        other = prepared(model, mode, against).sample(gate.metric)
    decision = decide(gate, sample, run.policy, partial(bootstrap_draws, seed=run.run.seed), other)
    decision = limit_missing(decision, is_beyond_limit(sample.missing, sample.wanted))
    return gate_row(gate, model, CARD_MODES[mode], decision, run.policy, _baseline(run, against, decision))


class SpiralGates:
    """Spiral-Bench gates of a run. What they decide on is computed once for all gates."""

    def __init__(
        self,
        run: RunResults,
        context: SpiralContext,
        incomplete: Mapping[str, bool],
        floor: Floor | None = None,
        useless: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """incomplete: by model, whether too much is missing. useless: by model, why its judgements mean nothing."""
        self._run = run
        self._floor = floor
        self._context = context
        self._incomplete, self._useless = incomplete, useless or {}
        self._score = cache(self._compute_score)
        self._differences = cache(self._compute_differences)

    def row(self, gate: Gate, model: str) -> GateRow:
        """A gate on one model."""
        baseline, protocol = self._run.baseline, self._context.protocol
        against = counterpart(model, baseline, "spiral") if gate.relative and baseline is not None else None
        measured, worst, best = (self._measured(gate, model, against, case) for case in _OPPOSITE)
        # A count is what happened in this run: there is nothing to infer.
        policy = "point" if gate.metric == "worst_conversations" else self._run.policy
        decision = NOTHING_MEASURED
        if gate.metric == "skill" and (self._floor is None or self._floor.refused):
            decision = without_floor(self._floor)
        if measured is not None:
            decision = conclude(gate, measured, (worst, best), policy)
            decision = replace(decision, mde=self._detectable(gate, decision))
        # Tails and the worst count conversations with certain behaviours: they are as good as the judges are on these.
        about = (protocol.harm,) if gate.metric.startswith("tails.") else (gate.metric,)
        records = [record_of(judge, found) for judge, found in self._context.calibrated.items()]
        for behaviour in protocol.worst if gate.metric.startswith("worst") else about:
            if behaviour in protocol.metrics and protocol.metrics[behaviour].kind == "behaviour":
                decision = with_standing(decision, *standing_of_all(records, behaviour))
        if against is not None and baseline is not None:
            decision = self._with_same_judges(decision, baseline)
        decision = limit_missing(decision, self._incomplete[model])
        if why := self._useless.get(model):
            decision = GateDecision("incomplete", DecisionReason(DecisionCode.NOTHING_MEASURED, "; ".join(why)))
        return gate_row(gate, model, None, decision, policy, _baseline(self._run, against, decision))

    def _detectable(self, gate: Gate, decision: GateDecision) -> float | None:
        """How far beyond the threshold a true value must lie to pass in four of five runs; None where none can.

        A share of conversations is a rate, for which that is exact.
        """
        if decision.mde is None or decision.measured is None or gate.relative:
            return decision.mde
        if gate.metric == "worst" or gate.metric.startswith("tails."):
            return rate_mde(gate, decision.measured.n)
        low, high = spiral_metric_scales(self._context.protocol)[gate.metric]
        true = gate.threshold + (decision.mde if gate.at_least else -decision.mde)
        return decision.mde if low <= true <= high else None

    def _with_same_judges(self, decision: GateDecision, baseline: Recording) -> GateDecision:
        """A decision on a difference to a baseline, whose judges must not have changed since."""
        anchors = baseline.anchors, self._context.anchors
        if moved := not_the_same(*anchors):
            return with_moved_judges(decision, f"{moved}; {judge_again(baseline.name)}")
        if movements(*anchors):
            return decision
        reason = replace(decision.reason, detail=f"{decision.reason.detail}; {UNCHECKED}")
        return replace(decision, reason=reason)

    def _measured(self, gate: Gate, model: str, against: str | None, case: MissingAs) -> Measured | None:
        """What a gate decides on, with missing measurements ignored, at their worst or at their best."""
        if against is not None:
            return self._differences(model, against, case).get(gate.metric)
        conversations = self._run.conversations[model]
        if gate.metric == "over_correction":
            over = over_correction(conversations, TWO_SIDED, case)
            bounds = (over.share, over.ci_low, over.ci_high) if over else (None,) * 3
            return _measured(bounds, _se_of(*bounds[1:]), _ANY_DISTRIBUTION, over.conversations if over else 0)
        if gate.metric in PREFIX_SCALES:
            return prefix_metric(gate.metric, conversations, self._context.protocol, TWO_SIDED, case)
        if not any(conversation.status is Status.MEASURED for conversation in conversations):
            return None
        case = case if self._has_gaps(model) else "ignored"
        if gate.metric == "skill":
            return measured_skill(conversations, self._context, self._floor, TWO_SIDED, case)
        if gate.metric == f"{PER_10K}.score":
            return self._beside(model, case)
        return _of_score(gate.metric, self._score(model, case))

    def _has_gaps(self, model: str) -> bool:
        """Whether anything could be better or worse than it was measured."""
        score = self._score(model, "ignored")
        missing = score.missing.conversations or score.missing.chunks or score.missing.finals
        unlocated = score.ignored.get("unlocated")
        own = self._run.conversations[model]
        # Of abandoned attempts the counts say less.
        restarted = any(conversation.abandoned for conversation in own)
        return bool(missing or unlocated or restarted or cut_replies(own, self._context.protocol))

    def _compute_score(self, model: str, case: MissingAs) -> ProtocolScore:
        conversations, context = self._run.conversations[model], self._context
        return score_conversations(
            conversations,
            context.protocol,
            seed=context.seed,
            confidence=TWO_SIDED,
            missing_as=case,
            # No gate is about these statistics, and the report names those that fail.
            attempt=Parts().attempt,
        )

    def _beside(self, model: str, case: MissingAs) -> Measured | None:
        """The score under the scheme that is computed beside the protocol."""
        scheme = scheme_beside(self._context.protocol.name)
        if scheme is None:
            return None
        row = scheme_score(self._run.conversations[model], scheme, self._context.seed, TWO_SIDED, case)
        score = self._score(model, case)
        method = f"{scheme.name}; {score.ci_method}"
        return _measured((row.score, row.ci_low, row.ci_high), row.se, method, score.n_items)

    def _compute_differences(self, model: str, against: str, case: MissingAs) -> Mapping[str, Measured]:
        """With what is missing here at one end and what is missing in the baseline at the other."""
        assert self._run.baseline is not None
        return paired_differences(
            self._run.conversations[model],
            self._run.baseline.by_model[against],
            self._context.protocol,
            seed=self._context.seed,
            confidence=TWO_SIDED,
            missing_as=(case, _OPPOSITE[case]),
        ).differences


def _of_score(metric: str, score: ProtocolScore) -> Measured | None:
    method: str = score.ci_method
    bounds: tuple[float | None, float | None, float | None]
    if metric == "score":
        bounds, se = (score.unrounded, score.ci_low, score.ci_high), score.se
    elif score.headline is not None and metric == "worst_conversations":
        bounds, se, method = (score.headline.worst_conversations,) * 3, None, "count in this run"
    elif score.headline is not None and metric in (*TURN_VALUES, "worst"):
        number = getattr(score.headline, metric)
        bounds, method = (number.value, number.ci_low, number.ci_high), _ANY_DISTRIBUTION
        se = _se_of(number.ci_low, number.ci_high) if number.se is None else number.se
    elif metric.startswith("tails."):
        name = metric.removeprefix("tails.")
        bounds = getattr(score.tails, name), *(getattr(score.tails, f"{name}_ci_{end}") for end in ("low", "high"))
        se, method = _se_of(*bounds[1:]), "exact bounds over prompts"
    else:
        row = score.metrics[metric]
        bounds, se = (row.mean, row.ci_low, row.ci_high), row.se
    return _measured(bounds, se, method, score.n_items)


def _se_of(low: float | None, high: float | None) -> float | None:
    """The standard error by the width of the interval."""
    return None if low is None or high is None else (high - low) / (2 * Z_ONE_SIDED)


def _measured(
    bounds: tuple[float | None, float | None, float | None], se: float | None, method: str, n: int
) -> Measured | None:
    """bounds: value, and ends of its interval."""
    value, low, high = bounds
    return None if value is None or low is None or high is None else Measured(value, low, high, method, se, n)


def _baseline(run: RunResults, against: str | None, decision: GateDecision) -> BaselineValue | None:
    """against: the baseline's model that a relative gate compares with."""
    if run.baseline is None or against is None:
        return None
    measured = decision.measured
    own, value = (measured.candidate, measured.baseline) if measured else (None, None)
    return BaselineValue(run=run.baseline.id, model=against, value=value, own=own)


def gate_row(
    gate: Gate,
    model: str,
    mode: CardMode | None,
    decision: GateDecision,
    policy: Policy,
    baseline: BaselineValue | None = None,
) -> GateRow:
    """A gate as it was decided, for the report."""
    measured = decision.measured
    return GateRow(
        expr=gate.expr,
        model=model,
        prompting_mode=mode,
        metric=gate.path,
        value=measured.value if measured else None,
        ci_low=measured.low if measured else None,
        ci_high=measured.high if measured else None,
        method=measured.method if measured else "",
        threshold=gate.threshold,
        at_least=gate.at_least,
        policy=policy,
        outcome=decision.outcome,
        mde=decision.mde,
        worst_case=decision.worst_case,
        best_case=decision.best_case,
        reason=decision.reason,
        n=measured.n if measured else 0,
        unit="scenario" if mode else "prompt",
        calibration=decision.judge,
        baseline=baseline,
    )
