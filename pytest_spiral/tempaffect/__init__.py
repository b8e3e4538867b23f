"""TempAffect 1: bounded helpfulness in emotionally pressured, non-crisis, single-turn interactions.

from pytest_spiral.tempaffect import Scenario, check_reply, score_output
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pytest_spiral.tempaffect.records import Item, ItemScore, ReplyChecks
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.suite import Suite, load_suite

if TYPE_CHECKING:
    from pytest_spiral.tempaffect.card import build_card
    from pytest_spiral.tempaffect.checks import check_reply
    from pytest_spiral.tempaffect.detectors import Detectors, detect

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

# Loaded when first asked for: a process that scores no reply does without the lexicon.
_LATER = {"Detectors": "detectors", "build_card": "card", "check_reply": "checks", "detect": "detectors"}


def __getattr__(name: str) -> object:
    if name in _LATER:
        found: object = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
