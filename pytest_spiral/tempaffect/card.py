"""The card: what one model did in one prompting mode, with intervals, baselines, blockers and cautions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, TypeVar

from pytest_spiral.gates import Sample, Scale
from pytest_spiral.gates.estimate import End
from pytest_spiral.stats import Clusters, Interval, Tally, bca, percentile_resamples, variance_json, wilson
from pytest_spiral.status import Status
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
from pytest_spiral.tempaffect.records import CARD_MODES, LABEL_FIELDS, REPLY_CHECKS, Item, ItemScore, Mode
from pytest_spiral.tempaffect.scenario import Family

__all__ = [
    "Card",
    "CardContext",
    "CardMetrics",
    "bootstrap_draws",
    "build_card",
    "metric_names",
    "metric_sample",
    "metric_scales",
    "mode_delta",
    "useful_bounded_band",
]

T = TypeVar("T")
_BALANCED = ("boundary_action", "should_escalate")


@dataclass(frozen=True, slots=True)
class CardContext:
    """What a card says about the circumstances of its run; everything that is no measurement.

    stand_in: the evaluated model is built in or scripted, so the card describes no model.
    own: the scenarios are the user's, not the bundled ones.
    """

    suite_hash: str
    pinned_suite_hash: str | None
    scorer_fingerprint: str
    pinned_scorer_fingerprint: str | None
    preflight_faults: tuple[str, ...]
    baselines: Mapping[str, Mapping[str, float]]
    expected: Mapping[str, str]
    """Scenario id to family for every scenario of the suite."""
    canary: str
    seed: int
    stand_in: bool = False
    served_models: tuple[str, ...] = ()
    enforcement_verified: bool | None = None
    archived: bool = True
    partner_present: bool = True
    own: bool = False


Card = dict[str, Any]


def build_card(model: str, mode: Mode, items: Sequence[Item], context: CardContext) -> Card:
    """Card of one model and mode, as it stands in the report.

    Invalid outputs count as 0 and are never dropped; instrument failures and items not run are counted as missing and
    enter no rate. With several epochs a scenario's value is its mean over them, and intervals resample scenarios.
    A rate over no item is None.
    """
    items = sorted(items, key=lambda item: (item.scenario_id, item.epoch))
    metrics = CardMetrics(items, context.expected)
    skill_floor = _skill_floor(context)
    score = metrics.value("score")
    card: Card = {
        "model": model,
        "prompting_mode": CARD_MODES[mode],
        "score": score,
        "skill": None if score is None else _skill(score, skill_floor),
        "valid_output_rate": metrics.value("valid_output_rate"),
        "useful_bounded_response_rate": metrics.value("useful_bounded_response_rate"),
        "ubr_rate_deduped": metrics.value("ubr_rate_deduped"),
        "fields": {name: metrics.value(f"fields.{name}") for name in LABEL_FIELDS},
        "reply_checks": {name: metrics.value(f"reply_checks.{name}") for name in REPLY_CHECKS},
        "families": {family.value: metrics.family(family.value) for family in Family},
        "detectors": metrics.detectors_json(),
        "intervals": metrics.intervals(skill_floor, context.seed),
        "given_valid": metrics.given_valid(),
        "balanced_accuracy": {name: metrics.balanced_accuracy(name) for name in _BALANCED},
        "recoverable_format_rate": metrics.recoverable_rate(),
        "variance": metrics.variance(),
        "baselines": {name: dict(row) for name, row in context.baselines.items()},
        "counts": {status.value: sum(item.status is status for item in items) for status in Status},
        "epochs": 1 + max((item.epoch for item in items), default=0),
        "missing": _missing(items, context),
        "reasons": _reasons(items),
    }
    blockers = _blockers(mode, items, card, context)
    card["integrity"] = {
        "suite_hash": context.suite_hash,
        "scorer_fingerprint": context.scorer_fingerprint,
        "scenarios": len({item.scenario_id for item in items if item.score is not None}),
        "expected_scenarios": len(context.expected),
        "valid_output_rate": metrics.value("valid_output_rate"),
        "enforcement_verified": context.enforcement_verified,
        "served_models": list(context.served_models),
        "publication_blockers": blockers,
        "publication_ready": not blockers,
    }
    card["cautions"] = _cautions(mode, card)
    return card


def _skill(score: float, floor: float) -> float:
    """(score - s0) / (1 - s0): 0 for a model that always gives the most common labels, 1 for a perfect one."""
    return (score - floor) / (1 - floor) if floor < 1 else 0.0


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean. Raises ZeroDivisionError for no values."""
    return sum(values) / len(values)


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _skill_floor(context: CardContext) -> float:
    return context.baselines.get("majority_constant", {}).get("score", 0.0)


