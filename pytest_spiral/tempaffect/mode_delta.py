"""What the enforced JSON schema changes: schema-assisted minus raw, and where the difference comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_spiral.report.model.tempaffect import DeltaMetric
from pytest_spiral.stats import Clusters, bca
from pytest_spiral.tempaffect.card_metrics import OUTPUT_METRICS, bootstrap_draws, mean
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import Item, ItemScore
from pytest_spiral.tempaffect.scenario import Scenario

_Pairs = Sequence[tuple[ItemScore, ItemScore]]


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
    return {name: _delta(pairs, column, seed) for name, column in OUTPUT_METRICS.items() if pairs}


def _delta(pairs: _Pairs, column: Callable[[ItemScore], float], seed: int) -> DeltaMetric:
    differences = [(schema, raw, column(schema) - column(raw)) for schema, raw in pairs]
    n = len(differences)
    units = Clusters.group("scenario", ((schema.scenario.id, d) for schema, _, d in differences)).map(mean)
    params = load_params().intervals
    draws = bootstrap_draws(len(units), params.resamples, seed)
    interval = bca(units, mean, draws, params.confidence / 1000, (-1.0, 1.0))
    return DeltaMetric(
        value=sum(d for _, _, d in differences) / n,
        low=interval.low,
        high=interval.high,
        method=interval.method,
        format_part=sum(d for schema, raw, d in differences if schema.valid and not raw.valid) / n,
        content_part=sum(d for schema, raw, d in differences if schema.valid and raw.valid) / n,
        lost_part=sum(d for schema, raw, d in differences if raw.valid and not schema.valid) / n,
        n=n,
    )
