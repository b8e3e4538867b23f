"""A few lives of a run: the short form of `python -m benchmarks.kill_resume`."""

from __future__ import annotations

import pytest

from tests.faults.lives import nine_lives


@pytest.mark.parametrize("suite", ["spiral", "tempaffect"])
def test_kill_and_resume(suite):
    """Nothing committed is lost or asked again, what was sent twice was under way, the report is as undisturbed."""
    found = nine_lives(suite, 4, seed=3)

    assert found.kills >= 2
    assert (found.lost, found.again, found.identical) == (0, 0, True)
    assert found.repeated <= sum(found.open)
    # Four requests at a time: no kill can have cost more.
    assert max(found.open) <= 4
    assert found.committed == sorted(found.committed)
