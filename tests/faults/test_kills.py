"""Runs that are killed and resumed: the short form of `python -m benchmarks.kill_resume`."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from unittest import mock

import pytest

from tests.fakes.openai_server import FakeOpenAI, Fault
from tests.fakes.script import Rule, Script
from tests.faults.catalogue import KEY
from tests.faults.kills import kill_and_resume
from tests.faults.runs import Run, cast, measured, patient


@pytest.mark.parametrize("suite", ["spiral", "tempaffect"])
def test_killed_runs_resume(suite: str) -> None:
    """No stored reply is lost or asked for again, and the report is that of an undisturbed run."""
    result = kill_and_resume(suite, 3, seed=3)

    assert result.kills >= 2
    assert (result.lost, result.again, result.identical) == (0, 0, True)
    assert result.repeated <= sum(result.open)
    # Four requests at a time: no kill can have cost more.
    assert max(result.open) <= 4
    assert result.committed == sorted(result.committed)


@pytest.mark.parametrize("suite", ["spiral", "tempaffect"])
def test_clocks_that_jump(tmp_path: Path, suite: str) -> None:
    """A wall clock that leaps back and forth by days changes no measurement, retry or deadline."""
    real, leaps = time.time, itertools.cycle((0.0, 86_400.0, -172_800.0, 3.0, 1e9))
    script = Script(cast(), [Rule(Fault.status_code(429, retry_after=0.01), calls={1, 3})])

    with FakeOpenAI(cast(), key=KEY) as server, patient(20, 60):
        still = Run(tmp_path / "still", server, suite, KEY).go()
    clock = mock.patch("time.time", side_effect=lambda: real() + next(leaps))
    with FakeOpenAI(script, key=KEY) as server, patient(20, 60), clock:
        jumping = Run(tmp_path / "jumping", server, suite, KEY).go()

    assert sum(script.faults.values()) > 0
    assert measured(jumping.report) == measured(still.report)
    assert jumping.code == still.code == 0
