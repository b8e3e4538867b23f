"""A real language model on this machine, through the plugin: the plumbing is what is proved, scores mean nothing."""

from __future__ import annotations

import importlib.util

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.local_file import LocalFile, locate
from pytest_spiral.models.local_server import LocalServer
from tests.plugin.conftest import DISTRIBUTIONS, Project

# A request costs this machine seconds. Short answers: long ones would cost minutes and prove no more.
TWO = ("-k", "ps-01 or pi-01")
SHORT = '[[model]]\nmatch = "{name}"\nmax_tokens = 12\nconcurrency = 1\n'


@pytest.fixture(scope="module")
def local_file() -> LocalFile:
    """The small model, where it has been fetched."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed (extra `local`)")
    try:
        return locate("local/smollm2-135m")
    except ConfigError as error:
        pytest.skip(str(error))


def _outputs(project: Project, run: str) -> dict[tuple[str, str], tuple[str, object]]:
    return {key: (item["status"], item["output"]) for key, item in project.items(run).items()}


def test_workers_share_one_server(project: Project, local_file: LocalFile) -> None:
    """Two workers, one server: every item is an answer of the model, and the same answer as of that server without
    workers, reached through the environment like anybody's and without a key."""
    project.write(spiral__toml=SHORT.format(name="local/*") + SHORT.format(name="smol"))
    raw = ("--suite=tempaffect", "--prompting=raw")

    over_two = project.pytest("--model=local/smollm2-135m", *raw, *TWO, *DISTRIBUTIONS["n2"], "--run-id=two")
    with LocalServer(local_file) as server:
        project.setenv("EVALUATED_MODEL_BASE_URL", server.base_url)
        alone = project.pytest("--model=smol", *raw, "-k", "ps-01", *DISTRIBUTIONS["no-xdist"], "--run-id=alone")

    over_two.assert_outcomes(passed=2)
    alone.assert_outcomes(passed=1)
    outputs = _outputs(project, "two")
    again = _outputs(project, "alone")
    (card,) = project.report("two")["tempaffect"]["cards"]
    assert all(text for _, text in outputs.values())
    assert {key: outputs[key] for key in again} == again
    assert card["integrity"]["served_models"] == ["local/smollm2-135m"]
    assert card["integrity"]["enforcement_verified"] is None
    assert project.report("two")["usage"]["by_role"]["evaluated"]["completion_tokens"] > 0
    assert str(local_file.path.parent) not in (project.folder("two") / "report.json").read_text()


def test_a_schema_makes_a_valid_answer(project: Project, local_file: LocalFile) -> None:
    """With room to finish and no loops, an enforced schema turns even this model's answer into a measured item."""
    project.write(spiral__toml='[[model]]\nmatch = "local/*"\nmax_tokens = 512\nextra_body.repeat_penalty = 1.2\n')
    result = project.pytest(
        "--model=local/smollm2-135m",
        "--suite=tempaffect",
        "--prompting",
        "schema",
        "-k",
        "ps-01",
        *DISTRIBUTIONS["no-xdist"],
    )

    result.assert_outcomes(passed=1)
    assert project.report()["tempaffect"]["cards"][0]["integrity"]["enforcement_verified"] is True
    assert [item["status"] for item in project.items().values()] == ["measured"]
