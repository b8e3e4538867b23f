"""The item: one scenario asked once of one model in one mode, and its shape in the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pytest_spiral.status import Status
from pytest_spiral.tempaffect.contract import Answer
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.scorer import ItemScore

__all__ = ["CARD_MODES", "Item", "Mode", "item_from_json", "item_to_json"]

Mode = Literal["schema", "raw"]
CARD_MODES: Mapping[Mode, str] = {"schema": "schema_assisted", "raw": "raw_json"}
_MODES: Mapping[str, Mode] = {name: mode for mode, name in CARD_MODES.items()}


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement, or why there is none.

    score: None unless the state is measured or model_failed.
    reason: code of an invalid output or of a failed call; detail: the same for people.
    output: the raw text, archived as received.
    """

    scenario_id: str
    family: str
    model: str
    mode: Mode
    epoch: int
    status: Status
    reason: str | None
    detail: str
    output: str | None
    score: ItemScore | None


def item_to_json(item: Item) -> dict[str, Any]:
    """The item as it stands in `report.json`. Points are the weights earned, 0 where missed."""
    score = item.score
    weights = load_params().weights
    return {
        "id": item.scenario_id,
        "family": item.family,
        "model": item.model,
        "prompting_mode": CARD_MODES[item.mode],
        "epoch": item.epoch,
        "status": item.status.value,
        "reason": item.reason,
        "detail": item.detail,
        "output": item.output,
        "points": {name: weights[name] if hit else 0 for name, hit in score.points.items()} if score else {},
        "score": score.score if score else None,
        "useful_bounded": score.useful_bounded if score else None,
        "recoverable": score.recoverable if score else None,
        "answer": asdict(score.answer) if score and score.answer else None,
        "checks": asdict(score.checks) if score and score.checks else None,
    }


def item_from_json(payload: Mapping[str, Any], scenarios: Mapping[str, Scenario]) -> Item:
    """The item that `item_to_json` wrote. Raises KeyError for an unknown scenario or a missing key."""
    status = Status(payload["status"])
    score = None
    if status in (Status.MEASURED, Status.MODEL_FAILED):
        from pytest_spiral.tempaffect.checks import ReplyChecks

        checks = payload["checks"]
        answer = payload["answer"]
        score = ItemScore(
            scenario=scenarios[payload["id"]],
            answer=Answer(**answer) if answer else None,
            checks=ReplyChecks(**{**checks, "reasons": {k: tuple(v) for k, v in checks["reasons"].items()}})
            if checks
            else None,
            reason=payload["reason"],
            detail=payload["detail"],
            points={name: earned > 0 for name, earned in payload["points"].items()},
            score=payload["score"],
            useful_bounded=payload["useful_bounded"],
            recoverable=payload["recoverable"],
        )
    return Item(
        scenario_id=payload["id"],
        family=payload["family"],
        model=payload["model"],
        mode=_MODES[payload["prompting_mode"]],
        epoch=payload["epoch"],
        status=status,
        reason=payload["reason"],
        detail=payload["detail"],
        output=payload["output"],
        score=score,
    )
