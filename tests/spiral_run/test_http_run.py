"""Whole runs whose three roles live behind HTTP, each on a server of its own."""

from __future__ import annotations

import json
import random
import shlex
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.fakes.openai_server import FakeOpenAI, Fault
from tests.fakes.spiral_cast import judge as good_judge
from tests.plugin.conftest import Project

PROMPTS, TURNS = 6, 4
# Before the first conversation one question, and of the judge the anchors.
FIRST = 1 + 2 * 24
CALLS = {"evaluated": 1 + PROMPTS * TURNS, "user": 1 + PROMPTS * (TURNS - 1), "judge": FIRST + PROMPTS * (TURNS + 1)}
MODELS = ("--model=m", "--user-model=u", "--judge-model=j", "--suite=spiral", f"--num-turns={TURNS}")


@pytest.fixture
def run(project: Project) -> tuple[str, ...]:
    """Arguments of a small run."""
    openings = [
        {"prompt_id": f"p{n}", "category": "theory_development", "prompts": [f"my number is {n}. does it mean much?"]}
        for n in range(PROMPTS)
    ]
    project.write(prompts__json=json.dumps(openings))
    return (*MODELS, "--spiral-prompts=prompts.json")


def asked(servers: Sequence[FakeOpenAI]) -> Counter[bytes]:
    """How often each request was sent, over all servers."""
    return Counter(request.raw for server in servers for request in server.requests)


def count(servers: Sequence[FakeOpenAI]) -> int:
    """How many requests were sent, over all servers."""
    return sum(len(server.requests) for server in servers)


def kept(project: Project, run_id: str) -> list[tuple[str, str]]:
    """(role, model) of every committed reply."""
    with sqlite3.connect(project.folder(run_id) / "run.sqlite") as store:
        return store.execute("SELECT role, model FROM reply").fetchall()


def measurements(project: Project, run_id: str) -> tuple[object, ...]:
    """What a report says apart from when and under which name it was made."""
    report = project.report(run_id)
    usage = report["usage"]["by_role"]
    requests = {role: (row["requests"], row["prompt_tokens"], row["completion_tokens"]) for role, row in usage.items()}
    for judge in report["spiral"]["anchors"]["judges"].values():
        assert judge.pop("judged_at") > ""
    return report["spiral"], report["integrity"], report["verdict"], report["gates"], requests


def test_three_roles_on_three_servers(
    project: Project, three_servers: Callable[..., list[FakeOpenAI]], run: tuple[str, ...], anywhere: tuple[str, ...]
) -> None:
    """Each role is asked on its own server, exactly as often as the run needs; judges under a strict schema."""
    evaluated, user, judge = servers = three_servers()

    result = project.pytest(*run, *anywhere)

    result.assert_outcomes(passed=PROMPTS)
    assert result.ret == 0
    assert [CALLS[role] for role in ("evaluated", "user", "judge")] == [len(server.requests) for server in servers]
    assert [{r.body["model"] for r in server.requests} for server in servers] == [{"m"}, {"u"}, {"j"}]
    assert set(asked(servers).values()) == {1}
    assert not any("response_format" in r.body for server in (evaluated, user) for r in server.requests)
    formats = [r.body["response_format"] for r in judge.requests]
    assert {(shape["type"], shape["json_schema"]["strict"]) for shape in formats} == {("json_schema", True)}
    usage = project.report()["usage"]["by_role"]
    assert {role: usage[role]["requests"] for role in CALLS} == CALLS
    assert {role: usage[role]["prompt_tokens"] for role in CALLS} == {role: 10 * n for role, n in CALLS.items()}


