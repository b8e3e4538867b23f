"""Our fixtures in a user's own tests."""

from __future__ import annotations

from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

ASKING = """
import asyncio
import pytest
from pytest_spiral.chat import ChatRequest, Message


@pytest.mark.asyncio
async def test_first(chat_model):
    assert await chat_model.ask("hello", system="be brief") == "ready"


@pytest.mark.asyncio
async def test_second(chat_model):
    request = ChatRequest("evaluated", "m", (Message("user", "again"),))
    assert (await chat_model.complete(request)).text == "ready"


def test_without_a_loop(chat_model):
    assert asyncio.run(chat_model.ask("a third time")) == "ready"
"""
SCORING = """
from pytest_spiral.tempaffect.suite import load_suite


def test_reply(score_reply):
    scenario = load_suite()["ps-01"]
    assert score_reply(scenario, "").useful_bounded is False
    assert score_reply(scenario, scenario.reference_reply).forbidden_phrase_clean is True
"""


def test_chat_model_in_any_loop(project: Project, serve: Serve, anywhere: tuple[str, ...]) -> None:
    """Async tests have a loop each, plain tests none: all reach the model, beside the bundled items."""
    model = ScriptedModel(enforces=False)
    project.reach(serve(model))
    project.write(test_own__py=ASKING)

    # In a process of its own: what other runs in this one left to the garbage collector is no warning of this one.
    result = project.process(
        "--model",
        "m",
        "--suite=tempaffect",
        "--prompting",
        "raw",
        "test_own.py",
        "scenarios/test_tempaffect.py",
        "-k",
        "own or ps-01",
        *anywhere,
    )

    result.assert_outcomes(passed=4, warnings=0)
    assert model.probes == 1 + 3
    assert project.report()["usage"]["by_role"]["evaluated"]["requests"] == 1 + 4


def test_chat_model_is_kept(project: Project, serve: Serve) -> None:
    """Replies to a user's own tests are kept in the run's store like all others: a resumed run does not ask again."""
    model = ScriptedModel(enforces=False)
    project.reach(serve(model))
    project.write(test_own__py=ASKING)
    args = (
        "--model",
        "m",
        "--suite=tempaffect",
        "--prompting",
        "raw",
        "--run-id",
        "r",
        "test_own.py",
        "-p",
        "no:xdist",
    )

    first = project.pytest(*args)
    second = project.pytest(*args)

    assert [first.ret, second.ret] == [0, 0]
    assert model.probes == 1 + 3


def test_chat_model_skips_without_a_model(project: Project) -> None:
    """A project's ordinary runs are not broken by tests that need a model."""
    project.write(test_own__py=ASKING)

    result = project.pytest("-p", "no:xdist")

    result.assert_outcomes(skipped=3)
    assert result.ret == 0


def test_score_reply_needs_no_model(project: Project, anywhere: tuple[str, ...]) -> None:
    """The deterministic checks are there for any test."""
    project.write(test_own__py=SCORING)

    project.pytest(*anywhere).assert_outcomes(passed=1)


def test_scenario_result_in_a_test_of_ones_own(project: Project) -> None:
    """Whatever asks for `scenario_result` is parametrized with all items of the run; without a model with none."""
    project.write(test_own__py="def test_own(scenario_result): assert scenario_result.item.score is not None\n")

    inert = project.pytest("-p", "no:xdist")
    result = project.pytest(
        "--model",
        "dry/perfect",
        "--suite=tempaffect",
        "--prompting",
        "raw",
        "test_own.py",
        "-k",
        "ps-0",
        "-p",
        "no:xdist",
    )

    inert.assert_outcomes(skipped=1)
    result.assert_outcomes(passed=9)
