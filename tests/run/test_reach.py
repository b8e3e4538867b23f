"""Reaching the models of a run before anything is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.run import controller as run_controller
from pytest_spiral.run.content import Content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.plan import make_plan
from pytest_spiral.settings import Settings
from pytest_spiral.status import ReasonCode

URL = "http://127.0.0.1:9"
ENVIRON = {f"{role}_BASE_URL": URL for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE")}


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[RunController]:
    """A prepared run of three remote models."""
    settings = Settings(model=("m",), user_model="u", judge_model=("j",), suite=("spiral",), run_id="r")
    content = Content(settings, tmp_path)
    controller = RunController(make_plan(settings, content, ENVIRON, datetime.now(UTC)), content, ENVIRON)
    controller.prepare()
    yield controller
    controller.close()


def test_all_are_reached_at_once(controller: RunController, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is far away keeps nobody waiting: each answers only when all have been asked."""
    asked = []

    async def probe(endpoint: Endpoint, model: str) -> None:
        asked.append(model)
        async with asyncio.timeout(10):
            while len(asked) < 3:
                await asyncio.sleep(0.001)

    monkeypatch.setattr(run_controller, "probe", probe)
    controller.reach()

    assert sorted(asked) == ["j", "m", "u"]


def test_of_several_that_fail_the_first_is_told(controller: RunController, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever fails sooner, the message is the same."""

    async def probe(endpoint: Endpoint, model: str) -> None:
        await asyncio.sleep(0.02 if model == "m" else 0)
        raise ChatError(ReasonCode.UNREACHABLE, f"{model} is not there")

    monkeypatch.setattr(run_controller, "probe", probe)

    with pytest.raises(ConfigError, match=r"^--model m: m is not there$"):
        controller.reach()


def test_a_fault_of_ours_stays_what_it_is(controller: RunController, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a model that cannot be reached reads like one."""

    async def probe(endpoint: Endpoint, model: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(run_controller, "probe", probe)

    with pytest.raises(ZeroDivisionError):
        controller.reach()
