"""Scenarios of our own, read once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_spiral.tempaffect import Scenario

FILE = Path(__file__).parents[1] / "scenarios" / "deliveries.json"
SCENARIOS = [Scenario.model_validate(entry) for entry in json.loads(FILE.read_text())]


@pytest.fixture(params=SCENARIOS, ids=lambda scenario: scenario.id)
def delivery(request: pytest.FixtureRequest) -> Scenario:
    """One scenario after another."""
    return request.param
