"""One scenario as a unit of work: asked of a model, or taken from a recording, and scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_spiral.chat import ChatModel, ChatRequest, whose_limit
from pytest_spiral.errors import ChatError
from pytest_spiral.status import Reason, Status
from pytest_spiral.tempaffect.contract import FINISH_REASONS, output_schema
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import CARD_MODES, Item, ItemScore, Mode
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.suite import build_messages
from pytest_spiral.text import whole_characters

_FINISH = {code: finish for finish, code in FINISH_REASONS.items()}


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

    @classmethod
    def of(cls, item: Item) -> ScenarioUnit:
        """The unit that an item belongs to."""
        return cls(item.model, item.mode, item.id, item.epoch)


async def ask_scenario(
    unit: ScenarioUnit,
    scenario: Scenario,
    model_id: str,
    params: Mapping[str, object],
    chat: ChatModel,
    system: str | None = None,
) -> Item:
    """Ask and score.

    A call that fails for good gives an instrument failure without a score, never a zero; one that the budget forbids
    leaves the item not run.

    Args:
        unit: What to ask of whom.
        scenario: The unit's scenario.
        model_id: The model's name in requests.
        params: Request parameters as sent.
        chat: The evaluated model.
        system: The user's system prompt for it.
    """
    request = ChatRequest(
        role="evaluated",
        model=model_id,
        messages=build_messages(scenario, system),
        params=params,
        schema=output_schema() if unit.mode == "schema" else None,
        sample=unit.epoch,
        unit=scenario.id,
    )
    try:
        reply = await chat.complete(request)
    except ChatError as error:
        return make_item(unit, scenario, error.unit_status, Reason(error.code, str(error)))
    item = scored_item(unit, scenario, reply.text, reply.finish)
    if reply.finish == "length" and item.reason is not None:
        return replace(item, reason=replace(item.reason, detail=whose_limit(reply.text, params)))
    return item


def recorded_item(recorded: Item, scenario: Scenario) -> Item:
    """Score a recorded output again. What was no measurement when it was recorded is none now."""
    unit, reason, text = ScenarioUnit.of(recorded), recorded.reason, recorded.output
    if recorded.score is None or text is None:
        return make_item(unit, scenario, Status.INSTRUMENT_FAILED, reason)
    item = scored_item(unit, scenario, text)
    if reason is None:
        return item
    # How generation ended is not on record; the reason tells it where the text alone does not.
    if item.reason is None or item.reason.code is not reason.code:
        return scored_item(unit, scenario, text, _FINISH.get(reason.code, "stop"))
    # Of a long output the record holds the beginning alone.
    return replace(item, reason=reason)


def scored_item(unit: ScenarioUnit, scenario: Scenario, text: str, finish: str = "stop") -> Item:
    """Score an output. finish: how generation ended, as in `ChatReply.finish`."""
    score = score_output(scenario, text, finish)
    status = Status.MEASURED if score.valid else Status.MODEL_FAILED
    return make_item(unit, scenario, status, score.reason, text, score)


def make_item(
    unit: ScenarioUnit,
    scenario: Scenario,
    status: Status,
    reason: Reason | None,
    output: str | None = None,
    score: ItemScore | None = None,
) -> Item:
    """An item with what was measured, if anything was."""
    return Item(
        id=scenario.id,
        family=scenario.family.value,
        model=unit.model,
        prompting_mode=CARD_MODES[unit.mode],
        epoch=unit.epoch,
        status=status,
        reason=reason,
        output=None if output is None else whole_characters(output[: 2 * load_params().contract.max_output_chars]),
        points=score.points if score else {},
        score=score.score if score else None,
        useful_bounded=score.useful_bounded if score else None,
        recoverable=score.recoverable if score else None,
        answer=score.answer if score else None,
        checks=score.checks if score else None,
        mismatch=score.mismatch if score else None,
    )
