"""How far a judge's labels agree with labels that people trust, and what a gate may conclude from it. Pure.

A gate on a single behaviour asks `standing`: without a record it is decided and labelled uncalibrated; with a record
below the bar in `data/spiral/calibration_bar.toml` it is inconclusive, whatever the numbers say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from pytest_spiral.errors import DataError
from pytest_spiral.grouping import grouped
from pytest_spiral.report.model.gate import Standing
from pytest_spiral.report.model.judges import (
    Agreement,
    BehaviourCalibration,
    BehaviourStanding,
    CalibrationReport,
    Drift,
    Estimate,
    KindCount,
    LabelledBy,
    TurnRate,
)
from pytest_spiral.resources import data_root, read_json
from pytest_spiral.spiral.agreement import agreement_on, seen_in, strengths
from pytest_spiral.spiral.labels import LabelledSet, LabelledTurn
from pytest_spiral.spiral.records import ChunkJudgement, Conversation
from pytest_spiral.stats import (
    Clusters,
    Interval,
    Tally,
    agreement_interval,
    corrected_rate,
    design_effect,
    weighted_kappa,
    wilson,
)
from pytest_spiral.status import Status
from pytest_spiral.tables import PerMille, Positive, Table, read_table

_SCHEMA_VERSION: Literal[2] = 2
Predictions = Mapping[str, Mapping[str, int] | None]
"""What a judge saw, strength by behaviour, by turn; None where it could not be read."""
Pairs = Clusters[tuple[tuple[int, int], ...]]
"""Per conversation pairs of a reference strength and a judged one, 0..3."""
# Draws of an interval that decides whether a judge may decide, and of one for reading only.
_DRAWS, _FEW_DRAWS = 500, 200


class Calibration(Table):
    """A calibration record. It speaks for one judge under this rubric, and for nobody else."""

    judges: tuple[str]
    """Name of the judge."""
    rubric_hash: str
    labels: str
    """Name and hash of the labelled material."""
    behaviours: Mapping[str, BehaviourCalibration]
    """Agreement with the labels; kappa is Cohen's, on presence."""


class _Bar(Table):
    turns: Positive
    kappa: PerMille
    kappa_low: PerMille
    sensitivity: Mapping[str, PerMille]


@cache
def _bar() -> _Bar:
    return read_table(_Bar, data_root() / "spiral" / "calibration_bar.toml")


def standing(calibration: Calibration | None, behaviour: str) -> tuple[Standing, str]:
    """Whether the judge may decide about a behaviour, and why not.

    It needs enough labelled turns with and without the behaviour, enough agreement with the labels, a high enough lower
    bound, and for some behaviours enough sensitivity. What was not measured is uncalibrated.
    """
    measured = calibration.behaviours.get(behaviour) if calibration else None
    if measured is None:
        return "uncalibrated", "the judge was not calibrated on it"
    bar = _bar()
    if not measured.n:
        return "uncalibrated", f"not labelled: needs {bar.turns} turns with it and {bar.turns} without"
    few = f"labelled on {measured.positives} turns with it and {measured.negatives} without: needs {bar.turns} of each"
    kappa, sensitivity = measured.kappa, measured.sensitivity
    if kappa is None or sensitivity is None:
        return "uncalibrated", few
    faults = []
    if kappa.value * 1000 < bar.kappa or kappa.low * 1000 < bar.kappa_low:
        faults.append(
            f"agreement {kappa.value:.2f} (lower bound {kappa.low:.2f}), "
            f"expected at least {bar.kappa / 1000:.2f} ({bar.kappa_low / 1000:.2f})"
        )
    least = bar.sensitivity.get(behaviour)
    if least is not None and sensitivity.value * 1000 < least:
        faults.append(f"sensitivity {sensitivity.value:.2f}, expected at least {least / 1000:.2f}")
    if faults:
        return "below_bar", "; ".join(faults)
    return ("uncalibrated", few) if min(measured.positives, measured.negatives) < bar.turns else ("calibrated", "")


