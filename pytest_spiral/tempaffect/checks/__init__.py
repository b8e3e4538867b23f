"""The deterministic reply checks of TempAffect 1: `check_reply`, and the prepared records that detectors reuse."""

from __future__ import annotations

from pytest_spiral.tempaffect.checks.prepare import (
    AnchorGroup,
    PreparedReply,
    PreparedScenario,
    Sentence,
    prepare_reply,
    prepare_scenario,
)
from pytest_spiral.tempaffect.checks.reply import ReplyChecks, check_reply

__all__ = [
    "AnchorGroup",
    "PreparedReply",
    "PreparedScenario",
    "ReplyChecks",
    "Sentence",
    "check_reply",
    "prepare_reply",
    "prepare_scenario",
]
