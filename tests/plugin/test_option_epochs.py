"""`--epochs`: asking every scenario several times."""

from __future__ import annotations

import pytest

from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import DISTRIBUTIONS, Project, Serve, node


def test_every_epoch_is_a_measurement_of_its_own(project: Project, serve: Serve) -> None:
    """The same question is sent again, is an item of its own, and a scenario's value is the mean over its epochs."""
    model = ScriptedModel("perfect")
    project.reach(serve(model))

    result = project.pytest(
        "--model",
        "m",
        "--suite=tempaffect",
        "--prompting",
        "raw",
        "--epochs",
        "3",
        "-k",
        "ps-01",
        *DISTRIBUTIONS["no-xdist"],
    )

    result.assert_outcomes(passed=3)
    report = project.report()
    assert model.asked == [("raw", "ps-01")] * 3
    assert [item["epoch"] for item in report["tempaffect"]["items"]] == [0, 1, 2]
    assert report["tempaffect"]["cards"][0]["epochs"] == 3
    assert report["tempaffect"]["cards"][0]["families"]["practical_support_under_affect"]["n"] == 1


def test_ids_of_later_epochs(project: Project) -> None:
    """The first epoch keeps the plain id, so that results of runs with fewer epochs match."""
    ids = project.collected("--model", "dry/perfect", "--suite=tempaffect", "--prompting", "raw", "--epochs", "2")

    assert ids[:2] == [node("pi-01"), node("pi-01-e2")]
    assert len(ids) == 150


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "99999"])
def test_a_wrong_number_is_a_usage_error(project: Project, value: str) -> None:
    """Whole numbers from 1."""
    result = project.here("--model", "dry/perfect", "--suite=tempaffect", f"--epochs={value}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--epochs*"])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pytest.ini", "[pytest]\nspiral_epochs = 2\n"),
        ("pyproject.toml", "[tool.pytest]\nspiral_epochs = 2\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\nspiral_epochs = "2"\n'),
    ],
    ids=["ini", "native", "ini-options"],
)
def test_ini(project: Project, file: str, text: str) -> None:
    """A number in classic and native settings."""
    (project.path / file).write_text(text)

    assert len(project.collected("--model", "dry/perfect", "--suite=tempaffect", "--prompting", "raw")) == 150


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pytest.ini", "[pytest]\nspiral_epochs = many\n"),
        ("pytest.ini", "[pytest]\nspiral_epochs = 0\n"),
        ("pyproject.toml", '[tool.pytest]\nspiral_epochs = "2"\n'),
        ("pyproject.toml", "[tool.pytest]\nspiral_epochs = true\n"),
        ("pyproject.toml", "[tool.pytest]\nspiral_epochs = [2]\n"),
    ],
    ids=["text", "zero", "native-text", "native-bool", "native-list"],
)
def test_a_wrong_ini_value_is_a_usage_error(project: Project, file: str, text: str) -> None:
    """One sentence that names the key, no traceback."""
    (project.path / file).write_text(text)

    result = project.here("--model", "dry/perfect", "--suite=tempaffect")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "epochs" in result.stderr.str()
    assert "Traceback" not in result.stderr.str()
