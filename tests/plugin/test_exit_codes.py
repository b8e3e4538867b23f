"""Exit codes in their order of precedence: 4, 3, 2 (143), 1, 11, 10, 5, 0."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import spiral_cast
from tests.fakes.forks import ADDOPTS
from tests.fakes.report_page import page_data
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import DISTRIBUTIONS, Project, Serve, node

RAW = ("--model", "dry/perfect", "--suite=tempaffect", "--prompting", "raw")
VALID = "tempaffect.valid_output_rate"
GATES = {"pass": (f"{VALID} >= 0.9", 0), "inconclusive": (f"{VALID} >= 0.99", 10), "fail": (f"{VALID} <= 0.5", 1)}


@pytest.mark.parametrize("outcome", GATES)
def test_gates_decide(project: Project, outcome: str) -> None:
    """0 where all gates pass, 10 where the data leave one open, 1 where one fails; the verdict says the same."""
    gate, code = GATES[outcome]

    result = project.pytest(*RAW, "--gate", gate, "-p", "no:xdist")

    assert result.ret == code
    assert project.report()["verdict"] == outcome
    result.stdout.fnmatch_lines([f"verdict: {outcome.upper()}"])


def test_no_gate_is_no_condition(project: Project) -> None:
    """A complete run without gates ends well, and says that there were none."""
    result = project.pytest(*RAW, "-p", "no:xdist")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["verdict: MEASURED (no gates)"])


def test_too_much_missing_is_no_verdict(project: Project) -> None:
    """A part of the suite is no measurement of the suite: 11, unless a gate fails whatever the rest would be."""
    assert project.pytest(*RAW, "-m", "pressured_integrity", "-p", "no:xdist").ret == 11
    gate = ("--gate", "tempaffect.families.pressured_integrity.score <= 0.1")
    assert project.pytest(*RAW, "-m", "pressured_integrity", *gate, "-p", "no:xdist").ret == 1


def test_one_missing_is_within_the_limit(project: Project, serve: Serve) -> None:
    """One of 75 may be missing; gates are then decided on its worst case."""
    model = ScriptedModel(answers=74)
    project.reach(serve(model))

    result = project.pytest(
        "--model",
        "m",
        "--suite=tempaffect",
        "--prompting",
        "raw",
        "--gate",
        f"{VALID} >= 0.9",
        "--gate-policy",
        "point",
        "-p",
        "no:xdist",
    )

    result.assert_outcomes(passed=74, errors=1)
    assert result.ret == 0
    (gate,) = project.report()["gates"]
    assert (gate["outcome"], gate["worst_case"], gate["best_case"], gate["value"]) == ("pass", "pass", "pass", 1.0)


def test_plugins_that_add_up_exit_codes_change_none(
    project: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Syrupy adds the status it was given, in which a lost item is a failed test: 10 would be 11, and 0 would be 1."""
    model = ScriptedModel(answers=74)
    project.reach(serve(model))
    monkeypatch.setenv("PYTEST_ADDOPTS", ADDOPTS.replace("-p no:syrupy", ""))
    run = ("--model", "m", "--suite=tempaffect", "--prompting", "raw", "--run-id", "r", "-p", "no:xdist")

    alone = project.pytest(*run)
    model.answers = 0
    inconclusive = project.pytest(*run, "--gate", "tempaffect.score >= 0.99")

    alone.assert_outcomes(passed=74, errors=1)
    assert [alone.ret, inconclusive.ret] == [0, 10]


def test_everything_missing(project: Project) -> None:
    """A selection that leaves nothing is a run in which everything is missing."""
    result = project.pytest(*RAW, "-k", "no-such-item", "-p", "no:xdist")

    assert result.ret == 11
    assert project.report()["tempaffect"]["cards"][0]["missing"]["n"] == 75


def test_nothing_collected(project: Project, anywhere: tuple[str, ...]) -> None:
    """5 where a path of the user's own holds no test."""
    (project.path / "empty").mkdir()

    assert project.pytest(*RAW, "empty", *anywhere).ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize(
    ("own", "args"),
    [
        ("def test_own(): assert False\n", ("-n", "1")),
        ("import pytest\n@pytest.fixture\ndef broken(): raise OSError\ndef test_own(broken): pass\n", ("-n", "0")),
    ],
    ids=["failure", "error"],
)
def test_a_users_own_failure_comes_first(project: Project, own: str, args: tuple[str, ...]) -> None:
    """1, though every gate passes or is open."""
    project.write(test_own__py=own)

    result = project.pytest(*RAW, "--gate", f"{VALID} >= 0.99", "scenarios/test_tempaffect.py", "test_own.py", *args)

    assert result.ret == 1
    assert project.report()["verdict"] == "inconclusive"


