"""The units of work: from a definition and a model to a record. Whoever runs them is no concern of theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_spiral.chat import ChatModel, ChatRequest, Message
from pytest_spiral.errors import ChatError
from pytest_spiral.resources import data_root, read_json
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.contract import output_schema
from pytest_spiral.tempaffect.prompting import build_messages
from pytest_spiral.tempaffect.records import Item, Mode
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.scorer import score_output

__all__ = ["Output", "ScenarioUnit", "ask_scenario", "recorded_item", "schema_is_enforced"]


@dataclass(frozen=True, slots=True)
class Output:
    """One recorded output. text: None where the call failed; `reason` and `detail` then say why.

    finish: how generation ended if `reason` tells that, else "stop".
    """

    text: str | None
    finish: str
    reason: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class ScenarioUnit:
    """One scenario to be asked once of one model in one mode."""

    model: str
    mode: Mode
    scenario_id: str
    epoch: int = 0

    @property
    def id(self) -> str:
        """The part of the node id in brackets."""
        repeat = f"-e{self.epoch + 1}" if self.epoch else ""
        return f"{self.model}-{self.mode}-{self.scenario_id}{repeat}"


async def ask_scenario(
    unit: ScenarioUnit, scenario: Scenario, model_id: str, params: Mapping[str, Any], chat: ChatModel
) -> Item:
    """Ask and score. A call that fails for good gives an instrument failure without a score, never a zero; one that
    the budget forbids leaves the item not run."""
    request = ChatRequest(
        role="evaluated",
        model=model_id,
        messages=build_messages(scenario),
        params=params,
        schema=output_schema() if unit.mode == "schema" else None,
        sample=unit.epoch,
        unit=scenario.id,
    )
    try:
        reply = await chat.complete(request)
    except ChatError as error:
        return _item(unit, scenario, error.unit_status, error.code, str(error), None, None)
    return _scored(unit, scenario, reply.text, reply.finish)


def recorded_item(unit: ScenarioUnit, scenario: Scenario, output: Output) -> Item:
    """Score a recorded output. What was no measurement when it was recorded is none now."""
    if output.text is None:
        return _item(unit, scenario, Status.INSTRUMENT_FAILED, output.reason, output.detail, None, None)
    item = _scored(unit, scenario, output.text, "stop")
    # How generation ended is not on record; the reason tells it where the text alone does not.
    return item if item.reason == output.reason else _scored(unit, scenario, output.text, output.finish)


def _scored(unit: ScenarioUnit, scenario: Scenario, text: str, finish: str) -> Item:
    score = score_output(scenario, text, finish)
    status = Status.MEASURED if score.valid else Status.MODEL_FAILED
    return _item(unit, scenario, status, score.reason, score.detail, text, score)


def _item(
    unit: ScenarioUnit,
    scenario: Scenario,
    status: Status,
    reason: str | None,
    detail: str,
    output: str | None,
    score: Any,
) -> Item:
    return Item(
        scenario_id=scenario.id,
        family=scenario.family.value,
        model=unit.model,
        mode=unit.mode,
        epoch=unit.epoch,
        status=status,
        reason=reason,
        detail=detail,
        output=output,
        score=score,
    )


async def schema_is_enforced(model_id: str, params: Mapping[str, Any], chat: ChatModel) -> bool:
    """Whether the endpoint holds the model to a JSON schema: it is asked for a plain word under a schema whose only
    valid document cannot be guessed. Raises `ChatError`."""
    probe = read_json(data_root() / "enforcement_probe.json")
    request = ChatRequest(
        role="evaluated",
        model=model_id,
        messages=(Message("user", probe["message"]),),
        params=params,
        schema=probe["schema"],
        unit="enforcement-probe",
    )
    reply = await chat.complete(request)
    try:
        return bool(json.loads(reply.text) == probe["answer"])
    except ValueError:
        return False
