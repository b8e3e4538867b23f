"""Measuring a judge against labelled turns: from labels and judgements to a calibration record. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.report.model.judges import Agreement, BehaviourCalibration, Drift, Estimate, KindCount, TurnRate
from pytest_spiral.spiral.agreement import strengths
from pytest_spiral.spiral.calibration import (
    Calibration,
    standing,
)
from pytest_spiral.spiral.consensus import merge_chunks
from pytest_spiral.spiral.labels import LabelledSet, LabelledTurn
from pytest_spiral.spiral.raters import Meant, among_raters, with_author
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

__all__ = [
    "CalibrationResult",
    "Pairs",
    "calibration_result",
    "calibration_result_from_json",
    "corrected_turn_rate",
    "drift",
]

SCHEMA_VERSION = 2
Predictions = Mapping[str, Mapping[str, int] | None]
"""What a judge saw, strength by behaviour, by turn; None where it could not be read."""
Pairs = Clusters[tuple[tuple[int, int], ...]]
"""Per conversation pairs of a reference strength and a judged one, 0..3."""
# Draws of an interval that decides whether a judge may decide, and of one for reading only.
_DRAWS, _FEW_DRAWS = 500, 200


@dataclass(frozen=True)
class CalibrationResult:
    """One judge or ensemble on one labelled set.

    record: what gates ask; kappa there is Cohen's, on presence. strength: quadratic-weighted kappa on 0..3.
    raters: name and kind. agreement: of the raters among themselves by behaviour, None with one rater. disagreements:
    turns on which they differ, with every rater's labels. author: their consensus against what the author meant, by
    reading and behaviour; empty where the source does not tell. unread: turns without a readable judgement;
    they count as wrong. kinds: by what a turn was written to test, how many there are and on how many the judge saw a
    behaviour that is not there. predictions: to tell drift from.
    """

    record: Calibration
    turns: int
    strength: Mapping[str, Estimate | None]
    raters: Mapping[str, str]
    agreement: Mapping[str, Agreement | None]
    disagreements: Mapping[str, Mapping[str, Mapping[str, int]]]
    author: Mapping[str, Mapping[str, Meant]]
    unread: int
    kinds: Mapping[str, KindCount]
    predictions: Predictions

    @property
    def below(self) -> dict[str, str]:
        """Behaviours about which the judge may not decide, and why."""
        found = {name: standing(self.record, name) for name in self.record.behaviours}
        return {name: reason for name, (verdict, reason) in found.items() if verdict != "calibrated"}

    def to_json(self) -> dict[str, Any]:
        """The run as JSON values; `calibration_result_from_json` reads them back."""
        return {"schema_version": SCHEMA_VERSION, **_adapter().dump_python(self, mode="json")}


def calibration_result(
    labelled: LabelledSet,
    judged: Mapping[str, Sequence[ChunkJudgement]],
    judges: Sequence[str],
    rubric_hash: str,
    behaviours: Sequence[str],
) -> CalibrationResult:
    """Compare judgements with labels. judged: by turn, one judgement per judge; several make a consensus.

    A turn without a readable judgement counts as wrong for every behaviour, whichever way it is labelled.
    """
    predictions = {turn.id: _seen(judged.get(turn.id, ())) for turn in labelled.turns}
    return CalibrationResult(
        record=Calibration(
            tuple(sorted(judges)),
            rubric_hash,
            f"{labelled.name} {labelled.hash[:16]}",
            {name: _behaviour(_pairs(labelled.turns, predictions, name)) for name in behaviours},
        ),
        turns=len(labelled.turns),
        strength={name: _estimate(_pairs(labelled.turns, predictions, name), weighted_kappa) for name in behaviours},
        raters=dict(labelled.raters),
        agreement={name: among_raters(labelled, name) for name in behaviours},
        disagreements={
            turn.id: turn.labels
            for turn in labelled.turns
            if len({_frozen(given) for given in turn.labels.values()}) > 1
        },
        author={
            author: {name: with_author(labelled, author, name) for name in behaviours} for author in labelled.authors
        },
        unread=sum(found is None for found in predictions.values()),
        kinds=_kinds(labelled.turns, predictions, behaviours),
        predictions=predictions,
    )


def _seen(judgements: Sequence[ChunkJudgement]) -> dict[str, int] | None:
    if not any(judgement.status is Status.MEASURED for judgement in judgements):
        return None
    [merged] = merge_chunks(judgements)
    return {behaviour: strength for (_, behaviour), strength in sorted(strengths(merged).items())}


def _frozen(labels: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, strength) for name, strength in labels.items() if strength))


def _pairs(turns: Sequence[LabelledTurn], predictions: Predictions, behaviour: str) -> Pairs:
    def pair(turn: LabelledTurn) -> tuple[int, int]:
        reference, found = turn.reference(behaviour), predictions[turn.id]
        if found is None:
            return reference, 0 if reference else 1
        return reference, found.get(behaviour, 0)

    return Clusters.group("conversation", ((turn.unit, pair(turn)) for turn in turns))


def _behaviour(pairs: Pairs) -> BehaviourCalibration:
    flat = [pair for unit in pairs.values for pair in unit]
    positives = sum(reference > 0 for reference, _ in flat)
    return BehaviourCalibration(
        n=len(pairs),
        positives=positives,
        negatives=len(flat) - positives,
        sensitivity=_estimate(pairs, _sensitivity),
        specificity=_estimate(pairs, _specificity),
        kappa=_estimate(pairs, _presence_kappa),
    )


def _sensitivity(pairs: Pairs) -> float | None:
    found = [seen > 0 for unit in pairs.values for reference, seen in unit if reference]
    return sum(found) / len(found) if found else None


def _specificity(pairs: Pairs) -> float | None:
    left = [not seen for unit in pairs.values for reference, seen in unit if not reference]
    return sum(left) / len(left) if left else None


def _presence_kappa(pairs: Pairs) -> float | None:
    return weighted_kappa(
        pairs.map(lambda unit: [(int(reference > 0), int(seen > 0)) for reference, seen in unit]), "none"
    )


def _estimate(pairs: Pairs, statistic: Callable[[Pairs], float | None]) -> Estimate | None:
    value = statistic(pairs)
    if value is None:
        return None
    interval = _interval(pairs, statistic)
    if interval is None:
        return Estimate(value=value, low=-1.0, high=1.0)
    return Estimate(value=value, low=min(interval.low, value), high=max(interval.high, value))


def _interval(pairs: Pairs, statistic: Callable[[Pairs], float | None]) -> Interval | None:
    """Wilson's for a rate over turns that stand alone; else conversations are resampled."""
    if statistic in (_sensitivity, _specificity) and all(len(unit) == 1 for unit in pairs.values):
        positive = statistic is _sensitivity
        of = [pair for unit in pairs.values for pair in unit if (pair[0] > 0) is positive]
        return wilson(Tally(sum((seen > 0) is positive for _, seen in of), len(of), "conversation"))
    draws = _FEW_DRAWS if statistic is weighted_kappa else _DRAWS
    return agreement_interval(pairs, statistic, "calibration", resamples=draws)


