"""The sample a score is computed from, and how it is resampled. Pure.

Turns of one conversation are far from independent, and so are conversations on one prompt: an item is a prompt with all
its conversations, and items are what the bootstrap draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, isclose
from statistics import fmean, stdev
from typing import Generic, TypeVar

from pytest_spiral.gates import Measured
from pytest_spiral.grouping import grouped
from pytest_spiral.spiral.counted import Counted, CountedChunk, CountedConversation, ItemKey, WeightedMetric
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.stats import (
    Clusters,
    adjusted_interval,
    bounded_mean,
    expanded,
    percentile_interval,
    rao_wu_resamples,
)

T = TypeVar("T")
U = TypeVar("U")
Means = Sequence[float | None]
"""Of each metric, in the order of `JudgedSample.metrics`, then of the slopes; None where nothing was measured."""
MetricSums = tuple[tuple[float, ...], tuple[float, ...]]
"""Numerators and denominators of an item's means."""
# An interval needs at least one item to leave out.
MIN_ITEMS = 2


@dataclass(frozen=True, slots=True)
class PromptItem:
    """A prompt with all its conversations. category: the stratum of the bootstrap.

    sums, counts: Numerators and denominators of the means, one per metric, and of the slope of the reinforcement over
    the turns: over items, sum(sums) / sum(counts) is the mean.
    """

    key: ItemKey
    category: str
    sums: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BootstrapEstimate:
    """A statistic with the ends of its interval and its standard error, from so many bootstrap draws."""

    value: float | None
    low: float | None
    high: float | None
    se: float | None
    draws: int

    def measured(self, method: str, n: int, *sides: float) -> Measured | None:
        """The same from n items; None without an interval. sides: of a difference, both values."""
        if self.value is None or self.low is None or self.high is None or self.se is None:
            return None
        return Measured(self.value, self.low, self.high, method, self.se, n, *sides)


@dataclass(frozen=True, slots=True)
class Resampled(Generic[T]):
    """What statistics are computed from: means of one sample, or pairs of means of two with the same items.

    Attributes:
        whole: Of all items.
        draws: Of each set of resampled items; empty where there are too few.
        left_out: Without each item in turn, by stratum.
        level: Of percentiles, 0..1: it has the desired two-sided confidence with so few items in so many categories.
    """

    whole: T
    draws: Sequence[T]
    left_out: Sequence[Sequence[T]]
    level: float

    def paired(self, other: Resampled[U]) -> Resampled[tuple[T, U]]:
        """Two samples of the same items, resampled alike."""
        left_out = [[*zip(a, b, strict=True)] for a, b in zip(self.left_out, other.left_out, strict=True)]
        draws = [*zip(self.draws, other.draws, strict=True)]
        return Resampled((self.whole, other.whole), draws, left_out, self.level)

    def estimate(self, statistic: Callable[[T], float | None]) -> BootstrapEstimate:
        """A statistic with the outer ends of its BCa and percentile bootstrap intervals.

        With some 150 items either alone errs in up to 6 % of one-sided bounds, on the side to which the statistic is
        skewed. Percentiles alone where it does not vary or is not defined without some item.
        """
        value = statistic(self.whole)
        draws = [drawn for means in self.draws if (drawn := statistic(means)) is not None]
        percentiles = percentile_interval(draws, self.level)
        if value is None or percentiles is None:
            return BootstrapEstimate(value, None, None, None, len(draws))
        low, high = percentiles
        if (influences := self._influences(statistic)) is not None:
            bca = adjusted_interval(draws, value, influences, self.level) or percentiles
            low, high = min(bca[0], low), max(bca[1], high)
        if low < high:
            # Of a few unequal items, nearly all draws may lie on one side of the value.
            low, high = min(low, value), max(high, value)
        elif not isclose(low, value, abs_tol=1e-9):
            # The statistic is defined for one item alone and not for the others: its draws say nothing about the value.
            return BootstrapEstimate(value, None, None, None, len(draws))
        return BootstrapEstimate(value, low, high, stdev(draws) if len(draws) > 1 else None, len(draws))

    def bounded(
        self, statistic: Callable[[T], float | None], confidence: float, scale: tuple[float, float] = (0.0, 100.0)
    ) -> BootstrapEstimate:
        """The estimate of a number on a scale with ends that hold where few prompts carry it.

        A bootstrap knows no prompt that the sample happens not to contain. Each end is therefore the outer one of its
        own and of the bound that holds for every distribution of what the single items add: the value plus their
        influences. The whole scale where the statistic is not defined without some item.
        """
        found = self.estimate(statistic)
        if found.value is None or found.low is None or found.high is None:
            return found
        least, most = scale
        if (influences := self._influences(statistic)) is None:
            return replace(found, low=least, high=most)
        # Beyond the ends are items whose means are beyond their caps.
        parts = Clusters("prompt", tuple(map(str, range(len(influences)))), tuple(found.value + i for i in influences))
        bounds = bounded_mean(parts, (min(least, *parts.values), max(most, *parts.values)), confidence)
        return replace(found, low=max(least, min(bounds.low, found.low)), high=min(most, max(bounds.high, found.high)))

    def _influences(self, statistic: Callable[[T], float | None]) -> list[float] | None:
        """Of every item, by stratum; None where the statistic is not defined without some item."""
        influences: list[float] = []
        for stratum in self.left_out:
            values = [without for means in stratum if (without := statistic(means)) is not None]
            if len(values) < len(stratum):
                return None
            centre = fmean(values)
            influences += [(len(values) - 1) * (centre - without) for without in values]
        return influences


