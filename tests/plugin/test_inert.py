"""Without `--model` the plugin is not there: nothing collected, printed, imported or created."""

from __future__ import annotations

import re

import pytest

from pytest_spiral.settings import OPTIONS
from tests.fakes.forks import ADDRESS
from tests.plugin.conftest import Project

HEAVY = """
import sys

HEAVY = ["openai", "nltk", "numpy", "jsonschema", "jinja2", "pydantic", "aiohttp", "dotenv", "sqlite3", "asyncio"]
OURS = ["pytest_spiral.session", "pytest_spiral.chat", "pytest_spiral.hooks", "pytest_spiral.tempaffect"]


def test_nothing_heavy():
    assert "pytest_spiral.plugin" in sys.modules
    assert [name for name in HEAVY + OURS if name in sys.modules] == []
"""


def _said(result: pytest.RunResult) -> str:
    """What a run said, without times and the lines that list plugins, one of them pytest-metadata's."""
    lines = [line for line in result.outlines if not line.startswith(("plugins:", "metadata:"))]
    return re.sub(r"\d+\.\d+s", "TIME", "\n".join(lines))


def test_nothing_heavy_is_imported(project: Project) -> None:
    """Everybody who has the package installed pays for it in every run: the plugin costs the standard library only."""
    project.write(test_heavy__py=HEAVY)
    # A fork has everything imported.
    project.delenv(ADDRESS)

    result = project.process("-p", "no:asyncio", "-p", "no:xdist")

    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("args", [(), ("-v", "-rA"), ("--collect-only",)], ids=["plain", "verbose", "collect"])
def test_output_is_what_it_is_without_the_plugin(project: Project, args: tuple[str, ...]) -> None:
    """No header, no section, no item, no file of ours."""
    project.write(test_own__py="def test_own(): pass\n")
    args = (*args, "-p", "no:asyncio", "-p", "no:cacheprovider")

    with_plugin = project.pytest(*args)
    without = project.pytest(*args, "-p", "no:pytest_spiral.plugin")

    assert _said(with_plugin) == _said(without)
    assert [path.name for path in project.path.iterdir() if path.name != "__pycache__"] == ["test_own.py"]


def test_an_empty_folder_stays_empty(project: Project) -> None:
    """The bundled suites are not collected unless a model is named."""
    assert project.process("-p", "no:cacheprovider").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_no_warning_where_asyncio_is_unconfigured(project: Project) -> None:
    """pytest-asyncio comes with the package and warns until it is told its loop scope; an error under `-W error`."""
    project.write(test_own__py="def test_own(): pass\n")

    result = project.process("-W", "error", "-p", "no:xdist")

    result.assert_outcomes(passed=1, warnings=0)
    assert "Warning" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("way", ["ini", "override"])
def test_a_loop_scope_of_the_users_own_holds(project: Project, way: str) -> None:
    """What we set is a default; whoever has an opinion keeps it."""
    project.write(test_own__py="def test_own(): pass\n")
    args = ["-o", "asyncio_default_fixture_loop_scope=session"]
    if way == "ini":
        project.write(pytest__ini="[pytest]\nasyncio_default_fixture_loop_scope = session\n")
        args = []

    result = project.pytest(*args, "-p", "no:xdist")

    result.stdout.fnmatch_lines(["asyncio: *asyncio_default_fixture_loop_scope=session*"])


@pytest.mark.parametrize("model", [(), ("--model", "dry/perfect", "--suite=tempaffect")], ids=["inert", "model"])
def test_strict_projects_are_served(project: Project, model: tuple[str, ...]) -> None:
    """Markers and ini keys are registered, so `strict = true` and warnings as errors change nothing."""
    project.write(
        pyproject__toml='[tool.pytest]\nstrict = true\nfilterwarnings = ["error"]\nspiral_prompting = ["raw"]\n',
        test_own__py="def test_own(): pass\n",
    )

    result = project.pytest("--strict-markers", "--strict-config", "test_own.py", *model, "-p", "no:xdist")

    result.assert_outcomes(passed=1)


def test_help_shows_every_option_once_with_its_default(project: Project) -> None:
    """`pytest --help` describes an option once, short name first, and names its ini key."""
    text = " ".join(project.pytest("--help").stdout.str().split())

    for option in OPTIONS:
        value = "" if option.kind == "flag" else f"={option.metavar or '{' + ','.join(option.choices) + '}'}"
        names = f"{option.alias}{value}, " if option.alias != option.flag else ""
        assert text.count(f" {names}{option.flag}{value} {option.described()}") == 1
        assert f"{option.dest} (" in text
    assert text.count("default: reports)") == 1
    assert text.count("default: schema, raw)") == 1


def test_markers_are_listed(project: Project) -> None:
    """`pytest --markers` tells what `-m` may select."""
    result = project.pytest("--markers")

    result.stdout.fnmatch_lines(["@pytest.mark.tempaffect: *", "@pytest.mark.pressured_integrity: *"])
