"""What travels on a test report from the process that ran an item to the one that reports it."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict

from pytest_spiral.spiral.records import Conversation
from pytest_spiral.tempaffect.records import ItemResult

__all__ = ["UnitMessage", "take_message", "take_replies"]


class UnitMessage(BaseModel):
    """The result of one unit.

    Attributes:
        item: The result of a TempAffect unit.
        conversation: The result of a Spiral-Bench unit. Neither is there when the result could not be stored.
        failure: Why the test reports an instrument failure, None if it does not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: ItemResult | None = None
    conversation: Conversation | None = None
    failure: str | None = None

    def attach(self, report: pytest.TestReport) -> None:
        """Let it travel with a report, as one ASCII string: xdist can send nothing but plain values."""
        report.__dict__["spiral"] = self.model_dump_json(ensure_ascii=True)


def take_message(report: pytest.TestReport) -> UnitMessage | None:
    """The message on a report. It is taken off: pytest keeps all reports to the end."""
    text = report.__dict__.pop("spiral", None)
    return None if text is None else UnitMessage.model_validate_json(text)


def take_replies(report: pytest.TestReport) -> str | None:
    """The replies that a worker without access to the store has attached; taken off like the message."""
    text: str | None = report.__dict__.pop("spiral_replies", None)
    return text