def test_a_test_file_that_cannot_be_imported(project: Project, anywhere: tuple[str, ...]) -> None:
    """As in pytest: collection errors interrupt the run."""
    project.write(test_own__py="import no_such_module\n")

    result = project.pytest(*RAW, node("ps-01"), "test_own.py", *anywhere)

    assert result.ret in (1, 2)
    result.stdout.fnmatch_lines(["E   ModuleNotFoundError: No module named 'no_such_module'"])


@pytest.mark.parametrize(
    ("group", "distribution"), [(True, "n2"), (False, "no-xdist")], ids=["terminal-n2", "process-no-xdist"]
)
def test_ctrl_c(
    project: Project,
    serve: Serve,
    wait_for: Callable[..., None],
    end: Callable[..., str],
    group: bool,
    distribution: str,
) -> None:
    """2, with a report of what was measured by then, marked as incomplete. A terminal signals all processes, a
    supervisor only the first."""
    model = ScriptedModel()
    project.reach(serve(model, latency=0.1))

    process = project.start(
        "--model",
        "m",
        "--suite=tempaffect",
        "--prompting",
        "raw",
        "--concurrency",
        "2",
        "--run-id",
        "r",
        "--gate",
        f"{VALID} >= 0.9",
        *DISTRIBUTIONS[distribution],
    )
    wait_for(lambda: len(model.asked) >= 12)
    text = end(process, signal.SIGINT, group=group)

    report = project.report("r")
    assert process.returncode == 2
    assert report["run"]["complete"] is False
    assert report["verdict"] == "incomplete"
    assert 1 <= len(report["tempaffect"]["items"]) < 75
    assert '"complete":false' in page_data(project.folder("r") / "report.html")
    assert "INTERNALERROR" not in text
    assert "Exception ignored" not in text
    assert "never awaited" not in text
    assert "verdict: INCOMPLETE" in text


def test_sigterm(project: Project, serve: Serve, wait_for: Callable[..., None], end: Callable[..., str]) -> None:
    """143, with a report, as when a CI job is cancelled."""
    model = ScriptedModel()
    project.reach(serve(model, latency=0.1))

    process = project.start(
        "--model", "m", "--suite=tempaffect", "--prompting", "raw", "--concurrency", "2", "--run-id", "r", "-n", "1"
    )
    wait_for(lambda: len(model.asked) >= 12)
    text = end(process, signal.SIGTERM, group=False)

    assert process.returncode == 143
    assert project.report("r")["run"]["complete"] is False
    assert "INTERNALERROR" not in text
    assert "verdict: INCOMPLETE" in text


def test_sigterm_before_the_first_item(
    project: Project, serve: Serve, wait_for: Callable[..., None], end: Callable[..., str]
) -> None:
    """143, and nothing more is asked: an event loop may not take the end for the failure of one call."""
    asked: list[int] = []

    def judge(body: dict[str, Any], number: int) -> str:
        asked.append(number)
        return spiral_cast.judge(body, number)

    project.setenv("JUDGE_BASE_URL", serve(judge, latency=0.2, models=("j",)).base_url)
    process = project.start(
        "--model=dry/perfect", "--judge-model=j", "--suite=spiral", "--num-turns=1", "--concurrency=4", "--run-id=r",
        "-p", "no:xdist",
    )  # fmt: skip
    wait_for(lambda: len(asked) >= 12)
    text = end(process, signal.SIGTERM, group=False)

    assert process.returncode == 143, text
    assert len(asked) <= 12 + 8
    assert "INTERNALERROR" not in text
    assert not (project.folder("r") / "report.json").exists()


def test_an_internal_error_stays_one(project: Project) -> None:
    """3 where another plugin breaks; the report is written all the same."""
    project.write(broken__py="def pytest_runtest_logfinish(): 1 / 0\n")

    result = project.pytest(*RAW, "-k", "ps-01", "-p", "no:xdist", "-p", "broken")

    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert project.report()["run"]["complete"] is False
