"""The short option names are ours only as long as nobody else wants them."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

THEIRS = """
def pytest_addoption(parser):
    parser.addoption("--model", default="resnet")
    parser.addoption("--baseline", action="store_true")
    parser.addoption("--gate", type=float)
    parser.addoption("--seed", type=int, default=7, dest="their_seed")
"""
USE = """
def test_theirs(pytestconfig):
    found = [pytestconfig.getoption(name) for name in ("--model", "--baseline", "--gate", "--seed")]
    assert found == ["vgg", True, 0.5, 3]
"""
GIVEN = ("--model", "vgg", "--baseline", "--gate", "0.5", "--seed=3")


@pytest.fixture(params=["conftest", "plugin", "conftest-plugin"])
def their_options(request: pytest.FixtureRequest, project: Project) -> tuple[str, ...]:
    """A project with its own --model, --baseline, --gate and --seed; the arguments it takes to load them."""
    project.write(test_theirs__py=USE)
    if request.param == "conftest":
        project.write(conftest__py=THEIRS)
        return ()
    project.write(their_plugin__py=THEIRS)
    if request.param == "plugin":
        return ("-p", "their_plugin")
    project.write(conftest__py='pytest_plugins = ["their_plugin"]\n')
    return ()


def test_their_options_keep_their_meaning(project: Project, their_options: tuple[str, ...]) -> None:
    """Nothing of a project breaks that had these options first, and the plugin stays inert."""
    result = project.pytest(*their_options, *GIVEN)

    result.assert_outcomes(passed=1)
    assert "spiral:" not in result.stdout.str()
    assert not (project.path / "reports").exists()


def test_prefixed_names_work_beside_them(project: Project, their_options: tuple[str, ...]) -> None:
    """The prefixed names are always ours."""
    ours = (
        "--spiral-model",
        "dry/perfect",
        "--spiral-suite=tempaffect",
        "--spiral-gate",
        "tempaffect.valid_output_rate >= 0.5",
        "--spiral-seed=5",
    )
    nodes = ("scenarios/test_tempaffect.py", "-k", "theirs or ps-01", "--spiral-prompting=raw")

    result = project.pytest(*their_options, *GIVEN, *ours, *nodes, "test_theirs.py")

    result.assert_outcomes(passed=2)
    config = project.report()["run"]["config"]
    assert (config["model"], config["seed"]) == (["dry/perfect"], 5)
    assert [gate["metric"] for gate in project.report()["gates"]] == ["tempaffect.valid_output_rate"]


def test_workers_know_both_meanings(project: Project) -> None:
    """An xdist worker reads the same command line."""
    project.write(conftest__py=THEIRS, test_theirs__py=USE)
    nodes = ("scenarios/test_tempaffect.py", "-k", "theirs or ps-01", "--spiral-prompting=raw")

    result = project.pytest(
        *GIVEN, "--spiral-model", "dry/perfect", "--spiral-suite=tempaffect", *nodes, "test_theirs.py", "-n", "1"
    )

    result.assert_outcomes(passed=2)


def test_short_names_work_where_they_are_free(project: Project) -> None:
    """Without such a project the short names mean the prefixed ones."""
    ids = project.collected("--model", "dry/perfect", "--suite=tempaffect", "--prompting", "raw")

    assert len(ids) == 75


def test_only_the_taken_name_yields(project: Project) -> None:
    """Names are taken one by one, not all or none."""
    project.write(conftest__py='def pytest_addoption(parser):\n    parser.addoption("--model")\n')

    ids = project.collected(
        "--model", "theirs", "--spiral-model", "dry/perfect", "--spiral-suite=tempaffect", "--prompting", "raw"
    )

    assert len(ids) == 75


@pytest.mark.parametrize(
    "model", [(), ("--spiral-model", "dry/perfect", "--spiral-suite=tempaffect")], ids=["inert", "model"]
)
def test_a_conftest_that_is_loaded_late_may_have_them(project: Project, model: tuple[str, ...]) -> None:
    """pytest loads the conftest of a deeper folder during collection: the names must be free then, too."""
    folder = project.pytester.mkpydir("deep") / "deeper"
    folder.mkdir()
    (folder / "conftest.py").write_text(THEIRS)
    (folder / "test_late.py").write_text(
        'def test_late(pytestconfig):\n    assert pytestconfig.getoption("--seed", 9) == 7\n'
        '    assert pytestconfig.getoption("--model") == "resnet"\n'
    )

    result = project.pytest("deep", *model, "-p", "no:xdist")

    result.assert_outcomes(passed=1)