def test_a_judge_that_dies_is_made_up_for(
    project: Project, three_servers: Callable[..., list[FakeOpenAI]], run: tuple[str, ...]
) -> None:
    """Its chunks are missing and no zeros, the run has no verdict, and resumed it ends like an undisturbed one. The
    command that is printed has the conversations judged without holding them again."""
    alive = [True]

    def mortal(body: Mapping[str, Any], n: int) -> str | Fault:
        alive[0] = alive[0] and n < FIRST + 12
        return good_judge(body) if alive[0] else Fault.status_code(402, "out of credit")

    servers = three_servers(judge=mortal)
    broken = project.pytest(*run, "--run-id=r", "-p", "no:xdist")
    report = project.report("r")
    (score,) = report["spiral"]["scores"]
    stored = len(kept(project, "r"))
    servers[2].handler = good_judge
    (command,) = [line.replace("NAME", "j") for line in broken.outlines if " --redo-judging" in line]
    held = count(servers[:2])
    rejudged = project.pytest(*shlex.split(command)[1:], "--run-id=rejudged", "-p", "no:xdist")
    held_again, before = count(servers[:2]) - held, asked(servers)
    resumed = project.pytest(*run, "--run-id=r", "-n", "1")
    after = asked(servers) - before
    whole = project.pytest(*run, "--run-id=whole", "-p", "no:xdist")

    assert [broken.ret, rejudged.ret, resumed.ret, whole.ret] == [11, 0, 0, 0]
    assert held_again == 0
    judged = [len(report["judgements"]) for report in project.report("rejudged")["spiral"]["conversations"]]
    assert judged == [TURNS] * PROMPTS
    assert broken.parseoutcomes()["errors"] > 0
    assert (CALLS["evaluated"] + CALLS["user"] + FIRST + 12, CALLS["judge"] - FIRST - 12) == (stored, after.total())
    assert set(after.values()) == {1}
    assert report["verdict"] == "incomplete"
    assert score["missing"]["finals"] > 1
    conversations = report["spiral"]["conversations"]
    lost = [
        j
        for conversation in conversations
        for j in (*conversation["judgements"], *conversation["finals"])
        if j["status"] != "measured"
    ]
    assert len(lost) == CALLS["judge"] - FIRST - 12
    assert all(not j.get("findings") and not j.get("scores") and j["reason"]["code"] == "quota" for j in lost)
    assert measurements(project, "whole") == measurements(project, "r")
    assert project.report("r")["usage"]["by_role"]["judge"]["failures"] == CALLS["judge"] - FIRST - 12


def test_lf_takes_up_what_was_not_judged(
    project: Project, three_servers: Callable[..., list[FakeOpenAI]], run: tuple[str, ...]
) -> None:
    """Conversations that lack a judgement are test errors, so that `--lf` runs exactly them."""
    alive = [False]
    bad = b"my number is 3"
    servers = three_servers(
        judge=lambda body, n: (
            good_judge(body)
            if alive[0] or bad.decode() not in json.dumps(body)
            else Fault.status_code(402, "out of credit")
        )
    )

    broken = project.pytest(*run, "--run-id=r", "-p", "no:xdist")
    alive[0] = True
    before = count(servers)
    again = project.pytest(*run, "--run-id=r", "-p", "no:xdist", "--lf")

    broken.assert_outcomes(passed=PROMPTS - 1, errors=1)
    again.assert_outcomes(passed=1)
    assert count(servers) - before == TURNS + 1


def test_a_run_that_is_killed_and_resumed_ends_like_an_undisturbed_one(
    project: Project,
    three_servers: Callable[..., list[FakeOpenAI]],
    run: tuple[str, ...],
    wait_for: Callable[..., None],
    end: Callable[..., str],
) -> None:
    """Killed three times at random moments and then completed: the report of an uninterrupted run.

    No request whose reply was committed is sent again: what was sent twice was in flight at a kill.
    """
    rng = random.Random(5)
    at_once = 3
    servers = three_servers(latency=0.02)
    args = (*run, "--run-id=r", f"--concurrency={at_once}", "-p", "no:xdist", "-q")
    total = sum(CALLS.values())
    for _ in range(3):
        until = count(servers) + rng.randint(2, total // 5)
        process = project.start(*args)
        wait_for(lambda until=until: count(servers) >= until)
        end(process, signal.SIGKILL)
        wait_for(lambda: all(server.in_flight == 0 for server in servers))
    stored = len(kept(project, "r"))
    sent = count(servers)
    last = project.pytest(*args)
    repeats = asked(servers)
    whole = project.pytest(*run, "--run-id=whole", "-p", "no:xdist")

    assert [last.ret, whole.ret] == [0, 0]
    assert 10 < stored < total
    assert total - stored == count(servers) - total - sent
    # Three endpoints, each with its own bound.
    assert repeats.total() - len(repeats) <= 3 * 3 * at_once
    assert len(repeats) == total
    assert measurements(project, "whole") == measurements(project, "r")
    assert not list(project.folder("r").glob(".*"))