@dataclass(frozen=True, slots=True)
class JudgedSample:
    """Items of one run under a protocol as one judge saw them, and the conversations they hold."""

    protocol: Protocol
    metrics: tuple[WeightedMetric, ...]
    items: tuple[PromptItem, ...]
    conversations: tuple[CountedConversation, ...] = ()
    broken: tuple[CountedConversation, ...] = ()

    @classmethod
    def of(cls, counted: Counted, judged: Sequence[CountedConversation]) -> JudgedSample:
        """What one judge judged. An item that counts for another judge only is empty."""
        everything = [(c.item, c.index, c.category) for _, seen in counted.judges for c in seen if not c.missing]
        categories = {key: category for key, _, category in sorted(everything, reverse=True)}
        whole, broken = (tuple(c for c in judged if c.missing is missing) for missing in (False, True))
        groups = grouped((conversation.item, conversation) for conversation in whole)
        own = cls(counted.protocol, counted.metrics, (), whole, broken)
        items = (
            PromptItem(key, category, *own.sums(groups.get(key, ()))) for key, category in sorted(categories.items())
        )
        return replace(own, items=tuple(items))

    def only(self, categories: Mapping[ItemKey, str]) -> JudgedSample:
        """These items alone, under these categories."""
        return replace(
            self,
            items=tuple(replace(i, category=categories[i.key]) for i in self.items if i.key in categories),
            conversations=tuple(item for item in self.conversations if item.item in categories),
        )

    def sums(self, conversations: Sequence[CountedConversation]) -> MetricSums:
        """Sums and counts of the item that these conversations on one prompt make."""
        chunks = [chunk for item in conversations for chunk in item.chunks if not chunk.failed]
        sums, counts = [], []
        for metric in self.metrics:
            if metric.kind == "final":
                # Counted once per conversation, or their mean once.
                scores = [item.finals[metric.name] for item in conversations if metric.name in item.finals]
                pooled = bool(scores) and self.protocol.final_mean_of == "prompts"
                sums.append(fsum(scores) / len(scores) if pooled else fsum(scores))
                counts.append(1.0 if pooled else float(len(scores)))
            else:
                # Sum of f(v) over the chunks of all conversations / number of chunks; counted once.
                own = self._chunks_of(metric, chunks)
                values = [chunk.values[metric.name] for chunk in own if metric.name in chunk.values]
                present = values if self.protocol.absent_behaviours == "dropped" else own
                sums.append(fsum(values) / len(own) if values else 0.0)
                counts.append(1.0 if present else 0.0)
        courses = [_slope(c.points_by_turn(self.protocol.reinforcement)) for c in conversations]
        slopes = [slope for slope in courses if slope is not None]
        return (*sums, fsum(slopes) / max(1, len(slopes))), (*counts, float(bool(slopes)))

    def _chunks_of(self, metric: WeightedMetric, chunks: Sequence[CountedChunk]) -> Sequence[CountedChunk]:
        """Those over which the mean of a behaviour is taken; one that stands in for a missing chunk always counts."""
        marks = self.protocol.callers.get(metric.name)
        if marks is None:
            return chunks
        return [chunk for chunk in chunks if not chunk.turns or any(map(chunk.called_for.get, marks))]

    def means(self) -> Means:
        """Means over the items that have something to average."""
        if not self.items:
            return [None] * (len(self.metrics) + 1)
        return self._means(_totals([(*item.sums, *item.counts) for item in self.items]))

    def mean_of_all(self, place: int) -> float | None:
        """The mean of a behaviour over all items that were measured, 0 where it is absent."""
        judged = {conversation.item for conversation in self.conversations}
        return fsum(item.sums[place] for item in self.items) / len(judged) if judged else None

    def _means(self, totals: Sequence[float]) -> Means:
        """totals: of the items' sums, then of their counts."""
        half = len(totals) // 2
        means = [total / count if count else None for total, count in zip(totals[:half], totals[half:], strict=True)]
        if self.protocol.final_decimals is not None:
            for place, metric in enumerate(self.metrics):
                if metric.kind == "final" and (mean := means[place]) is not None:
                    means[place] = round(mean, self.protocol.final_decimals)
        return means

    def composite(self, means: Means) -> float | None:
        """100 * sum(weight * contribution) / sum(weight) of these means.

        None where a metric has no mean, unless the protocol drops such metrics from both sums, or nothing calls for it.
        """
        weighted, weights = [], []
        for metric, mean in zip(self.metrics, means, strict=False):
            if not metric.weight:
                continue
            if mean is not None:
                weighted.append(metric.weight * metric.contribution(mean))
                weights.append(metric.weight)
            elif self.protocol.absent_behaviours == "zero" and metric.name not in self.protocol.callers:
                return None
        return 100 * fsum(weighted) / fsum(weights) if weights else None

    def composite_of(self, conversation: CountedConversation) -> float | None:
        """The composite of one conversation alone."""
        sums, counts = self.sums([conversation])
        return self.composite(self._means((*sums, *counts)))

    def resampled(self, seed: int | str, confidence: float) -> Resampled[Means]:
        """Means over resampled items, and without each item in turn.

        Stratified by category, small strata corrected: n - 1 of a category's n items are drawn with replacement, or
        left, and weigh n / (n - 1) each. Categories of a single item are resampled together.

        Source:
            Rao and Wu 1988, JASA 83:231.
        """
        strata = self._strata()
        level = expanded(confidence, len(self.items) - len(strata))
        if sum(map(len, strata)) < MIN_ITEMS:
            return Resampled(self.means(), [], [], level)
        weights = [len(stratum) / (len(stratum) - 1) for stratum in strata]
        rows = [[(*item.sums, *item.counts) for item in stratum] for stratum in strata]
        weighted = [tuple(weight * x for x in row) for weight, own in zip(weights, rows, strict=True) for row in own]
        draws = [
            self._means([sum(column) for column in zip(*[weighted[index] for index in draw], strict=True)])
            for draw in rao_wu_resamples([*map(len, strata)], self.protocol.draws, f"{seed}-bootstrap")
        ]
        totals = [_totals(own) for own in rows]
        whole = _totals(totals)
        left_out = [
            [self._means([w - t + weight * (t - x) for w, t, x in zip(whole, total, row, strict=True)]) for row in own]
            for weight, own, total in zip(weights, rows, totals, strict=True)
        ]
        return Resampled(self.means(), draws, left_out, level)

    def _strata(self) -> list[list[PromptItem]]:
        groups = grouped((item.category, item) for item in self.items)
        strata = [groups[name] for name in sorted(groups) if len(groups[name]) > 1]
        singles = [groups[name][0] for name in sorted(groups) if len(groups[name]) == 1]
        if len(singles) == 1 and strata:
            smallest = min(strata, key=len)
            strata[strata.index(smallest)] = [*smallest, *singles]
        elif singles:
            strata.append(singles)
        return strata

    def interval_without_variation(self, metric: WeightedMetric, mean: float, confidence: float) -> tuple[float, float]:
        """Interval of a mean that does not vary between items, which does not prove that it never would.

        With n items alike, a share of 1 - alpha^(1/n) of all prompts may still differ: in a final score by the whole
        scale, in a behaviour by the weakest finding that counts.
        """
        judged = len({conversation.item for conversation in self.conversations})
        share = 1 - ((1 - confidence) / 2) ** (1 / judged)
        if metric.kind == "final":
            return mean * (1 - share), mean + (metric.cap - mean) * share
        judged_chunks = [chunk for item in self.conversations for chunk in item.chunks if not chunk.failed]
        chunks = self._chunks_of(metric, judged_chunks)
        weakest = fmean(self.protocol.min_strength * chunk.factor for chunk in chunks)
        return mean * (1 - share), mean + share * weakest * judged / len(chunks)


def _totals(rows: Sequence[Sequence[float]]) -> list[float]:
    return [fsum(column) for column in zip(*rows, strict=True)]


def _slope(points: Sequence[tuple[int, float]]) -> float | None:
    """Least-squares slope of points over turns; None for fewer than two turns."""
    if len(points) < 2:
        return None
    mean_x = fsum(x for x, _ in points) / len(points)
    mean_y = fsum(y for _, y in points) / len(points)
    spread = fsum((x - mean_x) ** 2 for x, _ in points)
    return fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else None
