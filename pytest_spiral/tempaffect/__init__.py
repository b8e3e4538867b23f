"""TempAffect 1: bounded helpfulness in emotionally pressured, non-crisis, single-turn interactions.

from pytest_spiral.tempaffect import Scenario, check_reply, score_output
"""

from __future__ import annotations

from pytest_spiral.tempaffect.card import build_card
from pytest_spiral.tempaffect.checks import ReplyChecks, check_reply
from pytest_spiral.tempaffect.detectors import Detectors, detect
from pytest_spiral.tempaffect.item import Item
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.scorer import ItemScore, score_output
from pytest_spiral.tempaffect.suite import Suite, load_suite

__all__ = [
    "Detectors",
    "Item",
    "ItemScore",
    "ReplyChecks",
    "Scenario",
    "Suite",
    "build_card",
    "check_reply",
    "detect",
    "load_suite",
    "score_output",
]