def standing_of_all(calibrations: Sequence[Calibration], behaviour: str) -> tuple[Standing, str]:
    """The same for several judges, whose mean is as good as the worst of them."""
    if len(calibrations) < 2:
        return standing(calibrations[0] if calibrations else None, behaviour)
    found = {record.judges[0]: standing(record, behaviour) for record in calibrations}
    order: Sequence[Standing] = ("below_bar", "uncalibrated", "calibrated")
    worst = min((verdict for verdict, _ in found.values()), key=order.index)
    return worst, "; ".join(f"{judge}: {why}" for judge, (verdict, why) in found.items() if verdict == worst and why)


class CalibrationResult(Table):
    """One judge on one labelled set, as it is kept for the next calibration."""

    # Earlier versions kept more.
    model_config = ConfigDict(extra="ignore")

    schema_version: Literal[2]
    record: Calibration
    """What gates ask."""
    turns: int
    """Labelled turns."""
    basis: str = ""
    """How it is known what the raters looked for."""
    strength: Mapping[str, Estimate | None]
    """Quadratic-weighted kappa on 0..3 by behaviour."""
    raters: Mapping[str, str]
    """Name and kind."""
    whose: LabelledBy = "unknown"
    """Whose labels they are; not known of calibrations of earlier versions."""
    agreement: Mapping[str, Agreement | None]
    """Of the raters among themselves by behaviour, None with one rater or none who looked for it."""
    disagreements: Mapping[str, Mapping[str, Mapping[str, int]]]
    """Turns on which they differ, with every rater's labels."""
    unread: int
    """Turns without a readable judgement; they count as wrong."""
    kinds: Mapping[str, KindCount]
    """By what a turn was written to test."""
    predictions: Predictions
    """From which drift is computed."""

    @property
    def below(self) -> dict[str, str]:
        """Behaviours about which the judge may not decide because it is not good enough, and why."""
        return self._with_standing("below_bar")

    @property
    def uncalibrated(self) -> dict[str, str]:
        """Behaviours of which the labels say too little, and what they lack."""
        return self._with_standing("uncalibrated")

    def report(self, change: Drift | None) -> CalibrationReport:
        """What a run tells of it, without the rates in its conversations. change: since the last one."""
        behaviours = {}
        for name, measured in self.record.behaviours.items():
            verdict = dict(zip(("standing", "reason"), standing(self.record, name), strict=True))
            further = {"strength": self.strength[name], "raters_agreement": self.agreement[name], "turn_rate": None}
            behaviours[name] = BehaviourStanding.model_validate({**dict(measured), **verdict, **further})
        own = {name: getattr(self, name) for name in ("turns", "unread", "raters", "whose", "kinds")}
        about = {"labels": self.record.labels, "disagreements": len(self.disagreements), "drift": change}
        return CalibrationReport.model_validate({**own, **about, "behaviours": behaviours})

    def _with_standing(self, wanted: Standing) -> dict[str, str]:
        return {name: row.reason for name, row in self.report(None).behaviours.items() if row.standing == wanted}


def record_of(judge: str, found: CalibrationReport) -> Calibration:
    """What gates ask, from a report, in which conversations were judged under the rubric of the calibration."""
    return Calibration(judges=(judge,), rubric_hash="", labels=found.labels, behaviours=found.behaviours)


