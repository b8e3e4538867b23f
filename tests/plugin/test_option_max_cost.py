"""`--max-cost`: the run ends before it could have cost more, and goes on when it may."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

import pytest

from tests.fakes.openai_server import Fault, Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

# The fake server counts 10 prompt and 5 completion tokens: half a cent a call, and 1.02 USD for a reply at its limit.
PRICE = '[[model]]\nmatch = "m"\nprice = { input = 0.0, output = 1000.0 }\n'
RUN = ("--model", "m", "--suite=tempaffect", "--prompting", "raw", "--run-id", "r")


def test_it_stops_in_time_and_can_go_on(project: Project, serve: Serve) -> None:
    """What is left is not run and has no verdict; with a higher limit it is asked, and nothing else."""
    model = ScriptedModel()
    project.reach(serve(model))
    project.write(spiral__toml=PRICE)

    stopped = project.pytest(*RUN, "--max-cost", "1.2", "-n", "2")
    asked, report = len(model.asked), project.report("r")
    resumed = project.pytest(*RUN, "--max-cost", "2", "-p", "no:xdist")

    assert stopped.ret == 11
    assert 30 <= asked <= 36
    stopped.assert_outcomes(passed=asked, skipped=75 - asked)
    stopped.stdout.fnmatch_lines(["*evaluated *0.1*", "*limit 1.2*", f"*{75 - asked} not run because of --max-cost*"])
    # And one question before the first item.
    assert report["usage"]["cost_usd"] == pytest.approx((asked + 1) * 0.005)
    assert report["usage"]["max_cost_usd"] == 1.2
    assert report["verdict"] == "incomplete"
    states = Counter((item["status"], (item["reason"] or {}).get("code")) for item in report["tempaffect"]["items"])
    assert states == {("measured", None): asked, ("not_run", "budget"): 75 - asked}
    assert report["usage"]["not_run_for_cost"] == 75 - asked
    assert report["tempaffect"]["cards"][0]["missing"]["n"] == 75 - asked
    assert resumed.ret == 0
    assert len(model.asked) == len(set(model.asked)) == 75


def test_conversations_stop_whole(project: Project, serve: Serve) -> None:
    """A conversation that the budget cut short is not run, whoever of the three was to speak, and is taken up again."""
    from tests.fakes import spiral_cast

    def cast(body: dict[str, Any], n: int) -> str | Reply | Fault:
        if "response_format" in body:
            return spiral_cast.judge(body)
        system = body["messages"][0]["role"] == "system"
        return spiral_cast.simulated_user(body) if system else spiral_cast.assistant(body)

    server = serve(cast)
    project.setenv("OPENAI_BASE_URL", server.base_url)
    toml = '[[model]]\nmatch = "*"\nmax_tokens = 100\nprice = { input = 0.0, output = 10000.0 }\n'
    project.write(spiral__toml=toml)
    run = ("--model=m", "--user-model=u", "--judge-model=j", "--suite=spiral", "--num-turns=2", "--run-id=r")
    few = ("-k", "st", "-p", "no:xdist", "--concurrency=4")

    stopped = project.pytest(*run, *few, "--max-cost=1.9")
    states = [conversation["status"] for conversation in project.report("r")["spiral"]["conversations"]]
    asked = len(server.requests)
    resumed = project.pytest(*run, *few, "--max-cost=100")
    bodies = [request.raw for request in server.requests]

    assert stopped.ret == 11
    assert set(states) == {"not_run"}
    assert 0 < asked * 0.05 <= 1.9
    assert {t["status"] for t in project.report("r")["spiral"]["conversations"] if t["transcript"]} == {"measured"}
    assert len(bodies) == len(set(bodies))
    assert resumed.parseoutcomes()["passed"] > 0


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("", "no price is known for --model m;*"),
        ('[[model]]\nmatch = "m"\nmax_tokens = "unset"\nprice = { input = 1, output = 1 }\n', "m has no token limit*"),
    ],
    ids=["no-price", "no-limit"],
)
def test_a_limit_that_could_not_be_kept_is_refused(project: Project, serve: Serve, toml: str, says: str) -> None:
    """Before anything is sent."""
    server = serve(ScriptedModel())
    project.reach(server)
    project.write(spiral__toml=toml)

    result = project.here(*RUN, "--max-cost", "1")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--max-cost: *{says}"])
    assert server.requests == []
    if not toml:
        pasted = ["    [[model]]", '    match = "m"', "    price = { input = ..., output = ... }"]
        assert "\n".join(pasted) in result.stderr.str()


def test_a_limit_below_the_first_question_is_raised_in_the_command(project: Project, serve: Serve) -> None:
    """The command to paste would end in the same way with the same limit."""
    project.reach(serve(ScriptedModel()))
    project.write(spiral__toml=PRICE)

    refused = project.here(*RUN, "--max-cost", "0.5")
    (command,) = (line for line in refused.errlines if line.startswith("    pytest "))

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*the budget of 0.5 USD is used up: *", "Then run:", "* --max-cost=5*"])
    assert project.pytest(*shlex.split(command)[1:]).ret == 0


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much"])
def test_a_wrong_amount_is_a_usage_error(project: Project, value: str) -> None:
    """A number of dollars above 0."""
    result = project.here("--model=dry/perfect", "--suite=tempaffect", f"--max-cost={value}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--max-cost*"])


def test_ini(project: Project) -> None:
    """The ini key is checked like the option."""
    project.write(pytest__ini="[pytest]\nspiral_max_cost = -1\n")

    result = project.here("--model=dry/perfect", "--suite=tempaffect")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*max-cost*above 0*"])
