"""`--concurrency`: how many requests are in flight at most, over all workers together."""

from __future__ import annotations

import pytest

from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import DISTRIBUTIONS, Project, Serve

# The server answers when so many requests are in flight: a single first one would wait for ever.
ARGS = ("--model", "m", "--suite=tempaffect", "--prompting", "raw", "-m", "pressured_integrity", "--no-preflight")


@pytest.mark.parametrize(
    ("distribution", "limit"),
    [("no-xdist", 1), ("no-xdist", 4), ("n2", 4)],
    ids=["one", "four", "four-over-two"],
)
def test_no_more_than_asked_for(project: Project, serve: Serve, distribution: str, limit: int) -> None:
    """The bound holds over all workers; within it requests run side by side."""
    server = serve(ScriptedModel(), latency=0.02, together=limit)
    project.reach(server)

    result = project.pytest(*ARGS, "--concurrency", str(limit), *DISTRIBUTIONS[distribution])

    result.assert_outcomes(passed=25)
    assert server.peak == limit


def test_a_models_own_bound_holds(project: Project, serve: Serve) -> None:
    """`concurrency` in spiral.toml is the endpoint's bound, whatever the run's is."""
    project.write(spiral__toml='[[model]]\nmatch = "m"\nconcurrency = 2\n')
    server = serve(ScriptedModel(), latency=0.02, together=2)
    project.reach(server)

    project.pytest(*ARGS, *DISTRIBUTIONS["no-xdist"])

    assert server.peak == 2


def test_many_at_once_by_default(project: Project, serve: Serve) -> None:
    """A run takes as long as its slowest request, not as long as all of them."""
    server = serve(ScriptedModel(), together=25)
    project.reach(server)

    project.pytest(*ARGS, *DISTRIBUTIONS["no-xdist"])

    assert server.peak == 25


@pytest.mark.parametrize("value", ["0", "-3", "all"])
def test_a_wrong_number_is_a_usage_error(project: Project, value: str) -> None:
    """Whole numbers from 1."""
    result = project.here(*ARGS, f"--concurrency={value}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--concurrency*"])


def test_ini(project: Project) -> None:
    """The ini key is checked like the option."""
    project.write(pytest__ini="[pytest]\nspiral_concurrency = 0\n")

    result = project.here(*ARGS)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*concurrency*"])
