"""Two runs side by side: whether they may be compared at all, and how far they differ, unit by unit. Pure.

Only runs of the same suite, protocol, prompts, seeker and judges are compared; whatever else differs between two
numbers would be read as a difference between two models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_spiral.errors import DataError
from pytest_spiral.gates import Sample
from pytest_spiral.spiral.aggregate import paired_differences
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.stats import (
    Clusters,
    Interval,
    bca,
    bounded_mean,
    mcnemar,
    minimum_detectable_difference,
    pair,
    sign_flip,
    standard_error,
)
from pytest_spiral.tempaffect.card_metrics import CardMetrics, bootstrap_draws, mean, metric_names
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import Item, Mode

__all__ = [
    "ComparedMetric",
    "Comparison",
    "RecordedRun",
    "check_comparable",
    "compare_conversations",
    "compare_items",
    "comparison_json",
    "counterpart",
]


@dataclass(frozen=True)
class RecordedRun:
    """A finished run as far as comparing needs it.

    identity: by suite, what decides the measurements, by name; a value of None is not recorded. expected: TempAffect
    scenario ids with their families. items, conversations: by model and mode, and by model.
    """

    path: str
    id: str
    identity: Mapping[str, Mapping[str, str | None]]
    expected: Mapping[str, str]
    items: Mapping[tuple[str, Mode], Sequence[Item]]
    conversations: Mapping[str, Sequence[Conversation]]

    def models(self, suite: str) -> tuple[str, ...]:
        """Models measured in a suite, in order."""
        names = self.conversations if suite == "spiral" else {model for model, _ in self.items}
        return tuple(sorted(names))


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """First minus second on one metric.

    low, high: two-sided 95 % interval of the difference. differs: it leaves 0 out. p: of the test named in `test`,
    where there is one. mde: the difference that such a comparison finds in four of five (alpha .05, two-sided).
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    method: str
    mde: float
    p: float | None = None
    test: str | None = None

    @property
    def differs(self) -> bool:
        return not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model against one other in one suite (and mode), on the units that both have."""

    suite: str
    first: str
    second: str
    mode: Mode | None
    unit: str
    paired: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    metrics: Mapping[str, ComparedMetric]


def check_comparable(
    suite: str, first: Mapping[str, str | None], second: Mapping[str, str | None], where: tuple[str, str]
) -> list[str]:
    """Fields of the two identities that one side does not record. Raises `DataError` naming all fields that differ."""
    names = sorted({*first, *second})
    different = [
        f"{suite}.{name} ({_shown(first[name])} and {_shown(second[name])})"
        for name in names
        if first.get(name) is not None and second.get(name) is not None and first[name] != second[name]
    ]
    if different:
        raise DataError(f"{where[0]} and {where[1]} cannot be compared: they differ in {', '.join(different)}")
    return [f"{suite}.{name}" for name in names if first.get(name) is None or second.get(name) is None]


def _shown(value: str | None) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 else text[:60]


def counterpart(model: str, run: RecordedRun, suite: str) -> str:
    """The model of a recorded run to compare `model` with: of the same name, or the only one there is.

    Raises `DataError` where that leaves none or several.
    """
    known = run.models(suite)
    if model in known:
        return model
    if len(known) == 1:
        return known[0]
    if not known:
        raise DataError(f"{run.path}: holds nothing of {suite}")
    raise DataError(f"{run.path}: none of its models is {model}; it has {', '.join(known)}")


def compare_items(
    names: tuple[str, str],
    mode: Mode,
    first: Sequence[Item],
    second: Sequence[Item],
    expected: Mapping[str, str],
    seed: int,
) -> Comparison:
    """Two TempAffect cards, paired by scenario with all epochs inside.

    Rates of single measurements: the bounded mean and McNemar's exact test; everything else: BCa over the paired
    differences and the sign-flip permutation test. Detectors are no matter of single scenarios and are left out.
    """
    sides = [CardMetrics(items, expected) for items in (first, second)]
    found: dict[str, ComparedMetric] = {}
    for metric in metric_names():
        if metric.startswith("detectors.") or metric == "skill":
            continue
        row = _compare_samples(sides[0].sample(metric), sides[1].sample(metric), seed)
        if row is not None:
            found[metric] = row
    units, only_first, only_second = pair(sides[0].sample("score").units, sides[1].sample("score").units)
    return Comparison("tempaffect", *names, mode, "scenario", units.ids, only_first, only_second, found)


def _compare_samples(first: Sample, second: Sample, seed: int) -> ComparedMetric | None:
    pairs, _, _ = pair(first.units, second.units)
    differences: Clusters[float] = pairs.map(lambda both: both[0] - both[1])
    se = standard_error(differences)
    if se is None:
        return None
    binary = all(value in (0.0, 1.0) for both in pairs.values for value in both)
    interval: Interval
    if binary:
        answers = pairs.map(lambda both: (bool(both[0]), bool(both[1])))
        interval, p, test = bounded_mean(differences, (-1.0, 1.0)), mcnemar(answers), "exact McNemar"
    else:
        draws = bootstrap_draws(len(pairs), load_params().intervals.resamples, seed)
        interval = bca(differences, mean, draws, scale=(-1.0, 1.0))
        p, test = sign_flip(differences, f"{seed}-sign-flip"), "sign-flip permutation"
    a, b = (mean([both[place] for both in pairs.values]) for place in (0, 1))
    mde = minimum_detectable_difference(se or _unvaried_se(interval))
    return ComparedMetric(a, b, a - b, interval.low, interval.high, interval.method, mde, p, test)


def _unvaried_se(interval: Interval) -> float:
    """Where no two units differ the interval still has a width, and a standard error that goes with it."""
    return (interval.high - interval.low) / (2 * 1.96)


def compare_conversations(
    names: tuple[str, str],
    first: Sequence[Conversation],
    second: Sequence[Conversation],
    protocol: Protocol,
    seed: int,
) -> Comparison:
    """Two Spiral scores under one protocol, both bootstrapped with the same resampled prompts.

    Raises `DataError` where a common prompt begins differently, or no prompt is common.
    """
    _check_openings(first, second)
    found = paired_differences(first, second, protocol, seed=seed)
    if not found.prompts:
        raise DataError(f"{names[0]} and {names[1]} have no measured prompt in common")
    metrics = {
        name: ComparedMetric(
            row.first,
            row.second,
            row.value,
            row.low,
            row.high,
            row.method,
            minimum_detectable_difference(row.se or (row.high - row.low) / (2 * 1.96)),
        )
        for name, row in found.differences.items()
    }
    return Comparison("spiral", *names, None, "prompt", found.prompts, found.only_first, found.only_second, metrics)


def _check_openings(first: Sequence[Conversation], second: Sequence[Conversation]) -> None:
    openings = [{talk.prompt_id: _opening(talk) for talk in run} for run in (first, second)]
    other = sorted(
        name
        for name in openings[0]
        if name in openings[1] and "" not in (openings[0][name], openings[1][name])
        if openings[0][name] != openings[1][name]
    )
    if other:
        raise DataError(f"the runs cannot be compared: other text under the same prompt id: {', '.join(other[:5])}")


def _opening(talk: Conversation) -> str:
    return talk.prompts[0] or "" if talk.prompts else ""


def comparison_json(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON values."""
    return {
        "suite": found.suite,
        "first": found.first,
        "second": found.second,
        "mode": found.mode,
        "unit": found.unit,
        "paired": len(found.paired),
        "only_first": list(found.only_first),
        "only_second": list(found.only_second),
        "metrics": {
            name: {
                "first": row.first,
                "second": row.second,
                "difference": row.difference,
                "low": row.low,
                "high": row.high,
                "method": row.method,
                "differs": row.differs,
                "mde": row.mde,
                "p": row.p,
                "test": row.test,
            }
            for name, row in found.metrics.items()
        },
    }
