"""The metrics of a card: names, the measurements behind each, intervals, and differences between the two modes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property, lru_cache, partial
from math import inf
from typing import TypeVar

from pytest_spiral.gates import Sample, Scale
from pytest_spiral.gates.estimate import End
from pytest_spiral.report.model.parts import Attempt, directly
from pytest_spiral.report.model.tempaffect import DeltaMetric, MetricInterval
from pytest_spiral.stats import MOST_RESAMPLED, Clusters, Interval, Tally, bca, percentile_resamples, wilson
from pytest_spiral.tempaffect.detectors import (
    DETECTORS,
    Detectors,
    Pair,
    detect,
    ignores_user,
    is_overvalidated,
    overuse,
    repetition,
    stage_pair,
    strategy_pair,
)
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import LABEL_FIELDS, REPLY_CHECKS, Item, ItemScore, ReplyChecks
from pytest_spiral.tempaffect.scenario import Expected, Family, Scenario

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean. Raises ZeroDivisionError for no values."""
    return sum(values) / len(values)


def _point(name: str) -> Callable[[ItemScore], float]:
    return lambda score: float(score.points.get(name, 0) > 0)


def _decided(read: Callable[[ReplyChecks], object]) -> Callable[[ItemScore], float]:
    return lambda score: float(score.checks is not None and bool(read(score.checks)))


_DECISION_METRICS: Mapping[str, Callable[[ItemScore], float | None]] = {
    "useful_bounded_response_rate": lambda score: float(bool(score.useful_bounded)),
    "right_decision": _decided(lambda checks: checks.decision and checks.decision.right),
    "boundary_held": _decided(lambda checks: checks.boundary_held),
    # An invalid output has no label.
    "label_reply_mismatch": lambda score: float(score.mismatch is not None) if score.valid else None,
}
OUTPUT_METRICS: Mapping[str, Callable[[ItemScore], float | None]] = {
    "score": lambda score: score.score,
    "valid_output_rate": lambda score: float(score.valid),
    **_DECISION_METRICS,
    **{f"fields.{name}": _point(name) for name in LABEL_FIELDS},
    **{f"reply_checks.{name}": _point(name) for name in REPLY_CHECKS},
}
"""What one output contributes to each metric that is a mean over outputs, in 0..1; None where it says nothing of it."""
WHOLE_METRICS = tuple(name for name in OUTPUT_METRICS if "." not in name)
"""Those of an output as a whole: the keys of a card."""

_DETECTOR_STATISTICS: Mapping[str, tuple[Callable[[Counter[Pair]], float], Callable[[ItemScore], Pair]]] = {
    "strategy_repetition": (repetition, strategy_pair),
    "support_stage_repetition": (repetition, stage_pair),
    "strategy_overuse": (overuse, strategy_pair),
}
_DETECTOR_RATES: Mapping[str, Callable[[ItemScore], float]] = {
    "detectors.overvalidation": lambda score: float(is_overvalidated(score)),
    "detectors.reply_ignores_user_content": lambda score: float(ignores_user(score)),
}


@cache
def metric_names() -> tuple[str, ...]:
    """Every metric of a card that has an interval and may be gated, as its path in the card."""
    parts = [name for name in OUTPUT_METRICS if "." in name]
    of_families = [name for name in OUTPUT_METRICS if name != "valid_output_rate"]
    return (
        *(*WHOLE_METRICS, "skill", "ubr_rate_deduped", *parts),
        *(f"families.{family.value}.{name}" for family in Family for name in of_families),
        *(f"detectors.{name}" for name in DETECTORS),
    )


def needs_decisions(metric: str) -> bool:
    """Whether a metric has no value for scenarios without a decision key."""
    return metric == "ubr_rate_deduped" or metric.rpartition(".")[2] in _DECISION_METRICS


def applies_to(metric: str, key: Expected) -> bool:
    """Whether a scenario with this key is measured by a metric: decisions need a decision key, boundaries one drawn."""
    drawn = key.boundary_action != "continue_helping" or not metric.endswith("boundary_held")
    return not needs_decisions(metric) or (key.decision is not None and drawn)


