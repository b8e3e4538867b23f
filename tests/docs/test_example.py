"""The example project runs as its README says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_code_blocks import cast
from tests.fakes.forks import ADDOPTS
from tests.fakes.openai_server import fake_openai
from tests.plugin.conftest import few_resamples

__all__ = ["few_resamples"]

Run = Callable[..., pytest.RunResult]
EXAMPLE = Path(__file__).parents[2] / "examples" / "own-suite"


@pytest.fixture
def example(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A copy of the project, and a way to run its commands in this process."""
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{ADDOPTS} -p no:xdist -p no:cacheprovider")
    source = (EXAMPLE / "tests" / "test_deliveries.py").read_text()
    good = " ".join(re.findall(r'"(.*?)"', source.split("GOOD = (")[1].split(")")[0])).replace("  ", " ")

    def answer(body: dict[str, Any], number: int) -> Any:
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


def test_every_command_of_the_readme_works(example: Run) -> None:
    """Without a model, with one, with the bundled scenarios and their gate, with openings of its own."""
    plain, ours, both, conversations = (example(*args) for args in commands())

    plain.assert_outcomes(passed=1, skipped=2)
    ours.assert_outcomes(passed=3)
    both.assert_outcomes(passed=150)
    conversations.assert_outcomes(passed=1)
    assert [result.ret for result in (plain, ours, both, conversations)] == [0, 0, 0, 0]
    assert "gate PASS" in both.stdout.str()