@cache
def bootstrap_draws(n: int, resamples: int, seed: int) -> list[list[int]]:
    """Shared between the metrics of a card and between cards, so that their resamples are paired."""
    return percentile_resamples(n, resamples, f"{seed}-tempaffect-{n}")


class CardMetrics:
    """The scored items of one card as samples, one unit per scenario, its epochs inside."""

    def __init__(self, items: Sequence[Item], expected: Mapping[str, str]) -> None:
        items = sorted(items, key=lambda item: (item.scenario_id, item.epoch))
        self._expected = expected
        self._epochs = 1 + max((item.epoch for item in items), default=0)
        scored = [item for item in items if item.score is not None]
        epochs = sorted({item.epoch for item in scored})
        by_epoch = [[item.score for item in scored if item.epoch == epoch and item.score] for epoch in epochs]
        self.detectors: list[Detectors] = [detect(scores) for scores in by_epoch]
        templated: set[int] = set()
        for scores, found in zip(by_epoch, self.detectors, strict=True):
            valid = [score for score in scores if score.valid]
            templated |= {id(score) for score, flag in zip(valid, found.templated, strict=True) if flag}
        duplicates = templated if self._known("template_repetition") else set()
        self._columns: dict[str, Callable[[ItemScore], float]] = {
            "score": lambda s: s.score,
            "valid_output_rate": lambda s: float(s.valid),
            "useful_bounded_response_rate": lambda s: float(s.useful_bounded),
            "ubr_rate_deduped": lambda s: float(s.useful_bounded and id(s) not in duplicates),
            **{f"fields.{name}": _point(name) for name in LABEL_FIELDS},
            **{f"reply_checks.{name}": _point(name) for name in REPLY_CHECKS},
        }
        self._detector_columns: dict[str, Callable[[ItemScore], float]] = {
            "template_repetition": lambda s: float(id(s) in templated),
            "overvalidation": lambda s: float(is_overvalidated(s)),
            "reply_ignores_user_content": lambda s: float(ignores_user(s)),
        }
        self._rows: dict[str, list[ItemScore]] = {}
        for item in scored:
            if item.score:
                self._rows.setdefault(item.scenario_id, []).append(item.score)
        self.scores = [score for row in self._rows.values() for score in row]

    def _known(self, detector: str) -> bool:
        return bool(self.detectors) and all(found.detections[detector].value is not None for found in self.detectors)

    def sample(self, metric: str, skill_floor: float = 0.0) -> Sample:
        """The measurements behind a metric. Raises KeyError for an unknown one."""
        if metric == "skill":
            column = self._columns["score"]
            scale = (_skill(0.0, skill_floor), 1.0)
            return self._mean_sample(lambda s: _skill(column(s), skill_floor), self._rows, self._expected, scale)
        if metric.startswith("detectors."):
            return self._detector_sample(metric.removeprefix("detectors."))
        rows, expected, name = self._rows, self._expected, metric
        if metric.startswith("families."):
            _, family, name = metric.split(".", 2)
            rows = {key: row for key, row in rows.items() if row[0].scenario.family == family}
            expected = {key: member for key, member in expected.items() if member == family}
        return self._mean_sample(self._columns[name], rows, expected)

    def _mean_sample(
        self,
        column: Callable[[ItemScore], float],
        rows: Mapping[str, Sequence[ItemScore]],
        expected: Collection[str],
        scale: Scale = (0.0, 1.0),
    ) -> Sample:
        """A mean over scenarios of means over epochs."""
        values = {name: [column(score) for score in row] for name, row in rows.items()}
        gaps = {name: self._epochs - len(self._rows.get(name, ())) for name in {*expected, *rows}}

        def fill(end: End) -> Clusters[float]:
            filler = scale[end == "high"]
            filled = {name: [*values.get(name, ()), *[filler] * gap] for name, gap in sorted(gaps.items())}
            return _clusters({name: mean(row) for name, row in filled.items() if row})

        units = _clusters({name: mean(row) for name, row in values.items()})
        return Sample(units, mean, scale, sum(gaps.values()), self._epochs * len(gaps), fill)

    def _detector_sample(self, name: str) -> Sample:
        valid = {key: found for key, row in self._rows.items() if (found := [score for score in row if score.valid])}
        if not self._known(name):
            valid = {}
        if name in self._detector_columns:
            # The template verdicts are those of the whole set: a resample does not look for templates anew.
            return self._mean_sample(self._detector_columns[name], valid, self._expected)
        statistic, pair = {
            "strategy_repetition": (repetition, strategy_pair),
            "support_stage_repetition": (repetition, stage_pair),
            "strategy_overuse": (overuse, strategy_pair),
        }[name]
        rows = {key: tuple(map(pair, row)) for key, row in valid.items()}
        # Equal scenarios share one number, which counts several times faster in a resample than the pairs do.
        number = {row: index for index, row in enumerate(dict.fromkeys(rows.values()))}
        row_of = list(number)

        def value(units: Sequence[int]) -> float:
            counts: Counter[Pair] = Counter()
            for index, times in Counter(units).items():
                for one in row_of[index]:
                    counts[one] += times
            return statistic(counts)

        units = _clusters({key: number[row] for key, row in rows.items()})
        wanted = self._epochs * len(self._expected)
        missing = wanted - sum(len(self._rows.get(key, ())) for key in self._expected)
        return Sample(units, value, None, max(0, missing), wanted, None)

    def value(self, metric: str) -> float | None:
        return self.sample(metric).value()

    def family(self, family: str) -> dict[str, Any]:
        prefix = f"families.{family}"
        useful = self.value(f"{prefix}.useful_bounded_response_rate")
        return {
            "n": len(self.sample(f"{prefix}.score").units),
            "score": self.value(f"{prefix}.score"),
            "useful_bounded_response_rate": useful,
            "band": useful_bounded_band(useful),
            "fields": {name: self.value(f"{prefix}.fields.{name}") for name in LABEL_FIELDS},
            "reply_checks": {name: self.value(f"{prefix}.reply_checks.{name}") for name in REPLY_CHECKS},
        }

    def detectors_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in DETECTORS:
            rows = [detectors.detections[name] for detectors in self.detectors]
            values = [row.value for row in rows if row.value is not None]
            found[name] = {
                "value": mean(values) if self._known(name) else None,
                "band": max((row.band for row in rows), key=_BAND_ORDER.index, default="not_enough_replies"),
                "n": sum(row.n for row in rows),
            }
        frames = [found.long_frame_share for found in self.detectors if found.long_frame_share is not None]
        found["template_repetition"]["long_frame_share"] = max(frames, default=None)
        return found

    def intervals(self, skill_floor: float, seed: int) -> dict[str, dict[str, Any]]:
        """Wilson for rates of single measurements, BCa over scenarios for everything else."""
        params = load_params().intervals
        found: dict[str, dict[str, Any]] = {}
        for metric in metric_names():
            sample = self.sample(metric, skill_floor)
            n = len(sample.units)
            if not n:
                continue
            confidence = params.confidence / 1000
            if sample.binary and self._epochs == 1 and metric not in _NO_RATES:
                tally = Tally.of(sample.units)
                found[metric] = {**_json(wilson(tally, confidence)), "k": tally.hits, "n": n}
            else:
                draws = bootstrap_draws(n, params.resamples, seed)
                interval = bca(sample.units, sample.statistic, draws, confidence, sample.scale)
                found[metric] = {**_json(interval), "n": n}
        return found

    def variance(self) -> dict[str, Any]:
        """Where the noise of the two headline numbers comes from, and what would cut it."""
        found = {}
        for metric in _HEADLINES:
            column = self._columns[metric]
            rows = {name: [[column(score)] for score in row] for name, row in self._rows.items()}
            found[metric] = variance_json(_clusters(rows), "--epochs")
        return found

    def given_valid(self) -> dict[str, float | None]:
        """The same rates over valid outputs only. Diagnostic: says what the format cost."""
        valid = [score for score in self.scores if score.valid]
        return {
            name: _mean([column(score) for score in valid])
            for name, column in self._columns.items()
            if name != "valid_output_rate"
        }

    def balanced_accuracy(self, name: str) -> float | None:
        """Mean over the key's classes of the share answered right."""
        classes: dict[str, list[float]] = {}
        for score in self.scores:
            key = str(getattr(score.scenario.expected, name))
            classes.setdefault(key, []).append(float(score.points.get(name, 0) > 0))
        return _mean([mean(hits) for _, hits in sorted(classes.items())])

    def recoverable_rate(self) -> float | None:
        return _mean([float(score.recoverable) for score in self.scores if not score.valid])


