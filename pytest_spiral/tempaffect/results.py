"""From items to their results, which reports hold and workers send, and back."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter

from pytest_spiral.errors import DataError
from pytest_spiral.tempaffect.records import CARD_MODES, Item, ItemResult, ItemScore, Mode
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.text import whole_characters

__all__ = ["ITEM_RESULT", "item_of", "item_result"]

ITEM_RESULT = TypeAdapter(ItemResult)
"""Reads and writes a result as JSON values."""
_MODES: Mapping[str, Mode] = {name: mode for mode, name in CARD_MODES.items()}


def item_result(item: Item) -> ItemResult:
    """The result of an item."""
    score = item.score
    return ItemResult(
        id=item.scenario_id,
        family=item.family,
        model=item.model,
        prompting_mode=CARD_MODES[item.mode],
        epoch=item.epoch,
        status=item.status,
        reason=item.reason,
        output=None if item.output is None else whole_characters(item.output),
        points=score.points if score else {},
        score=score.score if score else None,
        useful_bounded=score.useful_bounded if score else None,
        recoverable=score.recoverable if score else None,
        answer=score.answer if score else None,
        checks=score.checks if score else None,
    )


def item_of(result: ItemResult, scenarios: Mapping[str, Scenario]) -> Item:
    """The item of a result.

    Args:
        result: The result.
        scenarios: By id, as they were when the item was scored.

    Raises:
        DataError: For a scored item whose scenario is not among `scenarios`.
    """
    score = None
    if result.score is not None:
        if result.id not in scenarios:
            raise DataError(f"item {result.id}: unknown scenario; scored items need their scenario")
        score = ItemScore(
            scenario=scenarios[result.id],
            answer=result.answer,
            checks=result.checks,
            reason=result.reason,
            points=result.points,
            score=result.score,
            useful_bounded=bool(result.useful_bounded),
            recoverable=bool(result.recoverable),
        )
    return Item(
        scenario_id=result.id,
        family=result.family,
        model=result.model,
        mode=_MODES[result.prompting_mode],
        epoch=result.epoch,
        status=result.status,
        reason=result.reason,
        output=result.output,
        score=score,
    )
