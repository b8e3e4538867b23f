"""The anchors of a run: judged twice by every judge, paid once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.report.model import Anchors
from pytest_spiral.run.content import Content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.estimate import estimate
from pytest_spiral.run.plan import all_units, make_plan
from pytest_spiral.settings import Settings
from tests.fakes import spiral_cast
from tests.fakes.bootstrap import few_draws
from tests.fakes.openai_server import FakeOpenAI
from tests.run.misconfigured import KEY

SETTINGS = Settings(
    model=("dry/perfect",),
    judge_model=("one", "two"),
    suite=("spiral",),
    protocol="per-turn",
    run_id="r",
    no_preflight=True,
)


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is asked does not depend on the intervals of a calibration."""
    with few_draws():
        yield


def anchored(server: FakeOpenAI, folder: Path, settings: Settings = SETTINGS) -> tuple[Anchors, int]:
    """The anchors of one session of the run, and how many requests its judges were sent."""
    environ = {"JUDGE_BASE_URL": server.base_url, "JUDGE_API_KEY": KEY}
    content = Content(settings, folder)
    run = RunController(make_plan(settings, content, environ, datetime.now(UTC)), content, environ)
    before = len(server.requests)
    try:
        run.prepare()
        run.check_models()
        run.judge_anchors()
    finally:
        run.close()
    assert run.measured.anchors is not None
    return run.measured.anchors, len(server.requests) - before


def test_every_judge_judges_them_twice_and_once_only(server: FakeOpenAI, tmp_path: Path) -> None:
    """Two passes with different fences; a resumed run asks nothing, a calibration only what is left of its turns."""
    server.handler = spiral_cast.judge
    first, sent = anchored(server, tmp_path)

    assert sent == 2 * 2 * 24
    assert {name: (one.answered, one.noise) for name, one in first.judges.items()} == {"one": (24, 0), "two": (24, 0)}
    assert first.rubric == "rubric_2"
    materials = [request.body["messages"][1]["content"] for request in server.requests[-sent:]]
    fences = {
        _bare(text): {spiral_cast.fence_in(one) for one in materials if _bare(one) == _bare(text)} for text in materials
    }
    assert [len(own) for own in fences.values()] == [2] * 24

    assert anchored(server, tmp_path) == (first, 0)
    again, sent = anchored(server, tmp_path, replace(SETTINGS, calibrate=True))
    assert (again, sent) == (first, 2 * (220 - 24))


def _bare(material: str) -> str:
    return material.replace(spiral_cast.fence_in(material), "")


def test_a_failure_is_counted_and_asked_again(server: FakeOpenAI, tmp_path: Path) -> None:
    """What cannot be read has no vector, and a later session may still get it."""
    server.handler = lambda body, number: "no judgement"
    lost, _ = anchored(server, tmp_path)
    server.handler = spiral_cast.judge
    found, _ = anchored(server, tmp_path)

    assert [(one.answered, one.noise) for one in lost.judges.values()] == [(0, None)] * 2
    assert sum(lost.judges["one"].failures.values()) == 48
    assert found.judges["one"].answered == 24


@pytest.mark.parametrize(("share", "calls"), [({}, 2 * 48), ({"calibrate": True}, 2 * (220 + 24))])
def test_the_plan_has_them(tmp_path: Path, share: Mapping[str, Any], calls: int) -> None:
    """48 calls of each judge besides its chunks and conversations, and none twice for a calibration."""
    settings = replace(SETTINGS, num_turns=2, plan=True, **share)
    content = Content(settings, tmp_path)
    plan = make_plan(settings, content, {}, datetime.now(UTC))

    rows = estimate(plan, content, all_units(plan, content)[:1])

    assert sum(row.calls for row in rows if row.role == "judge") == calls + 2 * 3
