"""`--no-preflight`, and preflight under pytest: once, before workers start, and workers keep to what it found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.openai_server import Fault, Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

RUN = ("--model=m", "--suite=tempaffect", "--prompting=raw", "-k", "ps-01 or ps-02 or ps-03")


def test_workers_keep_to_what_was_found(project: Project, serve: Serve) -> None:
    """The controller asks once; every worker sends what it found out, and the report and the first lines say so."""
    model = ScriptedModel("perfect")

    def strict(body: dict[str, Any], n: int) -> str | Reply | Fault:
        refused = Fault.status_code(400, "'temperature' is not supported with this model")
        return refused if "temperature" in body else model(body, n)

    server = serve(strict)
    project.reach(server)

    result = project.pytest(*RUN, "-n", "2")

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["spiral: evaluated m: temperature is left out"])
    assert [("temperature" in request.body) for request in server.requests] == [True, False, False, False, False]
    (found,) = project.report()["run"]["preflight"]
    assert (found["model"], found["changes"]) == ("m", ["temperature is left out"])
    (config,) = project.report()["run"]["config"]["models"]
    assert config["params"]["tempaffect"] == {"temperature": 0.0, "max_tokens": 1024}
    assert config["negotiated"] == {"tempaffect": {"max_tokens": 1024}}


@pytest.mark.parametrize("flag", [(), ("--no-preflight",)], ids=["with", "without"])
def test_it_is_planned(project: Project, serve: Serve, flag: tuple[str, ...]) -> None:
    """The calls of the plan are those of the run, with it and without it."""
    model = ScriptedModel("perfect")
    server = serve(model)
    project.reach(server)

    plan = project.here(*RUN, *flag, "--plan")
    project.pytest(*RUN, *flag, "-p", "no:xdist")

    plan.stdout.re_match_lines([rf"evaluated m +{len(server.requests)} .*"])
    assert len(server.requests) == 3 + (not flag)
