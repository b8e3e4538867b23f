"""`--run-id`: the name of a run."""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import Project

ONE = ("--model", "dry/perfect", "--suite=tempaffect", "--prompting", "raw", "-k", "ps-01", "-p", "no:xdist")


def test_the_name_is_the_folder(project: Project) -> None:
    """The report says it and `latest` points to it."""
    project.pytest(*ONE, "--run-id", "v1.2_rc-3")

    assert project.report("v1.2_rc-3")["run"]["id"] == "v1.2_rc-3"
    assert (project.path / "reports" / "latest").resolve() == project.folder("v1.2_rc-3")


def test_default_is_time_and_model(project: Project) -> None:
    """Without one, a name that sorts by time, shown in the header before anything is sent."""
    result = project.pytest(*ONE)

    (folder,) = [path.name for path in (project.path / "reports").iterdir() if not path.is_symlink()]
    assert re.fullmatch(r"\d{8}-\d{6}-dry-perfect", folder)
    result.stdout.fnmatch_lines([f"spiral: dry/perfect; suites tempaffect; run {folder}"])


@pytest.mark.parametrize("name", ["latest", "../out", "a/b", ".hidden", "x" * 101, "a b", "a\nb"])
def test_a_name_that_is_no_folder_is_a_usage_error(project: Project, name: str) -> None:
    """No name leads out of the report folder."""
    result = project.here(*ONE, f"--run-id={name}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --run-id: *is not a run name*"])
    assert not (project.path / "reports").exists()


def test_ini(project: Project) -> None:
    """The ini key names the run."""
    project.write(pytest__ini="[pytest]\nspiral_run_id = nightly\n")
    project.pytest(*ONE)

    assert project.report("nightly")["run"]["id"] == "nightly"