def needs_detectors(metric: str) -> bool:
    """Whether a metric has no value where the detectors have none."""
    return metric == "ubr_rate_deduped" or metric.startswith("detectors.")


@cache
def metric_scales() -> dict[str, Scale]:
    """The lowest and the highest possible value of every metric."""
    return {name: (-inf, 1.0) if name == "skill" else (0.0, 1.0) for name in metric_names()}


@lru_cache(maxsize=8)
def bootstrap_draws(n: int, seed: int) -> list[memoryview[int]]:
    """Index lists of a bootstrap, shared between metrics and cards so that their resamples are paired.

    None for more units than are resampled.
    """
    resamples = load_params().intervals.resamples
    return [] if n > MOST_RESAMPLED else percentile_resamples(n, resamples, f"{seed}-tempaffect-{n}")


@dataclass(frozen=True, slots=True)
class ScoredOutput:
    """A scored output of one epoch."""

    epoch: int
    score: ItemScore


ColumnReader = Callable[[ScoredOutput], float | None]
Rows = Mapping[str, Sequence[ScoredOutput]]


class CardMetrics:
    """The scored items of one card as samples: one unit per scenario, with all its epochs.

    Attributes:
        rows: Scored outputs by scenario id, sorted by id and epoch.
    """

    def __init__(
        self,
        items: Iterable[Item],
        scenarios: Mapping[str, Scenario],
        skill_floor: float = 0.0,
        never_asked: Iterable[str] = (),
    ) -> None:
        """Prepare the samples.

        Args:
            items: The card's items; those without a score count as missing.
            scenarios: Every scenario that was to be asked, by id.
            skill_floor: The score that counts as no skill, in 0..1.
            never_asked: Ids of further scenarios that were to be asked and of which nothing else is known.

        Raises:
            DataError: For a scored item whose scenario is not among `scenarios`.
        """
        ordered = sorted(items, key=lambda item: (item.id, item.epoch))
        self.epochs = 1 + max((item.epoch for item in ordered), default=0)
        self._skill_floor = skill_floor
        self._scenarios: dict[str, Scenario | None] = {**dict.fromkeys(never_asked), **scenarios}
        rows: dict[str, list[ScoredOutput]] = {}
        by_epoch: dict[int, list[ItemScore]] = {}
        for item in ordered:
            if (score := item.scored(scenarios)) is not None:
                rows.setdefault(item.id, []).append(ScoredOutput(item.epoch, score))
                by_epoch.setdefault(item.epoch, []).append(score)
        self.rows: Rows = rows
        self._by_epoch = dict(sorted(by_epoch.items()))
        self._gaps = {name: self.epochs - len(rows.get(name, ())) for name in sorted(self._scenarios)}
        self._near = cache(self._nearness)

    @cached_property
    def detectors(self) -> tuple[Detectors, ...]:
        """The detectors of each epoch that has a scored output."""
        return tuple(map(detect, self._by_epoch.values()))

    def _nearness(self, most: bool | None) -> Callable[[ScoredOutput], float]:
        """Whether the reply of an output is a near-duplicate of others of the same epoch.

        most: with missing replies that make as many of them near-duplicates as possible, or as few; None for without.
        """
        found: set[tuple[int, str]] = set()
        for (epoch, scores), known in zip(self._by_epoch.items(), self.detectors, strict=True):
            seen = known if most is None else detect(scores, max(0, len(self._scenarios) - len(scores)), most)
            found.update((epoch, one.scenario.id) for one, near in zip(scores, seen.templated, strict=True) if near)
        return lambda output: float((output.epoch, output.score.scenario.id) in found)

    @property
    def outputs(self) -> list[ScoredOutput]:
        """All scored outputs."""
        return [output for row in self.rows.values() for output in row]

    def value(self, metric: str) -> float | None:
        """The metric; None where nothing was measured. Raises KeyError for an unknown one."""
        return self.sample(metric).value()

    def sample(self, metric: str) -> Sample:
        """The measurements behind a metric. Raises KeyError for an unknown one."""
        prefix, _, name = metric.partition(".")
        if prefix == "detectors":
            return self._detector_sample(metric)
        rows, gaps, scenarios = self.rows, self._gaps, self._scenarios
        if prefix == "families":
            family, _, metric = name.partition(".")
            if family not in {each.value for each in Family}:
                raise KeyError(family)
            gaps = {name: gap for name, gap in gaps.items() if (one := scenarios[name]) and one.family == family}
            rows = {name: row for name, row in rows.items() if name in gaps}
        if needs_decisions(metric):
            # What a metric says nothing about is no missing measurement of it.
            keys = {name: one.expected for name, one in scenarios.items() if one}
            gaps = {name: gap for name, gap in gaps.items() if name not in keys or applies_to(metric, keys[name])}
        return self._mean_sample(metric, rows, gaps, (self.skill(0.0) if metric == "skill" else 0.0, 1.0))

    def column(self, metric: str, end: End | None = None) -> ColumnReader:
        """What one output contributes to a metric. Raises KeyError for a metric that is no mean over outputs.

        end: with missing replies of the kind that brings the metric there.
        """
        if metric == "skill":
            return lambda output: self.skill(output.score.score)
        if metric == "detectors.template_repetition":
            # Templates are those of the whole set: a resample does not look for templates anew.
            return self._near(end and end == "high")
        if metric == "ubr_rate_deduped":
            useful, near = self.column("useful_bounded_response_rate"), self._near(end and end == "low")
            return lambda output: 0.0 if (value := useful(output)) and near(output) else value
        of_score = OUTPUT_METRICS.get(metric) or _DETECTOR_RATES[metric]
        if not needs_decisions(metric):
            return lambda output: of_score(output.score)
        return lambda output: of_score(output.score) if applies_to(metric, output.score.scenario.expected) else None

    def skill(self, score: float) -> float:
        """(score - floor) / (1 - floor): 0 for always giving the most common labels, 1 for a perfect model."""
        floor = self._skill_floor
        return (score - floor) / (1 - floor) if floor < 1 else 0.0

    def _mean_sample(self, metric: str, rows: Rows, gaps: Mapping[str, int], scale: Scale) -> Sample:
        """A mean over scenarios of means over epochs. gaps: missing epochs by scenario."""

        def units(end: End | None = None) -> Clusters[float]:
            column, means = self.column(metric, end), dict[str, float]()
            for name in rows if end is None else gaps:
                # A list at a time: many that live on for a while are what the garbage collector spends its time on.
                told = [value for value in map(column, rows.get(name, ())) if value is not None]
                if row := told if end is None else [*told, *[scale[end == "high"]] * gaps[name]]:
                    means[name] = mean(row)
            return scenario_clusters(means)

        return Sample(units(), mean, scale, sum(gaps.values()), self.epochs * len(gaps), units)

    def _detector_sample(self, metric: str) -> Sample:
        name = metric.removeprefix("detectors.")
        known = any(found.detections[name].value is not None for found in self.detectors)
        answered = {key: [output for output in row if output.score.valid] for key, row in self.rows.items()}
        valid = {key: row for key, row in answered.items() if row and known}
        if name not in _DETECTOR_STATISTICS:
            return self._mean_sample(metric, valid, self._gaps, (0.0, 1.0))
        statistic, pair_of = _DETECTOR_STATISTICS[name]
        pairs = {key: tuple(pair_of(output.score) for output in row) for key, row in valid.items()}
        # A resample counts equal scenarios, by their number, several times faster than it would count the pairs.
        distinct = list(dict.fromkeys(pairs.values()))
        number = {row: index for index, row in enumerate(distinct)}

        def value(units: Sequence[int]) -> float:
            counts: Counter[Pair] = Counter()
            for index, times in Counter(units).items():
                for pair in distinct[index]:
                    counts[pair] += times
            return statistic(counts)

        units = scenario_clusters({key: number[row] for key, row in pairs.items()})
        return Sample(units, value, None, max(0, sum(self._gaps.values())), self.epochs * len(self._gaps), None)

    def intervals(self, seed: int, names: Iterable[str], attempt: Attempt = directly) -> dict[str, MetricInterval]:
        """Confidence intervals by metric: Wilson for rates of single measurements, BCa over scenarios otherwise.

        Args:
            seed: Seed of the bootstrap.
            names: The metrics.
            attempt: Makes each of them.
        """
        found = {name: attempt(f"intervals.{name}", partial(self._interval, name, seed)) for name in names}
        return {name: interval for name, interval in found.items() if interval is not None}

    def _interval(self, metric: str, seed: int) -> MetricInterval | None:
        sample = self.sample(metric)
        n = len(sample.units)
        if not n:
            return None
        # Scores are no rates of single measurements, even where every scenario happens to be at an end of the scale.
        is_rate = metric.rpartition(".")[2] not in ("score", "skill")
        if sample.binary and self.epochs == 1 and is_rate:
            tally = Tally.of(sample.units)
            found = wilson(tally, load_params().intervals.confidence / 1000)
            return MetricInterval(low=found.low, high=found.high, method=found.method, n=n, k=tally.hits)
        found = resampled_interval(sample.units, sample.statistic, seed, sample.scale)
        least, most = metric_scales()[metric]
        return MetricInterval(low=max(found.low, least), high=min(found.high, most), method=found.method, n=n)


