"""The deterministic reply checks of TempAffect: `check_reply`, and the prepared scenario that detectors reuse."""

from __future__ import annotations

from pytest_spiral.tempaffect.checks.prepare import PreparedScenario, own_stems, prepare_scenario
from pytest_spiral.tempaffect.checks.reply import check_reply
from pytest_spiral.tempaffect.checks.sentences import PreparedReply, prepare_reply
from pytest_spiral.tempaffect.records import ReplyChecks

__all__ = [
    "PreparedReply",
    "PreparedScenario",
    "ReplyChecks",
    "check_reply",
    "own_stems",
    "prepare_reply",
    "prepare_scenario",
]
