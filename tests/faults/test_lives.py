"""A few lives of a run: the short form of `python -m benchmarks.kill_resume`."""

from __future__ import annotations

import itertools
import time
from unittest import mock

import pytest

from tests.fakes.openai_server import FakeOpenAI, Fault, Rule, Script
from tests.faults.catalogue import KEY
from tests.faults.lives import nine_lives
from tests.faults.runs import Run, cast, measured, patient


@pytest.mark.parametrize("suite", ["spiral", "tempaffect"])
def test_kill_and_resume(suite):
    """Nothing committed is lost or asked again, what was sent twice was under way, the report is as undisturbed."""
    found = nine_lives(suite, 3, seed=3)

    assert found.kills >= 2
    assert (found.lost, found.again, found.identical) == (0, 0, True)
    assert found.repeated <= sum(found.open)
    # Four requests at a time: no kill can have cost more.
    assert max(found.open) <= 4
    assert found.committed == sorted(found.committed)


@pytest.mark.parametrize("suite", ["spiral", "tempaffect"])
def test_clocks_that_jump(tmp_path, suite):
    """A wall clock that leaps back and forth by days moves no measurement, no retry and no deadline."""
    real, leaps = time.time, itertools.cycle((0.0, 86_400.0, -172_800.0, 3.0, 1e9))
    script = Script(cast(), [Rule(Fault.status_code(429, retry_after=0.01), calls={1, 3})])

    with FakeOpenAI(cast(), key=KEY) as server, patient(20, 60):
        still = Run(tmp_path / "still", server, suite, KEY).go()
    with FakeOpenAI(script, key=KEY) as server, patient(20, 60):
        started = time.monotonic()
        with mock.patch("time.time", side_effect=lambda: real() + next(leaps)):
            jumping = Run(tmp_path / "jumping", server, suite, KEY).go()

    assert time.monotonic() - started < 30
    assert sum(script.faults.values()) > 0
    assert measured(jumping.report) == measured(still.report)
    assert jumping.code == still.code == 0
