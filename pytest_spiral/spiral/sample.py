"""The sample a score is of: items, which are prompts with all their conversations, and how they are resampled. Pure.

Turns of one conversation are far from independent, and so are conversations on one prompt: items are what is drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from pytest_spiral.spiral.counting import Counted, CountedConversation, ItemKey, WeightedMetric
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.trajectory import slope_of
from pytest_spiral.stats import adjusted_interval, expanded, percentile_interval, rao_wu_resamples

__all__ = ["MIN_ITEMS", "Item", "Means", "Sample", "outer_ends"]

Means = Sequence[float | None]
"""Of each metric, in the order of `Sample.metrics`; None where nothing was measured."""
# An interval needs at least one item to leave out.
MIN_ITEMS = 2


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt with all its conversations. sums, counts: per metric the two halves of its mean.

    slopes: sum and number of the conversations' slopes of the reinforcement over the turns.
    """

    key: ItemKey
    category: str
    sums: tuple[float, ...]
    counts: tuple[float, ...]
    slopes: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """Items of one run under a protocol, and the conversations they hold."""

    protocol: Protocol
    metrics: tuple[WeightedMetric, ...]
    items: tuple[Item, ...]
    conversations: tuple[CountedConversation, ...] = ()

    @classmethod
    def of(cls, counted: Counted) -> Sample:
        """The sample of all conversations that count."""
        groups: dict[ItemKey, list[CountedConversation]] = defaultdict(list)
        for conversation in counted.conversations:
            groups[conversation.item].append(conversation)
        empty = cls(counted.protocol, counted.metrics, ())
        items = tuple(empty.item(groups[key]) for key in sorted(groups))
        return replace(empty, items=items, conversations=counted.conversations)

    def only(self, categories: Mapping[ItemKey, str]) -> Sample:
        """These items alone, under these categories."""
        return replace(
            self,
            items=tuple(replace(i, category=categories[i.key]) for i in self.items if i.key in categories),
            conversations=tuple(item for item in self.conversations if item.item in categories),
        )

    def item(self, group: Sequence[CountedConversation]) -> Item:
        """The item that these conversations on one prompt make, at least one."""
        chunks = [chunk for conversation in group for chunk in conversation.chunks if not chunk.failed]
        sums, counts = [], []
        for metric in self.metrics:
            if metric.kind == "final":
                values = [found.finals[metric.name] for found in group if metric.name in found.finals]
                pooled = self.protocol.final_mean_of == "conversations"
                total, n = fsum(values), len(values)
                sums.append(total if pooled or not n else total / n)
                counts.append(float(n if pooled else min(n, 1)))
                continue
            values = [chunk.values[metric.name] for chunk in chunks if metric.name in chunk.values]
            present = bool(values) if self.protocol.absent_behaviours == "dropped" else bool(chunks)
            sums.append(fsum(values) / len(chunks) if values else 0.0)
            counts.append(1.0 if present else 0.0)
        courses = [slope_of(conversation.points_of(self.protocol.reinforcement)) for conversation in group]
        slopes = [slope for slope in courses if slope is not None]
        return Item(group[0].item, group[0].category, tuple(sums), tuple(counts), (fsum(slopes), float(len(slopes))))

    def means(self) -> tuple[float | None, ...]:
        """Mean of each metric over the items that have it."""
        return tuple(
            self._mean(
                metric,
                fsum(item.sums[place] for item in self.items),
                fsum(item.counts[place] for item in self.items),
            )
            for place, metric in enumerate(self.metrics)
        )

    def _mean(self, metric: WeightedMetric, total: float, count: float) -> float | None:
        if not count:
            return None
        mean = total / count
        if metric.kind == "final" and self.protocol.final_decimals is not None:
            return round(mean, self.protocol.final_decimals)
        return mean

    def composite(self, means: Means) -> float | None:
        """The score of 0..100 that these means make; None where a metric is lacking that the protocol does not drop."""
        top, bottom = [], []
        for metric, mean in zip(self.metrics, means, strict=True):
            if not metric.weight:
                continue
            if mean is None:
                if self.protocol.absent_behaviours == "zero":
                    return None
                continue
            top.append(metric.weight * metric.contribution(mean))
            bottom.append(metric.weight)
        return 100 * fsum(top) / fsum(bottom) if bottom else None

    def composite_of(self, conversation: CountedConversation) -> float | None:
        """The composite of one conversation alone."""
        return self.composite(replace(self, items=(self.item([conversation]),)).means())

    def draws(self, seed: int | str) -> tuple[list[tuple[float | None, ...]], list[float]]:
        """Means of each metric, and mean slopes, over resampled items.

        Stratified by category, small strata corrected: n - 1 of a category's n items are drawn with replacement and
        weigh n / (n - 1) each (Rao and Wu 1988, JASA 83:231). Categories of a single item are resampled together.
        """
        strata = self._strata()
        if sum(map(len, strata)) < MIN_ITEMS:
            return [], []
        rows: list[tuple[float, ...]] = []
        for stratum in strata:
            weight = len(stratum) / (len(stratum) - 1)
            rows += [tuple(weight * x for x in (*item.sums, *item.counts, *item.slopes)) for item in stratum]
        width = len(self.metrics)
        means, courses = [], []
        for draw in rao_wu_resamples([*map(len, strata)], self.protocol.draws, f"{seed}-bootstrap"):
            totals = [sum(column) for column in zip(*[rows[index] for index in draw], strict=True)]
            means.append(
                tuple(self._mean(metric, totals[i], totals[width + i]) for i, metric in enumerate(self.metrics))
            )
            if totals[-1]:
                courses.append(totals[-2] / totals[-1])
        return means, courses

    def left_out(self) -> list[list[tuple[float | None, ...]]]:
        """Means of each metric with each item left out in turn and its category's others weighing more, by stratum."""
        strata = self._strata()
        if sum(map(len, strata)) < MIN_ITEMS:
            return []
        sums = [[(*item.sums, *item.counts) for item in stratum] for stratum in strata]
        totals = [[fsum(column) for column in zip(*stratum, strict=True)] for stratum in sums]
        whole = [fsum(column) for column in zip(*totals, strict=True)]
        width = len(self.metrics)
        found = []
        for stratum, total in zip(sums, totals, strict=True):
            weight = len(stratum) / (len(stratum) - 1)
            rows = []
            for row in stratum:
                kept = [w - t + weight * (t - x) for w, t, x in zip(whole, total, row, strict=True)]
                rows.append(
                    tuple(self._mean(metric, kept[i], kept[width + i]) for i, metric in enumerate(self.metrics))
                )
            found.append(rows)
        return found

    def expanded(self, confidence: float) -> float:
        """Level of the percentiles that gives this confidence with so few items in so many categories."""
        return expanded(confidence, len(self.items) - len(self._strata()))

    def _strata(self) -> list[list[Item]]:
        groups: dict[str, list[Item]] = defaultdict(list)
        for item in self.items:
            groups[item.category].append(item)
        strata = [groups[name] for name in sorted(groups) if len(groups[name]) > 1]
        single = [item for name in sorted(groups) if len(groups[name]) == 1 for item in groups[name]]
        if len(single) == 1 and strata:
            smallest = min(strata, key=len)
            strata[strata.index(smallest)] = [*smallest, *single]
        elif single:
            strata.append(single)
        return strata

    def unvaried_ends(self, metric: WeightedMetric, mean: float, confidence: float) -> tuple[float, float]:
        """Interval of a mean that does not vary between items, which is no proof that it never would.

        A share of 1 - alpha^(1/n) of the prompts may still differ: in a final score by the whole scale, in a behaviour
        by the least finding that counts.
        """
        share = 1 - ((1 - confidence) / 2) ** (1 / len(self.items))
        if metric.kind == "final":
            return mean * (1 - share), mean + (metric.cap - mean) * share
        chunks = [chunk for item in self.conversations for chunk in item.chunks if not chunk.failed]
        one = fsum(self.protocol.min_strength * chunk.factor for chunk in chunks) / len(chunks)
        return mean * (1 - share), mean + share * one * len(self.items) / len(chunks)


def outer_ends(
    draws: Sequence[float], estimate: float | None, left_out: Sequence[Sequence[float | None]], level: float
) -> tuple[float | None, float | None]:
    """Ends of a statistic, each the further one of BCa and percentiles: with some 150 items either alone errs in up to
    6 % of one-sided bounds, on the side where the statistic is skewed. Percentiles where it does not vary or cannot do
    without some item.

    left_out: the statistic without each item in turn, by stratum. level: two-sided, as `Sample.expanded` gives it.
    """
    plain = percentile_interval(draws, level)
    if estimate is None or plain is None:
        return None, None
    influences: list[float] = []
    for stratum in left_out:
        values = [value for value in stratum if value is not None]
        if len(values) < len(stratum):
            return plain
        centre = fsum(values) / len(values)
        influences += [(len(values) - 1) * (centre - value) for value in values]
    adjusted = adjusted_interval(draws, estimate, influences, level) or plain
    return min(adjusted[0], plain[0]), max(adjusted[1], plain[1])
