"""`--suite`: which bundled suites run."""

from __future__ import annotations

import pytest

DRY = ("--model", "dry/perfect", "--prompting", "raw")


def test_a_suite_by_name(project):
    """Naming the suite runs it."""
    assert len(project.collected(*DRY, "--suite", "tempaffect")) == 75


def test_naming_it_twice_is_naming_it_once(project):
    """Items are not doubled."""
    assert len(project.collected(*DRY, "--suite", "tempaffect", "--suite", "tempaffect")) == 75


def test_an_unknown_suite_is_a_usage_error(project):
    """The choices are listed."""
    result = project.here(*DRY, "--suite", "humour")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'humour'*tempaffect*"])


def test_ini(project):
    """The ini key is checked like the option."""
    project.write(pytest__ini="[pytest]\nspiral_suite = humour\n")

    result = project.here(*DRY)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*spiral_suite*'humour'*tempaffect*"])