def calibration_result(
    labelled: LabelledSet, judged: Mapping[str, ChunkJudgement], judge: str, rubric_hash: str, behaviours: Sequence[str]
) -> CalibrationResult:
    """Compare one judge's judgements with labels. judged: by turn.

    Of a behaviour only the turns count on which somebody looked for it. Among them a turn without a readable judgement
    counts as wrong, whichever way it is labelled.
    """
    predictions = {turn.id: seen_in(judged.get(turn.id)) for turn in labelled.turns}
    pairs = {name: _pairs(labelled.turns, predictions, name) for name in behaviours}
    return CalibrationResult(
        schema_version=_SCHEMA_VERSION,
        record=Calibration(
            judges=(judge,),
            rubric_hash=rubric_hash,
            labels=f"{labelled.name} {labelled.hash[:16]}",
            behaviours={name: _behaviour(pairs[name]) for name in behaviours},
        ),
        turns=len(labelled.turns),
        basis=labelled.basis,
        strength={name: _kappa(pairs[name], "quadratic", _FEW_DRAWS) for name in behaviours},
        raters=dict(labelled.raters),
        whose=labelled.whose,
        agreement={name: agreement_among_raters(labelled, name) for name in behaviours},
        disagreements={turn.id: turn.labels for turn in labelled.turns if turn.is_disputed},
        unread=sum(prediction is None for prediction in predictions.values()),
        kinds=_kinds(labelled.turns, predictions, behaviours),
        predictions=predictions,
    )


# Each of several judges is measured against the same labels.
@lru_cache(maxsize=64)
def agreement_among_raters(labelled: LabelledSet, behaviour: str) -> Agreement | None:
    """Agreement of the raters with each other; None where there is one, or where nobody looked."""
    given = [(turn.unit, turn.given(behaviour)) for turn in labelled.turns]
    if len(labelled.raters) < 2 or not any(by_rater for _, by_rater in given):
        return None
    rows = (
        (unit, [float(by_rater[rater]) if rater in by_rater else None for rater in labelled.raters])
        for unit, by_rater in given
    )
    return agreement_on(Clusters.group("conversation", rows), list(labelled.raters), "raters")


def _pairs(turns: Sequence[LabelledTurn], predictions: Predictions, behaviour: str) -> Pairs:
    pairs = []
    for turn in turns:
        reference, prediction = turn.reference(behaviour), predictions[turn.id]
        if reference is None:
            continue
        # An unread turn counts as wrong.
        judged = int(not reference) if prediction is None else prediction.get(behaviour, 0)
        pairs.append((turn.unit, (reference, judged)))
    return Clusters.group("conversation", pairs)


def _behaviour(pairs: Pairs) -> BehaviourCalibration:
    positives, negatives = _classes(pairs)
    presence = pairs.map(lambda unit: tuple((int(reference > 0), int(judged > 0)) for reference, judged in unit))
    return BehaviourCalibration(
        n=len(pairs),
        positives=positives,
        negatives=negatives,
        sensitivity=_recall(presence, 1),
        specificity=_recall(presence, 0),
        kappa=_kappa(presence, "none", _DRAWS),
    )


def _classes(pairs: Pairs) -> tuple[int, int]:
    """The number of turns labelled with it, and without."""
    references = [reference > 0 for unit in pairs.values for reference, _ in unit]
    return sum(references), len(references) - sum(references)


def _kappa(pairs: Pairs, weights: Literal["none", "quadratic"], draws: int) -> Estimate | None:
    statistic = partial(weighted_kappa, weights=weights)
    # With one class in the labels it says nothing about the judge.
    value = statistic(pairs) if all(_classes(pairs)) else None
    return None if value is None else _enclosing(value, _drawn(pairs, statistic, draws))


def _recall(presence: Pairs, label: int) -> Estimate | None:
    """The share of turns with this label, 1 for presence, that are judged so."""

    def rate(presence: Pairs) -> float | None:
        right = [judged == label for unit in presence.values for reference, judged in unit if reference == label]
        return sum(right) / len(right) if right else None

    if (value := rate(presence)) is None:
        return None
    # Where few turns or none are wrong, resampling sees too little chance; Wilson counts conversations.
    units = sum(any(reference == label for reference, _ in unit) for unit in presence.values)
    intervals = [wilson(Tally(round(value * units), units, "conversation"))]
    if any(len(unit) > 1 for unit in presence.values):
        intervals.append(_drawn(presence, rate, _DRAWS))
    return _enclosing(value, *intervals)


def _drawn(pairs: Pairs, statistic: Callable[[Pairs], float | None], draws: int) -> Interval:
    return agreement_interval(pairs, statistic, "calibration", resamples=draws) or Interval(-1.0, 1.0, "unknown")


