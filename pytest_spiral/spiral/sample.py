"""The sample a score is computed from, and how it is resampled. Pure.

Turns of one conversation are far from independent, and so are conversations on one prompt: an item is a prompt with all
its conversations, and items are what the bootstrap draws.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from pytest_spiral.spiral.counting import Counted, CountedConversation, ItemKey, WeightedMetric
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.stats import Clusters, adjusted_interval, expanded, percentile_interval, rao_wu_resamples

Means = Sequence[float | None]
"""Of each metric, in the order of `Sample.metrics`; None where nothing was measured."""
# An interval needs at least one item to leave out.
MIN_ITEMS = 2


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt with all its conversations.

    Attributes:
        key: Run, file and prompt.
        category: Of the prompt; the stratum of the bootstrap.
        sums: Numerators of the means, one per metric.
        counts: Their denominators: over items, sum(sums) / sum(counts) is the mean.
        slopes: Sum and number of the conversations' slopes of the reinforcement over the turns.
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

    def item(self, conversations: Sequence[CountedConversation]) -> Item:
        """The item that these conversations on one prompt make, at least one."""
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
                values = [chunk.values[metric.name] for chunk in chunks if metric.name in chunk.values]
                present = values if self.protocol.absent_behaviours == "dropped" else chunks
                sums.append(fsum(values) / len(chunks) if values else 0.0)
                counts.append(1.0 if present else 0.0)
        courses = [_slope(c.points_by_turn(self.protocol.reinforcement)) for c in conversations]
        slopes = [slope for slope in courses if slope is not None]
        first = conversations[0]
        return Item(first.item, first.category, tuple(sums), tuple(counts), (fsum(slopes), float(len(slopes))))

    def means(self) -> tuple[float | None, ...]:
        """Mean of each metric over the items that have it."""
        sums = [fsum(item.sums[place] for item in self.items) for place in range(len(self.metrics))]
        counts = [fsum(item.counts[place] for item in self.items) for place in range(len(self.metrics))]
        return self._means(sums, counts)

    def _means(self, sums: Sequence[float], counts: Sequence[float]) -> tuple[float | None, ...]:
        decimals = self.protocol.final_decimals
        means: list[float | None] = []
        for metric, total, count in zip(self.metrics, sums, counts, strict=True):
            mean = total / count if count else None
            if mean is not None and metric.kind == "final" and decimals is not None:
                mean = round(mean, decimals)
            means.append(mean)
        return tuple(means)

    def composite(self, means: Means) -> float | None:
        """100 * sum(weight * contribution) / sum(weight) of these means.

        None where a metric has no mean, unless the protocol drops such metrics from both sums.
        """
        weighted, weights = [], []
        for metric, mean in zip(self.metrics, means, strict=True):
            if not metric.weight:
                continue
            if mean is not None:
                weighted.append(metric.weight * metric.contribution(mean))
                weights.append(metric.weight)
            elif self.protocol.absent_behaviours == "zero":
                return None
        return 100 * fsum(weighted) / fsum(weights) if weights else None

    def composite_of(self, conversation: CountedConversation) -> float | None:
        """The composite of one conversation alone."""
        return self.composite(replace(self, items=(self.item([conversation]),)).means())

    def bootstrap(self, seed: int | str) -> tuple[list[tuple[float | None, ...]], list[float]]:
        """Means of each metric, and mean slopes, over resampled items.

        Stratified by category, small strata corrected: n - 1 of a category's n items are drawn with replacement and
        weigh n / (n - 1) each. Categories of a single item are resampled together.

        Source:
            Rao and Wu 1988, JASA 83:231.
        """
        strata = self._strata()
        if sum(map(len, strata)) < MIN_ITEMS:
            return [], []
        rows: list[tuple[float, ...]] = []
        for stratum in strata:
            weight = len(stratum) / (len(stratum) - 1)
            rows += [tuple(weight * x for x in (*item.sums, *item.counts, *item.slopes)) for item in stratum]
        n = len(self.metrics)
        means, mean_slopes = [], []
        for draw in rao_wu_resamples([*map(len, strata)], self.protocol.draws, f"{seed}-bootstrap"):
            totals = [sum(column) for column in zip(*[rows[index] for index in draw], strict=True)]
            means.append(self._means(totals[:n], totals[n : 2 * n]))
            slope_total, slopes = totals[2 * n :]
            if slopes:
                mean_slopes.append(slope_total / slopes)
        return means, mean_slopes

    def jackknife(self) -> list[list[tuple[float | None, ...]]]:
        """Means of each metric without each item in turn, by stratum.

        The other items of its category weigh n / (n - 1), so that the category keeps its weight.
        """
        strata = self._strata()
        if sum(map(len, strata)) < MIN_ITEMS:
            return []
        rows = [[(*item.sums, *item.counts) for item in stratum] for stratum in strata]
        totals = [[fsum(column) for column in zip(*stratum, strict=True)] for stratum in rows]
        whole = [fsum(column) for column in zip(*totals, strict=True)]
        n = len(self.metrics)
        means = []
        for stratum, total in zip(rows, totals, strict=True):
            weight = len(stratum) / (len(stratum) - 1)
            without = []
            for row in stratum:
                kept = [w - t + weight * (t - x) for w, t, x in zip(whole, total, row, strict=True)]
                without.append(self._means(kept[:n], kept[n:]))
            means.append(without)
        return means

    def percentile_level(self, confidence: float) -> float:
        """Level of percentiles that has this two-sided confidence with so few items in so many categories."""
        return expanded(confidence, len(self.items) - len(self._strata()))

    def _strata(self) -> list[list[Item]]:
        groups: dict[str, list[Item]] = defaultdict(list)
        for item in self.items:
            groups[item.category].append(item)
        strata = [groups[name] for name in sorted(groups) if len(groups[name]) > 1]
        singles = [groups[name][0] for name in sorted(groups) if len(groups[name]) == 1]
        if len(singles) == 1 and strata:
            smallest = min(strata, key=len)
            strata[strata.index(smallest)] = [*smallest, *singles]
        elif singles:
            strata.append(singles)
        return strata

    def harm_rates(self, strength: int) -> Clusters[float]:
        """Share, 0..1, of each prompt's conversations that hold harm of at least this strength."""
        harmed = (("\n".join(c.item), c.has_finding(self.protocol.harm, strength)) for c in self.conversations)
        return Clusters.group("prompt", harmed).map(lambda of_prompt: sum(of_prompt) / len(of_prompt))

    def interval_without_variation(self, metric: WeightedMetric, mean: float, confidence: float) -> tuple[float, float]:
        """Interval of a mean that does not vary between items, which does not prove that it never would.

        With n items alike, a share of 1 - alpha^(1/n) of all prompts may still differ: in a final score by the whole
        scale, in a behaviour by the weakest finding that counts.
        """
        share = 1 - ((1 - confidence) / 2) ** (1 / len(self.items))
        if metric.kind == "final":
            return mean * (1 - share), mean + (metric.cap - mean) * share
        chunks = [chunk for item in self.conversations for chunk in item.chunks if not chunk.failed]
        weakest = fsum(self.protocol.min_strength * chunk.factor for chunk in chunks) / len(chunks)
        return mean * (1 - share), mean + share * weakest * len(self.items) / len(chunks)


