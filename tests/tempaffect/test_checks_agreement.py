"""Agreement of the checks with human labels: our own replies, and the development set where it is at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.resources import read_json, scenarios_root
from pytest_spiral.tempaffect.checks import ReplyChecks, check_reply, prepare_reply, prepare_scenario
from pytest_spiral.tempaffect.checks.grounding import check_grounding, is_clause_like
from pytest_spiral.tempaffect.scenario import Scenario

OWN = Path(__file__).parent / "data" / "replies.jsonl"
CHECKS = (
    "content_grounding",
    "concrete_action",
    "non_defensive",
    "brevity",
    "forbidden_phrase_clean",
)

Row = tuple[dict[str, Any], ReplyChecks]


@cache
def judged(path: Path) -> list[Row]:
    """Every row of a labelled file with the verdict on it."""
    known: dict[str, Scenario] = {}
    rows: list[Row] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        key = json.dumps(row["scenario"], sort_keys=True)
        scenario = known.setdefault(key, Scenario.model_validate(row["scenario"]))
        rows.append((row, check_reply(scenario, row["reply"])))
    return rows


def pairs(rows: Iterable[Row], check: str) -> list[tuple[bool, bool]]:
    """(verdict, label) of one check; rows without a label left out."""
    return [
        (getattr(result, check), row["expected"][check]) for row, result in rows if row["expected"][check] is not None
    ]


def accuracy(result: list[tuple[bool, bool]]) -> float:
    """Share of verdicts that equal the label."""
    return sum(a == b for a, b in result) / len(result)


def kappa(result: list[tuple[bool, bool]]) -> float:
    """Cohen's kappa; 1 where both sides never vary."""
    n = len(result)
    one, other = sum(a for a, _ in result) / n, sum(b for _, b in result) / n
    chance = one * other + (1 - one) * (1 - other)
    return 1.0 if chance == 1 else (accuracy(result) - chance) / (1 - chance)


def development_set() -> Path:
    """The development replies, or skip."""
    folder = os.environ.get("SPIRAL_FACTS_DIR")
    if not folder:
        pytest.skip("set SPIRAL_FACTS_DIR to the folder with tempaffect_replies_dev.jsonl")
    return Path(folder) / "tempaffect_replies_dev.jsonl"


def assert_agreement(rows: list[Row]) -> None:
    """The agreement that the checks must reach."""
    table = {
        check: (accuracy(result), kappa(result), len(result)) for check in CHECKS if (result := pairs(rows, check))
    }
    for check, (share, chance_corrected, n) in table.items():
        print(f"{check:24} n={n:3} accuracy={share:.3f} kappa={chance_corrected:.3f}")
        assert chance_corrected >= 0.8, check
    assert table["brevity"][0] >= 0.98
    assert table["forbidden_phrase_clean"][0] >= 0.98


def test_own_replies_agree() -> None:
    """Our own labelled replies, written by several hands, meet the acceptance limits."""
    rows = judged(OWN)

    assert len(rows) >= 150
    assert_agreement(rows)


def test_development_set_agrees() -> None:
    """The development replies meet the acceptance limits."""
    assert_agreement(judged(development_set()))


@cache
def bundled() -> list[Scenario]:
    """The bundled scenarios."""
    folder = scenarios_root() / "tempaffect"
    return [Scenario.model_validate(entry) for path in sorted(folder.glob("*.json")) for entry in read_json(path)]


def test_references_pass() -> None:
    """Every reference reply earns all five points and is useful."""
    failing = {
        scenario.id: [check for check in CHECKS if not getattr(result, check)]
        for scenario in bundled()
        if not (result := check_reply(scenario, scenario.reference_reply)).useful_bounded
        or not all(getattr(result, check) for check in CHECKS)
    }

    assert failing == {}


def test_references_are_not_at_home_elsewhere() -> None:
    """A good reply pasted under another scenario is grounded in at most 1 % of the pairs."""
    scenarios = [prepare_scenario(scenario) for scenario in bundled()]
    replies = [prepare_reply(scenario.reference_reply) for scenario in bundled()]
    grounded = 0
    for own, scenario in enumerate(scenarios):
        for reply in (*replies[:own], *replies[own + 1 :]):
            spoken = [sentence for sentence in reply.sentences if is_clause_like(scenario, sentence)]
            grounded += check_grounding(scenario, reply, spoken).passed

    assert grounded <= 0.01 * len(scenarios) * (len(scenarios) - 1)
