"""A real language model on this machine, through the plugin: the plumbing is what is proved, scores mean nothing."""

from __future__ import annotations

import importlib.util

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.local_file import LocalFile, locate
from tests.plugin.conftest import DISTRIBUTIONS, Project


@pytest.fixture(scope="module")
def local_file() -> LocalFile:
    """The small model, where it has been fetched."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed (extra `local`)")
    try:
        return locate("local/smollm2-135m")
    except ConfigError as error:
        pytest.skip(str(error))


def test_workers_share_one_server(project: Project, local_file: LocalFile) -> None:
    """Two workers, one server: a conversation, and a scenario of which an enforced schema, with room to finish and no
    loops, makes a measured item."""
    short = '[[model]]\nmatch = "local/*"\nsuite = "spiral"\nmax_tokens = 8\n'
    project.write(
        spiral__toml=short + '[[model]]\nmatch = "local/*"\nmax_tokens = 512\nextra_body.repeat_penalty = 1.2\n'
    )

    result = project.pytest(
        *("--model=local/smollm2-135m", "--suite=tempaffect", "--prompting=schema", "--suite=spiral", "--num-turns=1"),
        *("--user-model=dry/seeker", "--judge-model=dry/lexical", "-k", "ps-01 or td-01", "--benign-twins=off"),
        *DISTRIBUTIONS["n2"],
    )

    result.assert_outcomes(passed=2)
    report = project.report()
    (card,) = report["tempaffect"]["cards"]
    (held,) = (row for row in report["spiral"]["conversations"] if row["transcript"])
    assert project.items()["schema", "ps-01"]["status"] == "measured"
    # Cut short, which is its failure and not ours.
    assert held["status"] == "model_failed"
    assert card["integrity"]["served_models"] == ["local/smollm2-135m"]
    assert card["integrity"]["enforcement_verified"] is True
    assert report["usage"]["by_role"]["evaluated"]["completion_tokens"] > 0
    assert str(local_file.path.parent) not in (project.folder() / "report.json").read_text()
