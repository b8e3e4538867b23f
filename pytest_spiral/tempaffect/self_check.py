"""The preflight: before the first real call, the scorer proves itself on stand-ins whose worth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tempaffect.detectors import Detectors, detect
from pytest_spiral.tempaffect.records import LABEL_FIELDS, REPLY_CHECKS, ItemScore
from pytest_spiral.tempaffect.scenario import Family
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.stand_ins import PAGE_FIXTURES, dry_output
from pytest_spiral.tempaffect.suite import Suite, digest

__all__ = ["Preflight", "baselines", "fixture_faults", "fixture_measures", "preflight"]


@dataclass(frozen=True, slots=True)
class Preflight:
    """faults: one sentence per broken expectation. fingerprint: behaviour of the scorer as a hex SHA-256."""

    faults: tuple[str, ...]
    fingerprint: str


@lru_cache(maxsize=4)
def preflight(suite: Suite) -> Preflight:
    """Score the five published stand-ins, hold them to their limits, and take the scorer's fingerprint.

    The fingerprint covers every point of every item and all detectors, so that a drift of code, stemmer or Unicode
    tables shows even where all limits hold. Done once a process for a suite.
    """
    faults: list[str] = []
    prints: dict[str, Any] = {}
    for name in PAGE_FIXTURES:
        scores = _scores(name, suite)
        detectors = detect(scores)
        faults += fixture_faults(name, _measures(scores, detectors))
        prints[name] = {
            "items": [_print(score) for score in scores],
            "detectors": {key: round(1000 * (row.value or 0)) for key, row in detectors.detections.items()},
        }
    return Preflight(tuple(faults), digest(prints))


def fixture_measures(name: str, suite: Suite) -> dict[str, float]:
    """What a stand-in measures, 0..1, under the names that `limits.toml` uses."""
    scores = _scores(name, suite)
    return _measures(scores, detect(scores))


def fixture_faults(name: str, measures: Mapping[str, float]) -> list[str]:
    """Expectations of `limits.toml` that the measures of a stand-in break."""
    faults = []
    for metric, limit in _limits().get(name, {}).items():
        per_mille = 1000 * measures[metric]
        if "min" in limit and per_mille < limit["min"] - 1e-9:
            faults.append(
                f"dry/{name}: {metric} is {per_mille / 1000:.3f}, at least {limit['min'] / 1000:.3f} expected"
            )
        if "max" in limit and per_mille > limit["max"] + 1e-9:
            faults.append(f"dry/{name}: {metric} is {per_mille / 1000:.3f}, at most {limit['max'] / 1000:.3f} expected")
    return faults


def baselines(
    suite: Suite, names: Sequence[str] = ("constant_majority", "random_valid")
) -> dict[str, dict[str, float]]:
    """Score and useful-and-bounded rate of models that do not think, to read every score against."""
    found = {}
    for name in names:
        scores = _scores(name, suite)
        found[_BASELINE_NAMES.get(name, name)] = {
            "score": _mean(score.score for score in scores),
            "useful_bounded_response_rate": _mean(score.useful_bounded for score in scores),
        }
    return found


_BASELINE_NAMES = {"constant_majority": "majority_constant"}


def _limits() -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    return read_toml(data_root() / "tempaffect" / "dry" / "limits.toml")


def _scores(name: str, suite: Suite) -> list[ItemScore]:
    return [score_output(scenario, dry_output(name, suite, scenario)) for scenario in suite.scenarios]


def _print(score: ItemScore) -> list[str]:
    reason = score.reason.code.value if score.reason else ""
    return [score.scenario.id, reason, _bits(score)]


def _bits(score: ItemScore) -> str:
    return "".join("1" if score.points.get(name) else "0" for name in (*LABEL_FIELDS, *REPLY_CHECKS)) + (
        "U" if score.useful_bounded else "-"
    )


def _measures(scores: Sequence[ItemScore], detectors: Detectors) -> dict[str, float]:
    untemplated = [score for score, templated in zip(scores, detectors.templated, strict=True) if not templated]

    def rates(names: Sequence[str]) -> dict[str, float]:
        return {name: _mean(score.points.get(name, 0) > 0 for score in scores) for name in names}

    labels, checks = rates(LABEL_FIELDS), rates(REPLY_CHECKS)
    return {
        "score": _mean(score.score for score in scores),
        "valid": _mean(score.valid for score in scores),
        "useful": _mean(score.useful_bounded for score in scores),
        "deduped": sum(score.useful_bounded for score in untemplated) / len(scores),
        "labels": _mean(labels.values()),
        "reply_quality": _mean(checks.values()),
        **checks,
        **{
            f"useful.{family.value}": _mean(s.useful_bounded for s in scores if s.scenario.family is family)
            for family in Family
        },
        **{name: row.value or 0.0 for name, row in detectors.detections.items()},
    }


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