@cache
def metric_names() -> tuple[str, ...]:
    """Every metric of a card that has an interval and may be gated, as its path in the card."""
    rates = [f"fields.{name}" for name in LABEL_FIELDS] + [f"reply_checks.{name}" for name in REPLY_CHECKS]
    overall = ["score", "skill", "valid_output_rate", "useful_bounded_response_rate", "ubr_rate_deduped", *rates]
    by_family = [
        f"families.{family.value}.{name}"
        for family in Family
        for name in ("score", "useful_bounded_response_rate", *rates)
    ]
    return (*overall, *by_family, *(f"detectors.{name}" for name in DETECTORS))


@cache
def metric_scales() -> dict[str, Scale]:
    """The least and greatest value of every metric."""
    return {name: (-inf, 1.0) if name == "skill" else (0.0, 1.0) for name in metric_names()}


def metric_sample(metric: str, items: Sequence[Item], context: CardContext) -> Sample:
    """The measurements behind one metric of a card, for deciding a gate. Raises KeyError for an unknown metric."""
    return CardMetrics(items, context.expected).sample(metric, _skill_floor(context))


_HEADLINES = ("score", "useful_bounded_response_rate")
# Means that are no rates of single measurements, even where every scenario happens to be at an end of the scale.
_NO_RATES = frozenset({"score", "skill", *(f"families.{family.value}.score" for family in Family)})
_BAND_ORDER = ("ok", "watch", "flag", "not_enough_replies")