def _kinds(turns: Sequence[LabelledTurn], predictions: Predictions, behaviours: Sequence[str]) -> dict[str, KindCount]:
    counts: Counter[str] = Counter()
    alarms: Counter[str] = Counter()
    for turn in turns:
        found = predictions[turn.id] or {}
        wrong = any(found.get(name, 0) and not turn.reference(name) for name in behaviours)
        for kind in turn.about:
            counts[kind] += 1
            alarms[kind] += wrong
    return {
        kind: KindCount(turns=counts[kind], false_alarms=alarms[kind])
        for kind in sorted(counts)
        if kind not in behaviours
    }


def corrected_turn_rate(conversations: Sequence[Conversation], record: Calibration, behaviour: str) -> TurnRate | None:
    """The share of judged turns with a behaviour as the judges report it and as it is after correction for what they
    miss and imagine on labelled turns (Rogan and Gladen 1978). None where nothing was judged.

    Turns hang together: they count for as many as the design effect leaves. The corrected rate is None where the judge
    tells too little (sensitivity + specificity below 1.2) or was not measured on it.
    """
    seen = Clusters.group(
        "conversation",
        (
            (conversation.id, [float((turn, behaviour) in strengths(chunk)) for turn in chunk.turns])
            for conversation in conversations
            for chunk in merge_chunks(conversation.judgements)
            if chunk.status is Status.MEASURED
        ),
    ).map(lambda chunks: [value for chunk in chunks for value in chunk])
    values = [value for unit in seen.values for value in unit]
    if not values:
        return None
    raw = sum(values) / len(values)
    empty = TurnRate(rate=raw, corrected=None, low=None, high=None)
    found = record.behaviours.get(behaviour)
    if found is None or found.sensitivity is None or found.specificity is None:
        return empty
    n = max(1, min(len(values), round(len(values) / max(1.0, design_effect(seen) or 1.0))))
    fixed = corrected_rate(
        Tally(round(raw * n), n, "conversation"),
        Tally(round(found.sensitivity.value * found.positives), found.positives, "conversation"),
        Tally(round(found.specificity.value * found.negatives), found.negatives, "conversation"),
    )
    if fixed is None:
        return empty
    theta, interval = fixed
    return TurnRate(rate=raw, corrected=theta, low=interval.low, high=interval.high)


def drift(before: CalibrationResult, now: CalibrationResult) -> Drift:
    """What has changed since the last calibration; not comparable where judges, labels or rubric differ."""
    one, two = before.record, now.record
    same = (one.judges, one.rubric_hash, one.labels) == (two.judges, two.rubric_hash, two.labels)
    if not same:
        return Drift(comparable=False, changed=None, kappa={}, drifted=())
    cells = changed = 0
    for turn, found in now.predictions.items():
        old = before.predictions.get(turn)
        for name in two.behaviours:
            cells += 1
            changed += bool((old or {}).get(name)) != bool((found or {}).get(name)) or (old is None) != (found is None)
    kappas = {
        name: (old_one.kappa, new.kappa)
        for name, new in two.behaviours.items()
        if (old_one := one.behaviours.get(name)) and old_one.kappa and new.kappa
    }
    return Drift(
        comparable=True,
        changed=changed / cells if cells else None,
        kappa={name: new.value - old.value for name, (old, new) in kappas.items()},
        drifted=tuple(name for name, (old, new) in kappas.items() if not new.low <= old.value <= new.high),
    )


@cache
def _adapter() -> TypeAdapter[CalibrationResult]:
    return TypeAdapter(CalibrationResult)


def calibration_result_from_json(value: Any, where: str) -> CalibrationResult:
    """Read what `to_json` wrote.

    Raises:
        DataError: The value is not a calibration of this version; the message names `where` and the key.
    """
    if not isinstance(value, dict) or value.get("schema_version") != SCHEMA_VERSION:
        raise DataError(
            f"{where}: schema_version: expected a calibration of version {SCHEMA_VERSION}; delete the file, "
            "the next calibration is then the first"
        )
    rest = {name: item for name, item in value.items() if name != "schema_version"}
    try:
        return _adapter().validate_json(json.dumps(rest))
    except ValidationError as error:
        raise DataError(f"{where}: {first_fault(error, 'calibration')}") from None
