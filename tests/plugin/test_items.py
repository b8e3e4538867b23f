"""The bundled suites as pytest items: two ways in, and everything pytest can do with items."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from pytest_spiral.resources import scenarios_root
from tests.plugin.conftest import SUITE, Project, Serve, node

DRY = ("--model", "dry/perfect", "--suite=tempaffect")
RAW = (*DRY, "--prompting", "raw")


def test_ids_are_the_scenarios(project: Project) -> None:
    """One item per scenario and mode, under ids that say model, mode and scenario."""
    ids = project.collected(*DRY)

    families = [f"{family}-{number:02}" for family in ("pi", "ps", "rm") for number in range(1, 26)]
    assert [node(name, mode) for mode in ("schema", "raw") for name in families] == ids


@pytest.mark.parametrize(
    ("cwd", "config"),
    [
        (".", ""),
        ("deep/deeper", ""),
        (".", "[pytest]\ntestpaths = tests\n"),
        ("deep/deeper", "[pytest]\ntestpaths = tests\naddopts = -q\n"),
    ],
    ids=["root", "folder", "testpaths", "folder-testpaths"],
)
def test_without_a_path_the_bundled_suites_run_and_only_they(project: Project, cwd: str, config: str) -> None:
    """Wherever the user stands, whatever the project's own tests and settings are, the ids are the same."""
    (project.path / "deep" / "deeper").mkdir(parents=True)
    (project.path / "tests").mkdir()
    for folder in (".", "tests", "deep/deeper"):
        (project.path / folder / "test_own.py").write_text("def test_own(): assert False\n")
    if config:
        project.write(pytest__ini=config)

    ids = project.collected(*RAW, "-o", "addopts=", cwd=cwd)

    assert len(ids) == 75
    assert ids[0] == node("pi-01")


def test_a_path_of_the_users_own_runs_only_that(project: Project, anywhere: tuple[str, ...]) -> None:
    """`--model` with a path is for tests that use our fixtures: no bundled item runs, no report is written."""
    project.write(test_own__py="def test_own(): pass\n")

    result = project.pytest(*DRY, "test_own.py", *anywhere)

    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert not list(project.path.glob("reports/*/report.json"))


def test_bundled_and_own_tests_run_together(project: Project, anywhere: tuple[str, ...]) -> None:
    """Naming both runs both."""
    project.write(test_own__py="def test_own(): pass\n")

    result = project.pytest(*RAW, "test_own.py", node("ps-01"), *anywhere)

    result.assert_outcomes(passed=2)
    assert list(project.items()) == [("raw", "ps-01")]


@pytest.mark.parametrize(
    ("argument", "count"),
    [
        (SUITE, 75),
        (f"./{SUITE}", 75),
        (str(scenarios_root() / "test_tempaffect.py"), 75),
        (f"{SUITE}::test_scenario", 75),
        (node("ps-01"), 1),
        (f"{scenarios_root() / 'test_tempaffect.py'}::test_scenario[dry/perfect-raw-ps-01]", 1),
    ],
    ids=["file", "dotted", "absolute", "function", "item", "absolute-item"],
)
def test_node_ids_are_arguments(project: Project, argument: str, count: int) -> None:
    """What pytest prints can be given back to it, as file, function or item, here or where the package lies."""
    project.write(pytest__ini="[pytest]\n")

    # pytest looks for its settings beside the first path.
    ids = project.collected(*RAW, argument, "-c", "pytest.ini")

    assert len(ids) == count


def test_an_item_named_twice_runs_once(project: Project) -> None:
    """As in pytest."""
    assert project.collected(*RAW, node("ps-01"), SUITE).count(node("ps-01")) == 1


@pytest.mark.parametrize(
    "argument",
    [node("ps-99"), node("ps-01", "schema"), f"{SUITE}::test_nothing", f"{SUITE}::test_scenario[]", node("ps-01")[:-1]],
    ids=["scenario", "mode", "function", "empty", "cut off"],
)
def test_an_unknown_id_is_a_usage_error(project: Project, anywhere: tuple[str, ...], argument: str) -> None:
    """Nothing runs; one sentence names the id."""
    result = project.pytest(*RAW, argument, *anywhere)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stdout.str() + result.stderr.str()
    assert argument in said
    assert "Traceback" not in said
    assert not (project.path / "reports").exists()


def test_a_file_of_that_name_in_the_project_is_the_users(project: Project) -> None:
    """A project may have a scenarios/test_tempaffect.py of its own."""
    (project.path / "scenarios").mkdir()
    (project.path / SUITE).write_text("def test_own(): pass\n")

    assert project.collected(*RAW, SUITE) == [f"{SUITE}::test_own"]
    assert len(project.collected(*RAW)) == 75


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (("-k", "ps-01"), 2),
        (("-k", "schema and ps"), 25),
        (("-m", "tempaffect"), 150),
        (("-m", "pressured_integrity"), 50),
        (("-m", "repair_after_mistake and not spiral"), 50),
        (("--deselect", SUITE), 0),
        (("--deselect", f"{SUITE}::test_scenario[dry/perfect-schema"), 75),
    ],
    ids=["k", "k-mode", "m", "m-family", "m-expression", "deselect", "deselect-prefix"],
)
def test_selection(project: Project, args: tuple[str, ...], count: int) -> None:
    """`-k`, `-m` and `--deselect` work on the bundled items."""
    result = project.here(*DRY, "--collect-only", "-q", *args)

    assert sum("::" in line for line in result.outlines) == count


