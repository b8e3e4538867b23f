"""The one typed result of a run: everything that people or programs read is rendered from a `Report`."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import model_validator

from pytest_spiral.report.model.anchors import Anchors
from pytest_spiral.report.model.base import Record
from pytest_spiral.report.model.comparison import ItemChanges
from pytest_spiral.report.model.corrected import Corrections
from pytest_spiral.report.model.gate import BaselineValue, GateRow, Verdict
from pytest_spiral.report.model.judges import Drift
from pytest_spiral.report.model.parts import FailedPart
from pytest_spiral.report.model.profile import Profiles
from pytest_spiral.report.model.reply_judges import ReplyJudges
from pytest_spiral.report.model.run import Integrity, RequestLimit, RoleUsage, Run, RunConfig, Usage
from pytest_spiral.report.model.spiral import ConversationRecord, ProtocolScore, Score, Spiral
from pytest_spiral.report.model.tempaffect import Card, FamilyScores, TempAffect

__all__ = [
    "SCHEMA_VERSION",
    "Anchors",
    "BaselineValue",
    "Card",
    "ConversationRecord",
    "Corrections",
    "Drift",
    "FailedPart",
    "FamilyScores",
    "GateRow",
    "Integrity",
    "Profiles",
    "ProtocolScore",
    "ReplyJudges",
    "Report",
    "RequestLimit",
    "RoleUsage",
    "Run",
    "RunConfig",
    "Score",
    "Spiral",
    "TempAffect",
    "Usage",
    "Verdict",
]

SCHEMA_VERSION: Final = 2


class Report(Record):
    """Everything a run found. Rates are shares from 0 to 1; null means not measured."""

    schema_version: Literal[2] = SCHEMA_VERSION
    verdict: Verdict
    run: Run
    integrity: Integrity
    gates: tuple[GateRow, ...]
    changes: tuple[ItemChanges, ...] = ()
    """What newly fails and newly passes against the baseline, by model; empty without a baseline."""
    tempaffect: TempAffect
    spiral: Spiral
    profile: Profiles
    """How the models write: a description, not a score."""
    usage: Usage
    corrected: Corrections | None = None
    """What labels of a part of the replies correct; null without labels."""
    reply_judges: ReplyJudges | None = None
    """What models of --reply-judge say of TempAffect replies; null without them."""
    failed_parts: tuple[FailedPart, ...] = ()
    """Parts that could not be made. With one that belongs to the evaluation, the verdict is `fail` or `incomplete`."""

    @property
    def models(self) -> list[str]:
        """The evaluated models, in the order of the command line; those of imported results in order of appearance."""
        cards = (card.model for card in self.tempaffect.cards)
        scores = (score.model for score in self.spiral.scores)
        return list(dict.fromkeys([*self.run.config.model, *cards, *scores]))

    @model_validator(mode="after")
    def _passes_only_with_gates(self) -> Report:
        if (self.verdict == "pass" and not self.gates) or (self.verdict == "measured" and self.gates):
            raise ValueError("verdict: expected `pass` only with gates, and `measured` only without")
        return self
