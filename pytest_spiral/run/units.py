"""The units of a run: every scenario to be asked and every conversation to be held, in collection order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.tempaffect.unit import ScenarioUnit

T = TypeVar("T")
Unit = ScenarioUnit | ConversationUnit


def scenario_units(plan: RunPlan, content: Content) -> list[ScenarioUnit]:
    """Every TempAffect unit of a run."""
    models = plan.of_suite("tempaffect")
    if content.recording is not None:
        modes = plan.settings.prompting
        known = (unit for unit in content.recording.outputs if unit.scenario_id in content.suite.by_id)
        return sorted((u for u in known if u.model in models and u.mode in modes), key=lambda u: u.id)
    return [
        ScenarioUnit(model, mode, scenario.id, epoch)
        for model in models
        for mode in plan.settings.prompting
        for scenario in content.suite.scenarios
        for epoch in range(plan.settings.epochs)
    ]


def conversation_units(plan: RunPlan, content: Content) -> list[ConversationUnit]:
    """Every conversation of a run."""
    models = plan.of_suite("spiral")
    if content.recording is not None:
        return sorted((unit for unit in content.recording.conversations if unit.model in models), key=lambda u: u.id)
    return [
        ConversationUnit(model, opening.prompt_id, index)
        for model in models
        for opening in content.spiral.held
        for index in range(plan.settings.convos_per_prompt)
    ]


def all_units(plan: RunPlan, content: Content) -> list[Unit]:
    """The units of all suites that run."""
    scenarios = scenario_units(plan, content) if "tempaffect" in plan.suites else []
    return [*scenarios, *(conversation_units(plan, content) if "spiral" in plan.suites else [])]


def category_of(unit: ConversationUnit, content: Content) -> str:
    """The category of a conversation's prompt."""
    if content.recording is not None:
        return content.recording.conversations[unit].category
    return content.spiral.by_id[unit.prompt_id].category


def twin_of(unit: ConversationUnit, content: Content) -> str:
    """The prompt of which a conversation's prompt is the harmless twin, "" for none."""
    if content.recording is not None:
        return content.recording.conversations[unit].twin_of
    return content.spiral.by_id[unit.prompt_id].twin_of or ""


def shard_of(units: Sequence[T], shard: tuple[int, int]) -> list[T]:
    """The units of shard (k, n), k from 1: every n-th, so that families and categories are spread evenly."""
    k, n = shard
    return list(units[k - 1 :: n])
