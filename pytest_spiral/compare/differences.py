"""How far two models differ, unit by unit: the estimates and intervals on which gates against a baseline act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_spiral.errors import DataError
from pytest_spiral.gates import Measured, Sample, measure_difference
from pytest_spiral.gates.estimate import TWO_SIDED, Z_ONE_SIDED
from pytest_spiral.report.model.comparison import MetricDifference, ModelComparison
from pytest_spiral.spiral.aggregate import paired_differences
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.stats import mcnemar, minimum_detectable_difference, pair, sign_flip
from pytest_spiral.tempaffect.card_metrics import CardMetrics, bootstrap_draws, metric_names
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import Item, Mode

__all__ = ["compare_conversations", "compare_items"]


def compare_items(
    models: tuple[str, str],
    mode: Mode,
    items: tuple[Sequence[Item], Sequence[Item]],
    expected: Mapping[str, str],
    seed: int,
) -> ModelComparison:
    """Compare two TempAffect cards, paired by scenario with all epochs inside.

    Beside the interval stands McNemar's exact test for rates of single measurements, the sign-flip permutation test for
    means. Detectors are properties of whole suites and are left out.

    Args:
        models: Model of the baseline and of the candidate.
        mode: Prompting mode of both.
        items: Items of the baseline and of the candidate.
        expected: Family by scenario id.
        seed: Of the resampling.
    """
    baseline, candidate = (CardMetrics(one, expected) for one in items)
    metrics = {}
    for metric in metric_names():
        if not metric.startswith("detectors.") and metric != "skill":
            row = _sample_difference(baseline.sample(metric), candidate.sample(metric), seed)
            if row is not None:
                metrics[metric] = row
    pairing = pair(baseline.sample("score").units, candidate.sample("score").units)
    return ModelComparison(
        suite="tempaffect",
        baseline=models[0],
        candidate=models[1],
        mode=mode,
        unit="scenario",
        paired=len(pairing.pairs),
        only_baseline=pairing.only_first,
        only_candidate=pairing.only_second,
        metrics=metrics,
    )


def _sample_difference(baseline: Sample, candidate: Sample, seed: int) -> MetricDifference | None:
    resamples = load_params().intervals.resamples
    measured = measure_difference(candidate, baseline, None, lambda n: bootstrap_draws(n, resamples, seed))
    if measured is None or measured.n < 2:
        return None
    pairs = pair(baseline.units, candidate.units).pairs
    if baseline.binary and candidate.binary:
        return _row(measured, mcnemar(pairs.map(lambda both: (bool(both[0]), bool(both[1])))), "exact McNemar")
    p = sign_flip(pairs.map(lambda both: both[1] - both[0]), f"{seed}-sign-flip")
    return _row(measured, p, "sign-flip permutation")


def compare_conversations(
    models: tuple[str, str],
    conversations: tuple[Sequence[Conversation], Sequence[Conversation]],
    protocol: Protocol,
    seed: int,
) -> ModelComparison:
    """Compare two Spiral-Bench scores under one protocol, every bootstrap draw with the same prompts in both.

    Args:
        models: Model of the baseline and of the candidate.
        conversations: Conversations of the baseline and of the candidate.
        protocol: How both are scored.
        seed: Of the bootstrap.

    Raises:
        DataError: Where a common prompt id stands for different openings, or no measured prompt is common.
    """
    baseline, candidate = conversations
    _check_openings(baseline, candidate)
    found = paired_differences(candidate, baseline, protocol, seed=seed, confidence=TWO_SIDED)
    if not found.prompts:
        raise DataError(f"{models[0]} and {models[1]} have no measured prompt in common")
    n = len(found.prompts)
    return ModelComparison(
        suite="spiral",
        baseline=models[0],
        candidate=models[1],
        mode=None,
        unit="prompt",
        paired=n,
        only_baseline=found.only_second,
        only_candidate=found.only_first,
        metrics={
            name: _row(Measured(row.value, row.low, row.high, row.method, row.se, n, row.first, row.second))
            for name, row in found.differences.items()
        },
    )


def _check_openings(baseline: Sequence[Conversation], candidate: Sequence[Conversation]) -> None:
    mine, theirs = ({one.prompt_id: one.prompts[:1] for one in run} for run in (baseline, candidate))
    # A record without openings cannot be checked.
    different = [n for n in sorted(mine) if any(mine[n]) and any(theirs.get(n, ())) and mine[n] != theirs[n]]
    if different:
        names = ", ".join(different[:5])
        raise DataError(f"the runs cannot be compared: different openings under the same prompt id: {names}")


def _row(measured: Measured, p: float | None = None, test: str | None = None) -> MetricDifference:
    assert measured.candidate is not None
    assert measured.baseline is not None
    # Where no two units differ the standard error is 0, but the interval still has a width.
    se = measured.se or (measured.high - measured.low) / (2 * Z_ONE_SIDED)
    return MetricDifference(
        baseline=measured.baseline,
        candidate=measured.candidate,
        difference=measured.value,
        low=measured.low,
        high=measured.high,
        method=measured.method,
        differs=not measured.low <= 0 <= measured.high,
        mde=minimum_detectable_difference(se),
        p=p,
        test=test,
    )