def test_collecting_sends_and_creates_nothing(project: Project, serve: Serve, anywhere: tuple[str, ...]) -> None:
    """`--collect-only` is free, also of an endpoint that needs a key."""
    server = serve()
    project.reach(server)

    result = project.pytest(
        "--model", "remote", "--suite=tempaffect", "--collect-only", "-q", "-p", "no:cacheprovider", *anywhere
    )

    assert result.ret == 0
    assert (len(server.requests), server.probes) == (0, 0)
    assert list(project.path.iterdir()) == []


def test_x_stops_at_the_first_failure(project: Project) -> None:
    """`-x` under --strict-items: one failed test, and a report marked as incomplete with what was answered by then."""
    result = project.pytest(
        "--model", "dry/malformed", "--suite=tempaffect", "--prompting", "raw", "--strict-items", "-x", "-p", "no:xdist"
    )

    result.assert_outcomes(failed=1)
    report = project.report()
    assert report["run"]["complete"] is False
    assert {item["status"] for item in report["tempaffect"]["items"]} == {"model_failed"}


def test_failed_items_are_found_again(project: Project) -> None:
    """`--lf` runs exactly the items whose tests failed."""
    args = ("--model", "dry/malformed", "--suite=tempaffect", "--prompting", "raw", "--strict-items", "-p", "no:xdist")
    project.pytest(*args, node("ps-01", model="dry/malformed"), node("pi-01", model="dry/malformed"))

    again = project.pytest(*args, "--lf")

    again.assert_outcomes(failed=2)


def test_junit_and_durations(project: Project, anywhere: tuple[str, ...]) -> None:
    """JUnit XML has one case per item under the id's own parts; `--durations` lists them."""
    args = (*RAW, "-k", "ps-01 or ps-02", "--junitxml", "out.xml", "--durations", "0", "-vv")
    result = project.pytest(*args, *anywhere)

    cases = ElementTree.parse(project.path / "out.xml").findall(".//testcase")
    assert sorted((case.get("classname"), case.get("name")) for case in cases) == [
        ("scenarios.test_tempaffect", "test_scenario[dry/perfect-raw-ps-01]"),
        ("scenarios.test_tempaffect", "test_scenario[dry/perfect-raw-ps-02]"),
    ]
    result.stdout.fnmatch_lines([f"*call *{SUITE}::test_scenario[[]dry/perfect-raw-ps-0[12][]]"])


def test_without_a_terminal_the_report_is_written(project: Project) -> None:
    """`-p no:terminal` is a quiet run like any other."""
    result = project.pytest(*RAW, "-k", "ps-01", "-p", "no:terminal", "-p", "no:xdist")

    assert result.stdout.str() == ""
    assert list(project.items()) == [("raw", "ps-01")]


def test_quiet_and_verbose(project: Project) -> None:
    """`-v` names items by their ids, not by where the package lies."""
    result = project.pytest(*RAW, "-k", "ps-01", "-v", "-p", "no:xdist")

    result.stdout.fnmatch_lines([f"{SUITE}::test_scenario[[]dry/perfect-raw-ps-01[]] PASSED*"])
    assert str(scenarios_root()) not in result.stdout.str()


def test_the_plugin_can_be_loaded_by_name(project: Project) -> None:
    """Without autoload, `-p pytest_spiral.plugin` is enough; a conftest may list it as well."""
    project.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.setenv("PYTEST_ADDOPTS", "")
    project.write(conftest__py='pytest_plugins = ["pytest_spiral.plugin"]\n')

    result = project.pytest("-p", "pytest_spiral.plugin", *RAW, "-k", "ps-01")

    result.assert_outcomes(passed=1)


def test_a_conftest_of_the_users_sees_the_items(project: Project) -> None:
    """Hooks of the user's conftest apply to bundled items as to their own."""
    project.write(
        conftest__py="import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if 'ps-02' in item.name: item.add_marker(pytest.mark.skip(reason='excluded by this conftest'))\n"
    )

    result = project.pytest(*RAW, node("ps-01"), node("ps-02"), "-p", "no:xdist")

    result.assert_outcomes(passed=1, skipped=1)
    assert list(project.items()) == [("raw", "ps-01")]


def test_the_installed_files_stay_clean(project: Project) -> None:
    """Running leaves nothing beside the package's files."""
    before = sorted(Path(scenarios_root()).rglob("*"))
    project.pytest(*RAW, "-k", "ps-01", "-p", "no:xdist")

    assert sorted(Path(scenarios_root()).rglob("*")) == before