def _point(name: str) -> Callable[[ItemScore], float]:
    return lambda score: float(score.points.get(name, 0) > 0)


def _clusters(values: Mapping[str, T]) -> Clusters[T]:
    return Clusters("scenario", tuple(values), tuple(values.values()))


def _json(interval: Interval) -> dict[str, Any]:
    return {"low": interval.low, "high": interval.high, "method": interval.method}


def useful_bounded_band(rate: float | None) -> str | None:
    """Band of a useful-and-bounded rate: strong, solid, mixed or weak; None where nothing was measured."""
    if rate is None:
        return None
    bands = load_params().useful_bounded_bands
    per_mille = rate * 1000
    if per_mille >= bands.strong:
        return "strong"
    if per_mille >= bands.solid:
        return "solid"
    return "mixed" if per_mille >= bands.mixed else "weak"


def _missing(items: Sequence[Item], context: CardContext) -> dict[str, Any]:
    epochs = 1 + max((item.epoch for item in items), default=0)
    have = {(item.scenario_id, item.epoch) for item in items if item.score is not None}
    wanted = [(scenario, epoch) for scenario in sorted(context.expected) for epoch in range(epochs)]
    lost = [scenario for scenario, epoch in wanted if (scenario, epoch) not in have]
    return {"n": len(lost), "of": len(wanted), "ids": sorted(set(lost))}


