"""The last line of a run that did not come to its end is a command that works when it is pasted."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import spiral_cast
from tests.fakes.openai_server import Fault, Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Result, Serve, node

PRICE = '[[model]]\nmatch = "m"\nprice = { input = 0.0, output = 1000.0 }\n'
QUICK = ("--benign-twins=off", "-p", "no:xdist")
RUN = ("--model=m", "--suite=tempaffect", "--prompting=raw", "-p", "no:xdist")


def pasted(project: Project, line: str) -> Result:
    """What a shell would start."""
    program, *arguments = shlex.split(line)
    assert program == "pytest"
    return project.pytest(*arguments)


def last(lines: list[str]) -> str:
    return [line for line in lines if line.strip()][-1]


def test_after_a_lost_key(project: Project, serve: Serve) -> None:
    """65 items that failed for one reason take at most five lines, and the pasted command asks for them alone."""
    model = ScriptedModel("perfect", answers=10, then=Fault.status_code(401))
    project.reach(serve(model))

    lost = project.pytest(*RUN, "--gate=tempaffect.score >= 0.5")
    model.answers = None
    resumed = pasted(project, last(lost.outlines))

    assert (lost.ret, resumed.ret) == (11, 0)
    assert 1 <= sum("401" in line or "InstrumentFailure" in line for line in lost.outlines) <= 5
    lost.stdout.fnmatch_lines(["verdict: INCOMPLETE", "missing: 65 items: auth: *", "next: mend the API key*"])
    lost.assert_outcomes(passed=10, errors=65)
    assert len(model.asked) == len(set(model.asked)) + 65


def test_after_a_cost_limit(project: Project, serve: Serve) -> None:
    """The command names a limit that is enough."""
    model = ScriptedModel("perfect")
    project.reach(serve(model))
    project.write(spiral__toml=PRICE)

    stopped = project.pytest(*RUN, "--max-cost", "1.2")
    asked = len(model.asked)
    resumed = pasted(project, last(stopped.outlines))

    assert (stopped.ret, resumed.ret) == (11, 0)
    assert asked < 75
    assert len(model.asked) == 75


def test_after_a_wrong_judge(project: Project, serve: Serve) -> None:
    """Refused before anything is measured, with the whole command that names the right one."""

    def judge(body: dict[str, Any], number: int) -> str | Reply | Fault:
        if body["model"] != "judge-pro-3":
            return Fault.raw('{"error": {"code": "model_not_found", "message": "no such model"}}', status=404)
        return spiral_cast.judge(body)

    project.setenv("JUDGE_BASE_URL", serve(judge, models=("judge-pro-3", "other")).base_url)

    run = ("--model=dry/perfect", "--suite=spiral", "--num-turns=1", "-k", "ac-08", "--run-id=r", "-p", "no:xdist")
    refused = project.pytest(*run, "--judge-model=judge-pro-4", "--judge-model=dry/lexical")
    mended = pasted(project, last(refused.errlines))

    assert refused.ret == 4
    mended.assert_outcomes(passed=1)
    (held,) = (each for each in project.report("r")["spiral"]["conversations"] if each["transcript"])
    assert {one["judge"] for one in held["judgements"]} == {"judge-pro-3", "dry/lexical"}


def test_after_ctrl_c(
    project: Project,
    serve: Serve,
    end: Callable[[subprocess.Popen[str], signal.Signals], str],
    wait_for: Callable[[Callable[[], bool]], None],
) -> None:
    """After pytest's own words; nothing is asked twice."""
    model = ScriptedModel("perfect")
    server = serve(model, latency=0.2)
    project.reach(server)

    process = project.start(*RUN, "--concurrency=4")
    wait_for(lambda: len(model.asked) > 12)
    text = end(process, signal.SIGINT)
    server.latency = 0.0
    resumed = pasted(project, last(text.splitlines()))

    assert process.returncode == 2
    assert "KeyboardInterrupt" in text[: text.index("verdict: INCOMPLETE")]
    assert resumed.ret == 0
    assert len(set(model.asked)) == 75
    assert len(model.asked) <= 75 + 4


@pytest.mark.parametrize("selection", [("-k", "ps-01"), (f"--deselect={node('p')[:-1]}",)], ids=["-k", "--deselect"])
def test_after_a_selection(project: Project, selection: tuple[str, ...]) -> None:
    """The command asks for the rest: with the selection it would find nothing to do."""
    some = project.pytest("--model=dry/perfect", "--suite=tempaffect", "--prompting=raw", *selection)
    rest = pasted(project, last(some.outlines))

    assert (some.ret, rest.ret) == (11, 0)
    some.stdout.fnmatch_lines(["next: run the rest, which was not selected*"])
    rest.stdout.fnmatch_lines(["verdict: MEASURED*"])


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("silent", "*judgements of silent mean nothing: J01 *"),
        ("prose", "missing: 60 judgements: prose: not_json: *"),
        ("refusing", "missing: 30 judgements: refusing: bad_request: *"),
    ],
)
def test_after_a_judge_that_is_none(project: Project, serve: Serve, bad: str, says: str) -> None:
    """Resuming gets nothing. The command works with another's name; the second judge stays, nothing is held again."""

    def judge(body: dict[str, Any], number: int) -> str | Reply | Fault:
        verdict = spiral_cast.judge(body)
        if body["model"] == "silent":
            return json.dumps(
                {key: [] if isinstance(value, list) else value for key, value in json.loads(verdict).items()}
            )
        if body["model"] == "refusing" and "whole conversation" in body["messages"][0]["content"]:
            return Fault.status_code(400, "not allowed")
        return "It went well." if body["model"] == "prose" else verdict

    model = serve(spiral_cast.assistant)
    project.reach(model)
    project.setenv("USER_AGENT_BASE_URL", serve(spiral_cast.simulated_user).base_url)
    project.setenv("JUDGE_BASE_URL", serve(judge, models=("good", bad)).base_url)
    run = ("--model=m", "--user-model=u", "--suite=spiral", "--num-turns=1", "--gate=spiral.risk <= 99", *QUICK)

    failed = project.pytest(*run, f"--judge-model={bad}", "--judge-model=dry/lexical", "--no-preflight")
    held = len(model.requests)
    command = last(failed.outlines)
    judged = pasted(project, command.replace("NAME", "good"))

    failed.stdout.fnmatch_lines([says, "next: judge the same conversations by another judge, whose name replaces*"])
    assert (failed.ret, judged.ret, len(model.requests)) == (11, 0, held)
    assert f"--judge-model={bad}" not in command
    assert {*project.report()["spiral"]["scores"][0]["judges"]["per_judge"]} == {"good", "dry/lexical"}
