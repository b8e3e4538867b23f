"""The self-check: before the first real call, the scorer proves itself on built-in models whose worth is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated

from pydantic import Field, TypeAdapter

from pytest_spiral.hashing import digest
from pytest_spiral.resources import data_root, read_text, read_toml
from pytest_spiral.tables import Table
from pytest_spiral.tempaffect.detectors import detect
from pytest_spiral.tempaffect.records import LABEL_FIELDS, REPLY_CHECKS, ItemScore
from pytest_spiral.tempaffect.scenario import Family
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.stand_ins import PAGE_FIXTURES, dry_output
from pytest_spiral.tempaffect.suite import Suite, lock

# For comparing rates with limits per mille.
_ROUNDING = 1e-9
_BASELINE_SCENARIOS = 500
_BASELINES = {"majority_constant": "constant_majority", "random_valid": "random_valid"}
_PINNED_BASELINES = ("facts_copyist", "first_act", "closest_act", "every_act")


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What the self-check found.

    Attributes:
        faults: One sentence per expectation that is not met.
        fingerprint: The scorer's behaviour, as a hex SHA-256.
    """

    faults: tuple[str, ...]
    fingerprint: str


class _Limit(Table):
    least: Annotated[int, Field(alias="min", ge=0, le=1000)] = 0
    most: Annotated[int, Field(alias="max", ge=0, le=1000)] = 1000


@cache
def _limits() -> Mapping[str, Mapping[str, _Limit]]:
    """Limits per mille, by built-in model and measure."""
    raw = read_toml(data_root() / "tempaffect" / "dry" / "limits.toml")
    return TypeAdapter(dict[str, dict[str, _Limit]]).validate_python(raw)


@lru_cache(maxsize=4)
def check_scorer(suite: Suite) -> SelfCheck:
    """Score the five published built-in models, hold them to their limits, and take the scorer's fingerprint.

    The fingerprint covers every point of every item and all detectors, so that a drift of code, stemmer or Unicode
    tables shows even where all limits are met. Done once a process for a suite.
    """
    faults: list[str] = []
    prints: dict[str, object] = {}
    for name in PAGE_FIXTURES:
        scores = dry_scores(name, suite)
        faults += fixture_faults(name, measures_of(scores))
        prints[name] = {
            "items": [_print(score) for score in scores],
            "detectors": {key: round(1000 * (row.value or 0)) for key, row in detect(scores).detections.items()},
        }
    return SelfCheck(tuple(faults), digest(prints))


def _print(score: ItemScore) -> list[str]:
    points = "".join("1" if score.points.get(name) else "0" for name in (*LABEL_FIELDS, *REPLY_CHECKS))
    reason = score.reason.code.value if score.reason else ""
    return [score.scenario.id, reason, points + ("U" if score.useful_bounded else "-")]


def fixture_faults(name: str, measures: Mapping[str, float]) -> list[str]:
    """Expectations of `limits.toml` that the measures of a built-in model do not meet."""
    faults = []
    for metric, limit in _limits().get(name, {}).items():
        value = measures[metric]
        if 1000 * value < limit.least - _ROUNDING:
            faults.append(f"dry/{name}: {metric} is {value:.3f}, expected at least {limit.least / 1000:.3f}")
        if 1000 * value > limit.most + _ROUNDING:
            faults.append(f"dry/{name}: {metric} is {value:.3f}, expected at most {limit.most / 1000:.3f}")
    return faults


@lru_cache(maxsize=4)
def baselines(suite: Suite) -> dict[str, dict[str, float]]:
    """Score and useful-and-bounded rate of models that do not read the message, to read every score against.

    On all scenarios of a suite, or on up to 500 of them where it is larger. The bundled suite has some more, which are
    not computed anew in every run.
    """
    # Evenly spaced, so that each scenario of a large suite is compiled once, for its own answer.
    asked = suite.scenarios[:: -(-len(suite.scenarios) // _BASELINE_SCENARIOS)]
    rows = [[score_output(one, dry_output(model, suite, one)) for model in _BASELINES.values()] for one in asked]
    found: dict[str, dict[str, float]] = {}
    for name, scores in zip(_BASELINES, zip(*rows, strict=True), strict=True):
        found[name] = {"score": _mean(score.score for score in scores)}
        if useful := [score.useful_bounded for score in scores if score.useful_bounded is not None]:
            found[name]["useful_bounded_response_rate"] = _mean(useful)
    if suite.suite_hash == lock().suite_hash:
        for name in _PINNED_BASELINES:
            row = shortcut_results()[name]
            found[name] = {"score": row.score, "useful_bounded_response_rate": row.useful_bounded / row.scenarios}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortcutResult:
    """What a shortcut reached on the scenarios in which its reply is not the reference reply."""

    scenarios: int
    right_decision: int
    useful_bounded: int
    score: float


@cache
def shortcut_results() -> Mapping[str, ShortcutResult]:
    """The pinned results of all shortcuts."""
    text = read_text(data_root() / "tempaffect" / "dry" / "shortcuts.json")
    return TypeAdapter(dict[str, ShortcutResult]).validate_json(text)


def dry_scores(name: str, suite: Suite) -> list[ItemScore]:
    """A built-in model's scores, in the order of the suite."""
    return [score_output(scenario, dry_output(name, suite, scenario)) for scenario in suite.scenarios]


def measures_of(scores: Sequence[ItemScore]) -> dict[str, float]:
    """What a built-in model measures, in 0..1, under the names that `limits.toml` uses."""
    detectors = detect(scores)
    rates = {name: _mean(score.points.get(name, 0) > 0 for score in scores) for name in (*LABEL_FIELDS, *REPLY_CHECKS)}
    by_family = {family: [score for score in scores if score.scenario.family is family] for family in Family}
    untemplated = (not templated for templated in detectors.templated)
    return {
        "score": _mean(score.score for score in scores),
        "valid": _mean(score.valid for score in scores),
        "useful": _mean(bool(score.useful_bounded) for score in scores),
        "right_decision": _mean(bool(s.checks and s.checks.decision and s.checks.decision.right) for s in scores),
        "deduped": _mean(bool(s.useful_bounded) and own for s, own in zip(scores, untemplated, strict=True)),
        "labels": _mean(rates[name] for name in LABEL_FIELDS),
        "reply_quality": _mean(rates[name] for name in REPLY_CHECKS),
        **{name: rates[name] for name in REPLY_CHECKS},
        **{f"useful.{family.value}": _mean(bool(s.useful_bounded) for s in own) for family, own in by_family.items()},
        **{name: row.value or 0.0 for name, row in detectors.detections.items()},
    }


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
