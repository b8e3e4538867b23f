"""Runs over several workers, each in processes of their own: who stops, dies or repeats, and what is asked then."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.fakes import spiral_cast
from tests.fakes.openai_server import FakeOpenAI, Fault, Reply
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

PRESSURED = (
    "--model",
    "m",
    "--suite=tempaffect",
    "--prompting",
    "raw",
    "-m",
    "pressured_integrity",
    "--report-dir",
    "out",
    "--run-id",
    "r",
)
# Dies where an item is waited for, so many times as there are files missing.
DEADLY = """
import os, pathlib, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    for death in range({deaths}):
        mark = pathlib.Path({folder!r}, f"death-{{death}}")
        if "{at}" in item.name and not mark.exists():
            mark.touch()
            os._exit(1)
"""


def test_items_of_a_dead_worker_are_taken_over(project: Project, serve: Serve) -> None:
    """Its replacement runs what is left, from stored replies where there are any; nobody runs an item twice."""
    model = ScriptedModel()
    project.reach(serve(model, latency=0.05))
    project.write(deadly__py=DEADLY.format(deaths=2, folder=str(project.path), at="pi-05"))

    result = project.process(*PRESSURED, "-n", "2", "-p", "deadly", "--concurrency=4")

    result.assert_outcomes(passed=25)
    result.stdout.fnmatch_lines(["*2 rerun*"])
    # Each worker had two requests in flight at most when it died.
    assert len(model.asked) <= 25 + 2 * 2
    assert set(model.asked) == {("raw", f"pi-{n:02}") for n in range(1, 26)}


def test_an_item_that_kills_every_worker_is_given_up(project: Project) -> None:
    """After the third death it is a failure; all others are measured, and the report says what is missing."""
    project.write(deadly__py=DEADLY.format(deaths=9, folder=str(project.path), at="pi-05"))

    run = ("--model=dry/perfect", "--suite=tempaffect", "--prompting=raw")
    result = project.process(*run, "-n", "2", "-p", "deadly")

    result.assert_outcomes(passed=74, failed=1)
    assert len(list(project.path.glob("death-*"))) == 3
    missing = project.report()["tempaffect"]["cards"][0]["missing"]
    assert (missing["n"], missing["ids"]) == (1, ["pi-05"])
    # One lost item is within the limit; the test is an error all the same.
    assert result.ret == 0


# The other worker waits until the controller has been told of the failure, and then takes its time.
SLOW = """
import os, time
from pathlib import Path
TOLD = Path({told!r})
def pytest_runtest_logreport(report):
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        TOLD.touch()
def pytest_runtest_teardown(item):
    until = time.monotonic() + 60
    while "pi-01" not in item.name and not TOLD.exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep("pi-01" not in item.name and 0.3)
