"""`--suite`: which bundled suites run."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

DRY = ("--model", "dry/perfect", "--prompting", "raw")


def test_a_suite_by_name(project: Project) -> None:
    """Naming the suite runs it."""
    assert len(project.collected(*DRY, "--suite", "tempaffect")) == 75


def test_both_by_default(project: Project) -> None:
    """Conversations run beside scenarios, those of the benign twins among them."""
    found = project.collected(*DRY, "--spiral-suite=tempaffect", "--spiral-suite=spiral")

    assert sum("test_conversation" in name for name in found) == 30 + 12
    assert len(found) == 117


def test_a_name_known_to_one_suite_leaves_the_other_out(project: Project) -> None:
    """One line says so; the known suite runs."""
    result = project.here("--model=dry/echo", "--suite=tempaffect", "--suite=spiral", "--collect-only")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["spiral: dry/echo does not support spiral; skipping it"])
    result.stdout.no_fnmatch_line("*test_conversation*")


def test_naming_it_twice_is_naming_it_once(project: Project) -> None:
    """Items are not doubled."""
    assert len(project.collected(*DRY, "--suite", "tempaffect", "--suite", "tempaffect")) == 75


def test_an_unknown_suite_is_a_usage_error(project: Project) -> None:
    """The choices are listed."""
    result = project.here(*DRY, "--suite", "humour")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'humour'*tempaffect*"])


def test_ini(project: Project) -> None:
    """The ini key is checked like the option."""
    result = project.here(*DRY, "-o", "spiral_suite=humour")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*spiral_suite*'humour'*tempaffect*"])
