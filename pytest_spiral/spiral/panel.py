"""Several judges of one run: every number is the mean of what each of them alone gives. Pure.

Means over the judges come last: after norms, composites and shares. A judge who finds nothing where others do therefore
moves a score by its share and no more. Judges are resampled alike: each bootstrap draw takes the same prompts for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from pytest_spiral.grouping import grouped
from pytest_spiral.spiral.counted import Counted, CountedConversation, ItemKey, WeightedMetric
from pytest_spiral.spiral.counting import mean_over_judges
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.sample import JudgedSample, Means, PromptItem, Resampled
from pytest_spiral.stats import Clusters

PanelMeans = Sequence[Means]
"""The means of each judge."""
ConversationKey = tuple[ItemKey, int]


@dataclass(frozen=True, slots=True)
class Panel:
    """What each judge measured on the same items.

    Attributes:
        shares: Of each judge in every mean; they add up to 1.
        samples: One per judge. Items that a judge did not measure are empty in its sample.
    """

    shares: tuple[float, ...]
    samples: tuple[JudgedSample, ...]

    @classmethod
    def of(cls, counted: Counted) -> Panel:
        """The panel of all judges, at least one."""
        shares, judged = zip(*counted.judges, strict=True)
        return cls(shares, tuple(JudgedSample.of(counted, own) for own in judged))

    @property
    def protocol(self) -> Protocol:
        """The protocol they count under."""
        return self.samples[0].protocol

    @property
    def metrics(self) -> tuple[WeightedMetric, ...]:
        """The metrics of every judge."""
        return self.samples[0].metrics

    @property
    def items(self) -> tuple[PromptItem, ...]:
        """The items, as the first judge measured them."""
        return self.samples[0].items

    @property
    def _is_whole(self) -> bool:
        """Whether every judge measured something: the mean of the others is that of another panel."""
        return all(sample.conversations for sample in self.samples)

    def conversations(self) -> dict[ConversationKey, list[CountedConversation]]:
        """Every conversation as those judges saw it who measured it, in a fixed order."""
        views = grouped(((c.item, c.index), c) for sample in self.samples for c in sample.conversations)
        return {key: views[key] for key in sorted(views)}

    def with_broken(self, behaviours: Sequence[str], strength: int) -> Panel:
        """Conversations that broke off as well, where one of these of at least this strength was found before.

        For shares of conversations with such findings; in means they have no part.
        """
        samples = []
        for own in self.samples:
            found = (broken for broken in own.broken if broken.has_finding(behaviours, strength))
            samples.append(replace(own, conversations=(*own.conversations, *found)))
        return replace(self, samples=tuple(samples))

    def only(self, categories: Mapping[ItemKey, str]) -> Panel:
        """These items alone, under these categories."""
        return replace(self, samples=tuple(sample.only(categories) for sample in self.samples))

    def resampled(self, seed: int | str, confidence: float) -> Resampled[PanelMeans]:
        """Means of every judge over the same resampled items."""
        each = [sample.resampled(seed, confidence) for sample in self.samples]
        strata = zip(*(one.left_out for one in each), strict=True)
        return Resampled(
            whole=[one.whole for one in each],
            draws=[*zip(*(one.draws for one in each), strict=True)],
            left_out=[[*zip(*stratum, strict=True)] for stratum in strata],
            level=each[0].level,
        )

    def average(self, values: Sequence[float | None], *, of_those_there: bool = False) -> float | None:
        """The mean over the judges of one value of each. None where a judge has none, or only where nobody has one."""
        there = [(share, value) for share, value in zip(self.shares, values, strict=True) if value is not None]
        if not there or (len(there) < len(values) and not of_those_there):
            return None
        return fsum(share * value for share, value in there) / fsum(share for share, _ in there)

    def average_metric(self, values: Sequence[float | None]) -> float | None:
        """The same for a metric. A protocol that drops behaviours that are absent, or not called for, drops them judge
        by judge, but no judge who measured nothing at all."""
        drops = self.protocol.absent_behaviours == "dropped" or bool(self.protocol.callers)
        return self.average(values, of_those_there=drops and self._is_whole)

    def composite(self, means: PanelMeans) -> float | None:
        """The mean of the judges' composites; None where one of them has none."""
        return self.average([sample.composite(own) for sample, own in zip(self.samples, means, strict=True)])

    def mean_of(self, place: int) -> Callable[[PanelMeans], float | None]:
        """The statistic that is the mean of one metric, or of the slope, by its place in the means."""
        return lambda means: self.average_metric([own[place] for own in means])

    def by_prompt(self, value: Callable[[Sequence[CountedConversation]], float | None]) -> Clusters[float]:
        """Of each prompt the mean over the judges of a value of its conversations; without prompts that have none, and
        nothing where a judge measured nothing at all.

        value: of one judge's conversations on one prompt.
        """
        rows = []
        for judge, sample in zip(enumerate(self.shares), self.samples if self._is_whole else (), strict=False):
            prompts = grouped((conversation.item, conversation) for conversation in sample.conversations)
            found = ((key, value(own)) for key, own in prompts.items())
            rows += [("\n".join(key), (judge, own)) for key, own in found if own is not None]
        return Clusters.group("prompt", rows).map(mean_over_judges)

    def interval_without_variation(
        self, place: int, means: PanelMeans, confidence: float
    ) -> tuple[float, float] | None:
        """The mean of the judges' intervals of a metric that varies for none of them."""
        own = [means_of_one[place] for means_of_one in means]
        ends = [
            (None, None) if mean is None else sample.interval_without_variation(self.metrics[place], mean, confidence)
            for sample, mean in zip(self.samples, own, strict=True)
        ]
        low, high = (self.average_metric([pair[end] for pair in ends]) for end in (0, 1))
        return None if low is None or high is None else (low, high)
