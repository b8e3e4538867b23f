"""Variance components as they stand in the report, with what to spend the next budget on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_spiral.stats.clusters import Clusters
from pytest_spiral.stats.power import Components, design_effect, minimum_detectable_difference, purchases
from pytest_spiral.stats.power import variance_components as components_of

__all__ = ["variance_json"]


def variance_json(clusters: Clusters[Sequence[Sequence[float]]], repeat_option: str) -> dict[str, Any] | None:
    """Components of the variance of a mean; None below two units.

    clusters: units holding repetitions holding one value per judge. repeat_option: the option that repeats a unit.
    se answers "other units like these", rerun_se "the same units once more"; mde is that of two such runs on the same
    units, were their differences between units all real.
    """
    found = components_of(clusters)
    if found is None:
        return None
    repetitions = clusters.map(lambda unit: [sum(judges) / len(judges) for judges in unit if judges])
    options = purchases(found, clusters.unit, repeat_option)
    total = found.between + (found.rerun or 0.0)
    return {
        "unit": clusters.unit,
        "n": found.n,
        "repetitions": found.k,
        "judges": found.j,
        "between": found.between,
        "rerun": found.rerun,
        "judge": found.judge,
        "judge_spread": found.judge_spread,
        "icc": found.between / total if found.rerun is not None and total > 0 else None,
        "design_effect": design_effect(repetitions) if found.rerun is not None else None,
        "se": found.se(),
        "rerun_se": found.rerun_se,
        "rerun_mde": None if found.rerun_se is None else minimum_detectable_difference(found.rerun_se * 2**0.5),
        "next": [{"what": option.what, "se": option.se, "share": option.share} for option in options],
        "advice": _advice(found, clusters.unit, repeat_option),
    }


def _advice(found: Components, unit: str, repeat_option: str) -> str:
    now = found.se()
    if not now:
        return f"no variation between {unit}s: a harder suite would tell more than a larger one"
    best = purchases(found, unit, repeat_option)[0]
    text = f"{best.what} would bring the standard error from {now:.3g} to {best.se:.3g}"
    if found.rerun is None:
        text += f"; with {repeat_option} 1 the noise of a rerun cannot be told from the differences between {unit}s"
    else:
        more = found.se(k=2 * found.k)
        text += f", twice {repeat_option} to {more:.3g}"
    if found.judge is not None:
        text += f", twice the judges to {found.se(j=2 * found.j):.3g}"
    return text
