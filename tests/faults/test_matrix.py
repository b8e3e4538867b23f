"""A part of the fault matrix: every nature of fault in every role. The whole is `python -m benchmarks.fault_matrix`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_spiral.status import ReasonCode
from tests.fakes.openai_server import Fault, Reply, Rule, Script
from tests.faults.catalogue import CATALOGUE, COLUMNS, Column
from tests.faults.matrix import Mode, play

DOCS = Path(__file__).parents[2] / "docs" / "validation" / "faults.md"
# Harmless, passing, final, unusable: once and for good in turn.
PART = {"model name changes": "always", "503 with Retry-After": "once", "401": "once", "key said twice": "always"}
CELLS = [(name, column, mode) for name, mode in PART.items() for column in COLUMNS] + [
    ("connection refused for a while", "tempaffect", "once"),
    ("body of 10 MB", "judge", "always"),
    ("429", "assistant", "always"),
    ("hang", "user", "once"),
    ("cut at the token limit", "user", "once"),
]


@pytest.mark.parametrize(("name", "column", "mode"), CELLS)
def test_every_promise_holds_in_a_cell(name: str, column: Column, mode: Mode) -> None:
    """State, class, retries, exit code, bounded time, resume as if undisturbed, and no key anywhere."""
    (case,) = [case for case in CATALOGUE if case.name == name]

    assert play(case, column, mode).problems == []


def test_the_documented_matrix_is_of_this_catalogue() -> None:
    """The docs show every fault, none twice, and none that did not hold."""
    rows = re.findall(
        r"^\| (?!fault |-)([^|]+?) \|.*\|$",
        DOCS.read_text().partition("<!-- matrix -->")[2].partition("\n## ")[0],
        re.MULTILINE,
    )

    assert rows == [case.name for case in CATALOGUE]
    assert "FAILED" not in DOCS.read_text()


def test_a_wrong_expectation_fails_its_cell() -> None:
    """The checks of the matrix can fail."""
    (case,) = [case for case in CATALOGUE if case.name == "401"]
    wrong = type(case)(case.name, case.make, "passing", ReasonCode.SERVER_ERROR)

    assert play(wrong, "judge", "always").problems


def test_rules_are_by_model_number_and_rate() -> None:
    """The script of the fake server: the first rule that holds decides, the rate is drawn from the seed."""

    def said(script: Script, model: str, times: int) -> list[str | Reply | Fault]:
        return [script({"model": model}, n) for n in range(times)]

    fault = Fault.drop()
    second = Script(lambda body, n: "ok", [Rule(fault, "a", calls={1})])
    assert said(second, "a", 3) == ["ok", fault, "ok"]
    assert said(second, "b", 3) == ["ok", "ok", "ok"]
    often = [said(Script(lambda body, n: "ok", [Rule(fault, rate=0.3)], seed=seed), "a", 1_000) for seed in (1, 1, 2)]
    assert often[0] == often[1] != often[2]
    assert 250 < often[0].count(fault) < 350