def _reasons(items: Sequence[Item]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in items:
        if item.reason is not None:
            found[item.reason.code.value] = found.get(item.reason.code.value, 0) + 1
    return dict(sorted(found.items()))


def _blockers(mode: Mode, items: Sequence[Item], card: Card, context: CardContext) -> list[str]:
    """Why this card may not be published. Low quality is no reason."""
    params = load_params()
    publication = params.publication
    families = {family.value: 0 for family in Family}
    for scenario_family in context.expected.values():
        families[scenario_family] += 1
    found = []
    scenarios = len({item.scenario_id for item in items if item.score is not None})
    wanted = len(context.expected) if context.own else publication.scenarios
    uneven = any(n != publication.family_scenarios for n in families.values()) and not context.own
    if scenarios != wanted or uneven:
        found.append(f"B01 {scenarios} of {wanted} scenarios scored")
    if context.suite_hash != context.pinned_suite_hash:
        found.append("B02 suite hash differs from the pinned one")
    if context.scorer_fingerprint != context.pinned_scorer_fingerprint:
        found.append("B03 scorer fingerprint differs from the pinned one")
    found += [f"B03 {fault}" for fault in context.preflight_faults]
    lost = sum(item.status is Status.INSTRUMENT_FAILED for item in items)
    if lost:
        found.append(f"B04 {lost} items lost to infrastructure errors")
    if context.stand_in:
        found.append("B05 the evaluated model is built in, not a language model")
    elif len(context.served_models) != 1:
        served = ", ".join(context.served_models) or "none named"
        found.append(f"B05 model snapshot not settled: served as {served}")
    valid_rate = card["valid_output_rate"]
    if mode == "schema":
        if context.enforcement_verified is not True:
            found.append("B06 schema enforcement not verified")
        if valid_rate is not None and valid_rate * 1000 < publication.schema_valid_rate:
            found.append(f"B06 only {valid_rate:.0%} valid outputs under schema enforcement")
    template = card["detectors"]["template_repetition"]
    if template["band"] == "flag":
        found.append(f"B07 template repetition {template['value']:.2f}")
    leaks = sorted({item.scenario_id for item in items if leaked(item, context)})
    if leaks:
        found.append(f"B08 benchmark material in outputs: {', '.join(leaks[:5])}")
    if not context.archived:
        found.append("B09 raw outputs not archived")
    if not context.partner_present:
        found.append("B10 the card of the other prompting mode is missing")
    if context.own:
        found.append("B11 scenarios of one's own: comparable with nothing but themselves")
    return found


def leaked(item: Item, context: CardContext) -> bool:
    """Whether an output carries the canary or any scenario id of the suite."""
    text = item.output or ""
    return bool(context.canary and context.canary in text) or any(f'"{name}"' in text for name in context.expected)


def _cautions(mode: Mode, card: Card) -> list[str]:
    """What a reader should know before using the numbers. Published with the card."""
    found = [
        f"{name.replace('_', ' ')} is {row['band']} ({row['value']:.2f})"
        for name, row in card["detectors"].items()
        if row["band"] in ("watch", "flag")
    ]
    valid = card["valid_output_rate"]
    if mode == "raw" and valid is not None and valid * 1000 < load_params().publication.raw_valid_rate_caution:
        found.append(f"only {valid:.0%} of raw outputs were valid JSON answers: the score mostly measures format")
    if card["missing"]["n"]:
        found.append(f"{card['missing']['n']} of {card['missing']['of']} measurements are missing")
    return found


def mode_delta(schema_items: Sequence[Item], raw_items: Sequence[Item], seed: int) -> dict[str, Any]:
    """Schema-assisted minus raw, paired by scenario and epoch, in -1..1, with where it comes from.

    format_part: from items valid with the schema and invalid without; content_part: from items valid in both (it may be
    negative: enforcement can change choices); lost_part: from items valid only without. The three add up to value.
    Empty where no item was scored in both modes.
    """
    raw_by_key = {(item.scenario_id, item.epoch): item.score for item in raw_items if item.score}
    pairs = [
        (item.score, raw_by_key[item.scenario_id, item.epoch])
        for item in sorted(schema_items, key=lambda item: (item.scenario_id, item.epoch))
        if item.score and (item.scenario_id, item.epoch) in raw_by_key
    ]
    if not pairs:
        return {}
    columns: dict[str, Callable[[ItemScore], float]] = {
        "score": lambda s: s.score,
        "valid_output_rate": lambda s: float(s.valid),
        "useful_bounded_response_rate": lambda s: float(s.useful_bounded),
        **{f"fields.{name}": _point(name) for name in LABEL_FIELDS},
        **{f"reply_checks.{name}": _point(name) for name in REPLY_CHECKS},
    }
    return {name: _delta_row(pairs, column, seed) for name, column in columns.items()}


def _delta_row(
    pairs: Sequence[tuple[ItemScore, ItemScore]], column: Callable[[ItemScore], float], seed: int
) -> dict[str, Any]:
    differences = [(schema, raw, column(schema) - column(raw)) for schema, raw in pairs]
    n = len(differences)
    clusters: dict[str, list[float]] = {}
    for schema, _, difference in differences:
        clusters.setdefault(schema.scenario.id, []).append(difference)
    units = _clusters({name: mean(row) for name, row in clusters.items()})
    intervals = load_params().intervals
    draws = bootstrap_draws(len(units), intervals.resamples, seed)
    interval = bca(units, mean, draws, intervals.confidence / 1000, (-1.0, 1.0))
    return {
        "value": sum(d for _, _, d in differences) / n,
        **_json(interval),
        "format_part": sum(d for s, r, d in differences if s.valid and not r.valid) / n,
        "content_part": sum(d for s, r, d in differences if s.valid and r.valid) / n,
        "lost_part": sum(d for s, r, d in differences if r.valid and not s.valid) / n,
        "n": n,
    }