def _enclosing(value: float, *intervals: Interval) -> Estimate:
    low, high = min(found.low for found in intervals), max(found.high for found in intervals)
    return Estimate(value=value, low=min(low, value), high=max(high, value))


def _kinds(turns: Sequence[LabelledTurn], predictions: Predictions, behaviours: Sequence[str]) -> dict[str, KindCount]:
    def is_false_alarm(turn: LabelledTurn) -> bool:
        prediction = predictions[turn.id] or {}
        return any(prediction.get(name, 0) and turn.reference(name) == 0 for name in behaviours)

    by_kind = grouped((kind, is_false_alarm(turn)) for turn in turns for kind in turn.about if kind not in behaviours)
    return {kind: KindCount(turns=len(own), false_alarms=sum(own)) for kind, own in sorted(by_kind.items())}


def corrected_turn_rate(conversations: Sequence[Conversation], record: Calibration, behaviour: str) -> TurnRate | None:
    """The share of judged turns with a behaviour, as a judge reported it and corrected for its errors on labels.

    Turns of a conversation count for as many as the design effect leaves, for one where all turns are alike. None where
    nothing was judged; the corrected rate is None where sensitivity + specificity is below 1.2 or was not measured.

    Source: Rogan and Gladen 1978; Lang and Reiczigel 2014.
    """
    turns = (
        (conversation.id, float((turn, behaviour) in seen))
        for conversation in conversations
        for chunk in conversation.judgements
        if chunk.status is Status.MEASURED and chunk.judge == record.judges[0]
        for seen in (strengths(chunk),)
        for turn in chunk.turns
    )
    seen = Clusters.group("conversation", turns)
    if not (values := [value for unit in seen.values for value in unit]):
        return None
    raw, found = sum(values) / len(values), None
    measured = record.behaviours.get(behaviour)
    if measured and measured.sensitivity and measured.specificity:
        n = len(values) / max(1.0, design_effect(seen) or len(values) / len(seen))
        right = (measured.sensitivity, measured.positives), (measured.specificity, measured.negatives)
        found_there, left_alone = (Tally(round(share.value * of), of, "conversation") for share, of in right)
        found = corrected_rate(raw, n, found_there, left_alone)
    theta, ends = found or (None, None)
    return TurnRate(rate=raw, corrected=theta, low=ends.low if ends else None, high=ends.high if ends else None)


def drift(before: CalibrationResult, now: CalibrationResult) -> Drift:
    """What has changed since the last calibration; not comparable where judges, labels or rubric differ."""
    one, two = before.record, now.record
    if (one.judges, one.rubric_hash, one.labels) != (two.judges, two.rubric_hash, two.labels):
        return Drift(comparable=False, changed=None, kappa={}, drifted=())
    pairs = [(before.predictions.get(turn), new) for turn, new in now.predictions.items()]
    changed = [
        (old is None) != (new is None) or bool((old or {}).get(name)) != bool((new or {}).get(name))
        for old, new in pairs
        for name in two.behaviours
    ]
    kappas = {
        name: (earlier.kappa, later.kappa)
        for name, later in two.behaviours.items()
        if (earlier := one.behaviours.get(name)) and earlier.kappa and later.kappa
    }
    return Drift(
        comparable=True,
        changed=sum(changed) / len(changed) if changed else None,
        kappa={name: later.value - earlier.value for name, (earlier, later) in kappas.items()},
        drifted=tuple(
            name
            for name, (old, late) in kappas.items()
            # The interval of a judge that is always right is a point.
            if not (old.low <= late.value <= old.high or late.low <= old.value <= late.high)
        ),
    )


def read_calibration(path: Path) -> CalibrationResult:
    """A calibration that was kept. Raises `DataError` naming file and key where it is not one of this version."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("schema_version") != _SCHEMA_VERSION:
        raise DataError(
            f"{path}: schema_version: expected a calibration of version {_SCHEMA_VERSION}; delete the file, "
            "the next calibration is then the first"
        )
    return read_table(CalibrationResult, path)
