"""`--report-dir`: where the reports lie."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Project, Serve

ONE = ("--model", "dry/perfect", "--suite=tempaffect", "--prompting", "raw", "-k", "ps-01", "-p", "no:xdist")


def test_relative_to_where_the_user_stands(project: Project) -> None:
    """As every other path on a command line, whatever the project's root is; missing folders are made."""
    (project.path / "deep").mkdir()
    project.write(pytest__ini="[pytest]\n")

    result = project.pytest(*ONE, "--report-dir=out/of", "--run-id=r", cwd="deep")

    assert (project.path / "deep/out/of/r/report.json").is_file()
    result.stdout.fnmatch_lines(["report: out/of/r"])


def test_absolute(project: Project) -> None:
    """An absolute path is taken as it is."""
    target = project.path / "elsewhere"
    project.pytest(*ONE, f"--report-dir={target}", "--run-id=r", cwd=".")

    assert json.loads((target / "r" / "report.json").read_text())["run"]["id"] == "r"


def test_a_folder_that_cannot_be_made_is_a_usage_error(project: Project, serve: Serve) -> None:
    """Found out before anything is sent, not when the results are in."""
    server = serve()
    project.reach(server)
    project.write(reports="a file in the way")

    result = project.pytest("--model", "m", "--suite=tempaffect", "--prompting", "raw")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *reports*--report-dir*"])
    assert len(server.requests) == 0


def test_a_report_that_cannot_be_written_is_said(project: Project) -> None:
    """Something is in the place of `report.json`: exit code 4 and the way to resume."""
    project.write(
        in_the_way__py="import pathlib\n"
        "def pytest_runtest_logreport(report):\n"
        "    for run in pathlib.Path('reports').iterdir():\n"
        "        (run / 'report.json').mkdir(exist_ok=True)\n"
    )

    result = project.pytest(*ONE, "--run-id=r", "-p", "in_the_way")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = " ".join(result.stdout.str().split())
    assert "cannot be written" in said
    assert "--run-id r" in said
    assert "Traceback" not in said


def test_ini(project: Project) -> None:
    """The ini key sets it."""
    project.write(pytest__ini="[pytest]\nspiral_report_dir = out\n")
    project.pytest(*ONE, "--run-id=r")

    assert (project.path / "out/r/report.json").is_file()
