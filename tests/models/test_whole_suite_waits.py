"""The bundled scenarios asked of an endpoint that fails for a minute: all are answered, stored and scored."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.models.limiter import Limiter
from pytest_spiral.models.openai_compatible import OpenAICompatible
from pytest_spiral.status import Status
from pytest_spiral.store import RunStore, StoredChat
from pytest_spiral.tempaffect.card_metrics import CardMetrics
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import load_suite
from pytest_spiral.tempaffect.unit import ScenarioUnit, ask_scenario
from tests.fakes.virtual_time import FakeEndpoint, run

SUITE = load_suite()


@pytest.mark.parametrize(
    ("status", "headers", "until"),
    [(429, {"retry-after": "0"}, 60), (503, {}, 60), (429, {"retry-after": "0"}, 0)],
    ids=["429 for a minute", "503 for a minute", "every other request 429"],
)
def test_all_scenarios_are_answered(tmp_path: Path, status: int, headers: Mapping[str, str], until: int) -> None:
    """`Retry-After: 0` or nothing: 75 of 75 measured, each stored once, no failure, and a card without gaps."""
    answer = dry_output("perfect", SUITE, SUITE.scenarios[0])
    body = json.dumps({"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]}).encode()
    server = FakeEndpoint(lambda now, n: (status if now < until or (not until and n % 2) else 200, headers), body=body)
    store = RunStore.create_or_resume(tmp_path / "run.sqlite", {})

    async def work() -> list[Item]:
        limiter = Limiter(16, clock=asyncio.get_running_loop().time)
        endpoint = Endpoint("evaluated", "http://127.0.0.1:1")
        chat = StoredChat(OpenAICompatible(endpoint, limiter=limiter, rng=random.Random(1), connect=server), store)
        units = [(ScenarioUnit("m", "raw", scenario.id), scenario) for scenario in SUITE.scenarios]
        return await asyncio.gather(*(ask_scenario(unit, scenario, "m", {}, chat) for unit, scenario in units))

    items = run(work())
    [usage] = store.usage()
    store.close()

    assert {item.status for item in items} == {Status.MEASURED}
    assert (len(items), usage.requests, usage.failures) == (75, 75, 0)
    assert CardMetrics(items, SUITE.by_id).sample("score").missing == 0
