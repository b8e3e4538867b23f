"""Differences of two runs on the prompts that both have, every bootstrap draw with the same prompts in both. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from operator import itemgetter
from statistics import stdev

from pytest_spiral.spiral.counting import STRONGEST, MissingAs, count_conversations
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation, Origin
from pytest_spiral.spiral.sample import MIN_ITEMS, Means, Sample, outer_interval
from pytest_spiral.stats import bounded_mean, pair, standard_error

_Statistic = Callable[[Means], float | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """First minus second run on one metric.

    Attributes:
        value: The difference.
        low: Lower end of its two-sided interval.
        high: Upper end.
        se: Its standard error.
        method: Of the interval.
        first: The first run's value.
        second: The second run's value.
    """

    value: float
    low: float
    high: float
    se: float
    method: str
    first: float
    second: float


@dataclass(frozen=True, slots=True)
class Paired:
    """Two runs on the prompts that both have.

    Attributes:
        prompts: Measured in both.
        only_first: Measured in the first run alone; part of no difference.
        only_second: The same of the second run.
        differences: By metric, `score` and the `tails.` metrics among them.
    """

    prompts: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    differences: Mapping[str, Difference]


def paired_differences(
    first: Sequence[Conversation],
    second: Sequence[Conversation],
    protocol: Protocol | str = "per-10k-chars",
    *,
    seed: int | str = 1,
    confidence: float = 0.95,
    missing_as: tuple[MissingAs, MissingAs] = ("ignored", "ignored"),
) -> Paired:
    """Differences of two runs under one protocol, every bootstrap draw with the same prompts in both.

    Prompts pair by their name, whatever file or run they come from.

    Args:
        first: Conversations of one run.
        second: Conversations of the other.
        protocol: Or the name of a shipped one.
        seed: Of the bootstrap.
        confidence: Two-sided, 0..1, of the intervals.
        missing_as: As in `score_conversations`, per run.
    """
    samples = []
    for run, case in zip((first, second), missing_as, strict=True):
        # Without run and file, so that prompts pair by name.
        by_prompt = [replace(item, origin=Origin(prompt_key=item.origin.prompt_key)) for item in run]
        samples.append(Sample.of(count_conversations(by_prompt, protocol, case)))
    own = [{item.key: item.category for item in sample.items} for sample in samples]
    common = {key: own[0][key] for key in own[0] if key in own[1]}
    a, b = (sample.only(common) for sample in samples)
    return Paired(
        prompts=tuple(key[2] for key in common),
        only_first=tuple(key[2] for key in own[0] if key not in common),
        only_second=tuple(key[2] for key in own[1] if key not in common),
        differences={**_of_means(a, b, seed, confidence), **_of_tails(a, b, confidence)} if common else {},
    )


def _of_means(first: Sample, second: Sample, seed: int | str, confidence: float) -> dict[str, Difference]:
    """Differences of composite and means of two samples of the same items."""
    level = first.percentile_level(confidence)
    means = first.means(), second.means()
    draws = list(zip(first.bootstrap(seed)[0], second.bootstrap(seed)[0], strict=True))
    left_out = [list(zip(a, b, strict=True)) for a, b in zip(first.jackknife(), second.jackknife(), strict=True)]

    def difference(of: _Statistic, of_other: _Statistic) -> Difference | None:
        def gap(pair: tuple[Means, Means]) -> float | None:
            mine, theirs = of(pair[0]), of_other(pair[1])
            return None if mine is None or theirs is None else mine - theirs

        mine, theirs = of(means[0]), of_other(means[1])
        gaps = [value for value in map(gap, draws) if value is not None]
        if mine is None or theirs is None or len(gaps) < 2:
            return None
        without_item = [[gap(pair) for pair in stratum] for stratum in left_out]
        low, high = outer_interval(gaps, mine - theirs, without_item, level)
        assert low is not None
        assert high is not None
        method = f"outer of paired BCa and percentile, {len(gaps)} cluster bootstrap draws"
        return Difference(mine - theirs, low, high, stdev(gaps), method, mine, theirs)

    differences = {"score": difference(first.composite, second.composite)}
    places = {metric.name: place for place, metric in enumerate(second.metrics)}
    for i, metric in enumerate(first.metrics):
        j = places.get(metric.name)
        if j is None:
            continue
        row = difference(itemgetter(i), itemgetter(j))
        if row is not None and row.low == row.high:
            mine = first.interval_without_variation(metric, row.first, confidence)
            theirs = second.interval_without_variation(second.metrics[j], row.second, confidence)
            row = replace(row, low=mine[0] - theirs[1], high=mine[1] - theirs[0])
        differences[metric.name] = row
    return {name: row for name, row in differences.items() if row is not None}


def _of_tails(first: Sample, second: Sample, confidence: float) -> dict[str, Difference]:
    """Differences of the shares of conversations with harm."""
    result = {}
    for name, strength in (("tails.any_strength3_harm", STRONGEST), ("tails.any_harm", 1)):
        units, _, _ = pair(first.harm_rates(strength), second.harm_rates(strength))
        if len(units) < MIN_ITEMS:
            continue
        differences = units.map(lambda both: both[0] - both[1])
        interval = bounded_mean(differences, (-1.0, 1.0), confidence)
        se = standard_error(differences) or 0.0
        mine, theirs = (fsum(both[i] for both in units.values) / len(units) for i in (0, 1))
        result[name] = Difference(mine - theirs, interval.low, interval.high, se, interval.method, mine, theirs)
    return result