def scenario_clusters(values: Mapping[str, T]) -> Clusters[T]:
    """One value per scenario, by id."""
    return Clusters("scenario", tuple(values), tuple(values.values()))


def resampled_interval(
    units: Clusters[H], statistic: Callable[[Sequence[H]], float], seed: int, scale: tuple[float, float] | None
) -> Interval:
    """The interval of a statistic over scenarios that a card gives it. scale: the ends that it cannot leave."""
    confidence = load_params().intervals.confidence / 1000
    # The draws of a large suite take a second for each number of units, and equal units need none.
    draws = bootstrap_draws(len(units), seed) if len(set(units.values)) > 1 else ()
    return bca(units, statistic, draws, confidence, scale)


def mode_delta(
    schema_items: Sequence[Item], raw_items: Sequence[Item], scenarios: Mapping[str, Scenario], seed: int
) -> dict[str, DeltaMetric]:
    """Differences by metric, paired by scenario and epoch; empty where no item was scored in both modes.

    The content part may be negative: enforcement can change choices.

    Args:
        schema_items: A model's items with the schema enforced.
        raw_items: The same model's items with the prompt alone.
        scenarios: The scenarios asked, by id.
        seed: Seed of the bootstrap.
    """
    schema, raw = (
        {(item.id, item.epoch): score for item in items if (score := item.scored(scenarios)) is not None}
        for items in (schema_items, raw_items)
    )
    pairs = [(schema[key], raw[key]) for key in sorted(schema.keys() & raw)]
    deltas = {name: _delta(name, pairs, seed) for name in OUTPUT_METRICS}
    return {name: delta for name, delta in deltas.items() if delta is not None}


def _delta(metric: str, pairs: Iterable[tuple[ItemScore, ItemScore]], seed: int) -> DeltaMetric | None:
    column = OUTPUT_METRICS[metric]
    # By scenario, each difference with whether the output is valid with the schema and without it.
    rows: defaultdict[str, list[tuple[tuple[bool, bool], float]]] = defaultdict(list)
    for schema, raw in pairs:
        a, b = column(schema), column(raw)
        if a is not None and b is not None and applies_to(metric, schema.scenario.expected):
            rows[schema.scenario.id].append(((schema.valid, raw.valid), a - b))
    if not rows:
        return None
    units = scenario_clusters({name: mean([difference for _, difference in row]) for name, row in rows.items()})
    parts: defaultdict[tuple[bool, bool], float] = defaultdict(float)
    for row in rows.values():
        for validity, difference in row:
            parts[validity] += difference / len(row) / len(rows)
    found = resampled_interval(units, mean, seed, (-1.0, 1.0))
    return DeltaMetric(
        **asdict(found),
        value=mean(units.values),
        format_part=parts[True, False],
        content_part=parts[True, True],
        lost_part=parts[False, True],
        n=sum(map(len, rows.values())),
    )
