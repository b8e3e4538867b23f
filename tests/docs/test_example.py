"""The example project runs as its README says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.test_code_blocks import cast
from tests.fakes.openai_server import fake_openai

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-suite"


@pytest.fixture
def example(pytester, monkeypatch):
    """A copy of the project, and a way to run its commands in this process."""
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:randomly -p no:xdist -p no:cacheprovider")
    source = (EXAMPLE / "tests" / "test_deliveries.py").read_text()
    good = " ".join(re.findall(r'"(.*?)"', source.split("GOOD = (")[1].split(")")[0])).replace("  ", " ")

    def answer(body, number):
        ours = any("parcel service" in m["content"] for m in body["messages"] if m["role"] == "system")
        return good if ours else cast(body, number)

    with fake_openai(answer, models=("my-model",)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.delenv("EVALUATED_MODEL_BASE_URL", raising=False)
        yield lambda *args: pytester.runpytest_inprocess(*args)


def commands() -> list[list[str]]:
    """Arguments of the README's pytest commands."""
    lines = re.findall(r"^\$ pytest(.*?)(?:\s+#.*)?$", (EXAMPLE / "README.md").read_text(), re.M)
    return [line.split() for line in lines]


def test_every_command_of_the_readme_works(example, pytester):
    """Without a model, with one, with the bundled scenarios and their gate, with openings of its own."""
    plain, ours, both, talks = (example(*args) for args in commands())

    plain.assert_outcomes(passed=1, skipped=2)
    ours.assert_outcomes(passed=3)
    both.assert_outcomes(passed=150)
    talks.assert_outcomes(passed=1)
    assert [result.ret for result in (plain, ours, both, talks)] == [0, 0, 0, 0]
    assert "gate PASS" in both.stdout.str()