"""


def test_the_first_failure_stops_all_workers(project: Project, serve: Serve) -> None:
    """With -x the other worker begins nothing that it has not begun, and nothing of it is lost from the report."""
    model = ScriptedModel(replies={"pi-01": "no JSON"})
    project.reach(serve(model))
    project.write(slow__py=SLOW.format(told=str(project.path / "told")))

    result = project.process(*PRESSURED, "-n", "2", "-p", "slow", "--strict-items", "-x", "--concurrency=2")

    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes.get("passed", 0) <= 5
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("workers", [1, 2])
def test_no_eleventh_request(project: Project, serve: Serve, workers: int) -> None:
    """Ten at once over all models and all workers together, however many conversations wait."""
    roles = {"m": spiral_cast.assistant, "u": spiral_cast.simulated_user, "j": spiral_cast.judge}
    server = serve(lambda body, n: roles[body["model"]](body, n), latency=0.01, together=10)
    for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE"):
        project.setenv(f"{role}_BASE_URL", server.base_url)

    result = project.pytest(
        "--model=m", "--user-model=u", "--judge-model=j", "--suite=spiral", "--num-turns=3", "--concurrency=10",
        "-n", str(workers), "--no-preflight", "--benign-twins=off",
    )  # fmt: skip

    result.assert_outcomes(passed=30)
    assert server.peak == 10
    assert set(Counter(request.raw for request in server.requests).values()) == {1}


def test_the_limits_of_an_endpoint_are_in_the_report(project: Project, serve: Serve) -> None:
    """Where it answers 429, all workers give way together, and the report says how far."""
    model = ScriptedModel()
    server: FakeOpenAI = serve(
        lambda body, n: Fault.status_code(429) if server.in_flight > 6 else model(body, n), latency=0.02
    )
    project.reach(server)

    result = project.pytest(*PRESSURED, "-n", "2", "--concurrency=16")

    result.assert_outcomes(passed=25)
    (limits,) = json.loads((project.path / "out" / "r" / "report.json").read_text())["run"]["limits"]
    assert limits["endpoint"] == server.base_url
    assert [change["reason"] for change in limits["history"]][:2] == ["start", "429"]
    assert [change["most"] for change in limits["history"]][:2] == [16, 8]
    assert limits["lowest"] <= 8


def test_more_workers_than_requests_allowed(project: Project, serve: Serve) -> None:
    """Those that may not ask have nothing to run."""
    server = serve(ScriptedModel(), latency=0.01)
    project.reach(server)

    result = project.pytest(*PRESSURED, "-n", "2", "--concurrency=1")

    result.assert_outcomes(passed=25)
    assert server.peak == 1


def test_asking_everything_once_per_worker_is_refused(project: Project) -> None:
    """With the reason."""
    result = project.here("--model", "dry/perfect", "--suite=tempaffect", "-n", "2", "--dist", "each")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--dist each would send every request once per worker*"])


def test_another_distribution_is_respected(project: Project, serve: Serve) -> None:
    """Nothing is asked twice, and the header says what it costs."""
    model = ScriptedModel()
    project.reach(serve(model))

    result = project.pytest(*PRESSURED, "-n", "2", "--dist", "worksteal")

    result.assert_outcomes(passed=25)
    result.stdout.fnmatch_lines(["*with --dist worksteal each worker starts two items at a time*"])
    assert len(model.asked) == 25


def test_a_rerun_asks_again_only_what_failed(project: Project, serve: Serve) -> None:
    """pytest-rerunfailures: an instrument that failed gets another chance, a measurement stands."""
    pytest.importorskip("pytest_rerunfailures")
    broken = Fault.status_code(400, "not now")
    model = ScriptedModel(replies={"pi-03": broken, "pi-04": "no JSON"})
    asked: Counter[str] = Counter()

    def flaky(body: dict[str, Any], n: int) -> str | Reply | Fault:
        reply = model(body, n)
        if reply == broken:
            asked["pi-03"] += 1
            return broken if asked["pi-03"] == 1 else Reply("no JSON either")
        return reply

    project.reach(serve(flaky))

    result = project.pytest(
        *PRESSURED, "-n", "2", "-p", "rerunfailures", "--reruns=1", "--strict-items", "-k", "pi-03 or pi-04 or pi-05"
    )

    assert Counter(scenario for _, scenario in model.asked) == {"pi-03": 2, "pi-04": 1, "pi-05": 1}
    result.stdout.fnmatch_lines(["*2 failed, 1 passed*2 rerun*"])


def test_durations_are_the_units_own_and_workers_say_how_far_they_are(project: Project, serve: Serve) -> None:
    """Each item has the time of its own request; progress is neither a dot nor a test case."""
    project.reach(serve(ScriptedModel(), latency=0.6))
    project.write(
        eager__py="from pytest_spiral.plugin.terminal import Progress\n"
        "Progress.terminal_seconds = Progress.log_seconds = 0.1\n"
    )

    result = project.process(*PRESSURED, "-n", "2", "-p", "eager", "--junit-xml=junit.xml")

    result.assert_outcomes(passed=25)
    result.stdout.fnmatch_lines(["spiral: * of 25 units, *"])
    cases = ElementTree.parse(project.path / "junit.xml").getroot().findall(".//testcase")
    seconds = [float(case.attrib["time"]) for case in cases]
    assert len(seconds) == 25
    # Whoever comes late would otherwise have waited for nothing.
    assert min(seconds) >= 0.6


# pytest's terminal reporter, which workers have as well, keeps all reports.
COUNTING = """
import pathlib

def pytest_sessionfinish(session):
    kept = session.config.pluginmanager.get_plugin("terminalreporter").stats
    reports = [each for group in kept.values() for each in group if hasattr(each, "when")]
    holding = [each for each in reports if "spiral" in vars(each)]
    who = getattr(session.config, "workerinput", {"workerid": "controller"})["workerid"]
    pathlib.Path(PATH, who + ".txt").write_text(f"{len(reports)} reports, {len(holding)} with a result")
"""


def test_no_process_keeps_a_result_on_a_report(project: Project) -> None:
    """pytest keeps the reports, in workers and the controller; what the controller has read is no longer on them."""
    project.write(counting__py=COUNTING.replace("PATH", repr(str(project.path))))

    result = project.process(
        "--model=dry/perfect", "--suite=tempaffect", "--prompting=raw", "-k", "ps-01 or ps-02", "-n1", "-p", "counting"
    )

    result.assert_outcomes(passed=2)
    for who in ("gw0", "controller"):
        assert (project.path / f"{who}.txt").read_text() == "6 reports, 0 with a result"