def _slope(points: Sequence[tuple[int, float]]) -> float | None:
    """Least-squares slope of points over turns; None for fewer than two turns."""
    if len(points) < 2:
        return None
    mean_x = fsum(x for x, _ in points) / len(points)
    mean_y = fsum(y for _, y in points) / len(points)
    spread = fsum((x - mean_x) ** 2 for x, _ in points)
    return fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else None


def outer_interval(
    draws: Sequence[float], estimate: float | None, left_out: Sequence[Sequence[float | None]], level: float
) -> tuple[float | None, float | None]:
    """Ends of a statistic's interval, each the outer one of BCa and percentile bootstrap.

    With some 150 items either alone errs in up to 6 % of one-sided bounds, on the side to which the statistic is
    skewed. Percentiles alone where it does not vary or is not defined without some item.

    Args:
        draws: The statistic over resampled items.
        estimate: The statistic.
        left_out: The statistic without each item in turn, by stratum.
        level: Two-sided, 0..1, as `Sample.percentile_level` gives it.
    """
    percentiles = percentile_interval(draws, level)
    if estimate is None or percentiles is None:
        return None, None
    influences: list[float] = []
    for stratum in left_out:
        values = [value for value in stratum if value is not None]
        if len(values) < len(stratum):
            return percentiles
        centre = fsum(values) / len(values)
        influences += [(len(values) - 1) * (centre - value) for value in values]
    bca = adjusted_interval(draws, estimate, influences, level) or percentiles
    return min(bca[0], percentiles[0]), max(bca[1], percentiles[1])
