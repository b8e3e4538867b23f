"""How stable composites and their order are under other weights. Pure: the draws are the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import exp, fsum, log
from random import Random
from typing import Annotated

from pydantic import Field

from pytest_spiral.report.model.spiral import OrderStability, ProtocolScore, WeightRange, WeightStability
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.toml_tables import Count, Table, Text, read_table


class _Perturbation(Table):
    draws: Annotated[int, Field(ge=100, le=10_000)]
    factor: Annotated[float, Field(gt=1, le=10)]
    seed: Text
    coverage: Count


@cache
def _perturbation() -> _Perturbation:
    return read_table(_Perturbation, data_root() / "spiral" / "weights.toml")


def weight_stability(scores: Sequence[ProtocolScore]) -> WeightStability | None:
    """Of scores under one protocol: their ranges under perturbed weights, and how often pairs keep their order or tie.

    A score that was not measured is left out; None without any. The composite is 100 * sum(w * c) / sum(w) of the
    contributions c, which weights do not change.
    """
    rows = [score for score in scores if score.score is not None]
    if not rows:
        return None
    data, random = _perturbation(), Random(_perturbation().seed)
    weights = {name: metric.weight for score in rows for name, metric in sorted(score.metrics.items())}
    drawn: list[list[float]] = [[] for _ in rows]
    for _ in range(data.draws):
        changed = {name: weight * exp(random.gauss(0, 1) * log(data.factor)) for name, weight in weights.items()}
        for own, score in zip(drawn, rows, strict=True):
            own.append(_composite(score, changed))
    tail = round(data.draws * (1000 - data.coverage) / 2000)
    ordered = [sorted(own) for own in drawn]
    pairs = []
    for one, other in combinations(range(len(rows)), 2):
        first, second = sorted((one, other), key=lambda n: -(rows[n].unrounded or 0.0))
        if rows[first].model == rows[second].model:
            continue
        holds = sum(a >= b for a, b in zip(drawn[first], drawn[second], strict=True))
        pairs.append(OrderStability(above=rows[first].model, below=rows[second].model, holds=holds / data.draws))
    return WeightStability(
        draws=data.draws,
        factor=data.factor,
        ranges=tuple(
            WeightRange(model=score.model, low=own[tail], high=own[-1 - tail])
            for score, own in zip(rows, ordered, strict=True)
        ),
        orders=tuple(pairs),
    )


def _composite(score: ProtocolScore, weights: dict[str, float]) -> float:
    there = [(weights[name], row.contribution) for name, row in score.metrics.items() if row.contribution is not None]
    return 100 * fsum(weight * part for weight, part in there) / fsum(weight for weight, _ in there)
