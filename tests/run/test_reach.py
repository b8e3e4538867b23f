"""Checking the models of a run before anything is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.run import preflight
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
    """Whoever is far away keeps nobody waiting; all that fail are told, in the order of the roles."""
    asked = []

    async def list_models(endpoint: Endpoint) -> frozenset[str]:
        asked.append(endpoint.role)
        async with asyncio.timeout(10):
            while len(asked) < 3:
                await asyncio.sleep(0.001)
        raise ChatError(ReasonCode.UNREACHABLE, f"the {endpoint.role} model is not there")

    monkeypatch.setattr(preflight, "list_models", list_models)

    with pytest.raises(ConfigError) as caught:
        controller.check_models()
    assert [line for line in str(caught.value).splitlines() if line.startswith("--")] == [
        "--model m: the evaluated model is not there",
        "--user-model u: the user model is not there",
        "--judge-model j: the judge model is not there",
    ]


def test_a_fault_of_ours_stays_what_it_is(controller: RunController, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a model that cannot be reached reads like one."""

    async def list_models(endpoint: Endpoint) -> frozenset[str]:
        raise ZeroDivisionError

    monkeypatch.setattr(preflight, "list_models", list_models)

    with pytest.raises(ZeroDivisionError):
        controller.check_models()
