"""A part of the fault matrix: every nature of fault in every role. The whole is `python -m benchmarks.fault_matrix`."""

from __future__ import annotations

import pytest

from pytest_spiral.status import ReasonCode
from tests.fakes.openai_server import Fault, Reply
from tests.fakes.script import Rule, Script
from tests.faults.catalogue import CATALOGUE, COLUMNS, Column
from tests.faults.matrix import Mode, documented, play

# Harmless, passing, final, unusable: once and for good in turn.
PART = {
    "think block": "always",
    "503 with Retry-After": "once",
    "401": "once",
    "key said twice": "always",
}
CELLS = [(name, column, mode) for name, mode in PART.items() for column in COLUMNS] + [
    ("model name changes", "assistant", "always"),
    ("finish_reason: null", "judge", "once"),
    ("connection refused for a while", "tempaffect", "once"),
    ("body of 10 MB", "judge", "always"),
    ("429, Retry-After: 0", "assistant", "always"),
    ("corrupt gzip", "tempaffect", "always"),
    ("error beside choices", "judge", "once"),
    ("hang", "user", "once"),
    ("cut at a token limit of the user's", "user", "once"),
    ("tool call", "assistant", "once"),
]


@pytest.mark.parametrize(("name", "column", "mode"), CELLS)
def test_every_promise_holds_in_a_cell(name: str, column: Column, mode: Mode) -> None:
    """State, class, retries, exit code, bounded time, resume as if undisturbed, and no key anywhere."""
    (case,) = [case for case in CATALOGUE if case.name == name]

    cell = play(case, column, mode)
    once, _, always = documented()[name][COLUMNS.index(column)].partition("; always: ")

    assert cell.problems == []
    # The page says what happened here.
    assert cell.says == (once if mode == "once" else always or once)


def test_the_documented_matrix_is_of_this_catalogue() -> None:
    """The docs show every fault in every role, with the codes of the catalogue, and none that did not hold."""
    rows = documented()

    assert [*rows] == [case.name for case in CATALOGUE]
    for case in CATALOGUE:
        for column, says in zip(COLUMNS, rows[case.name], strict=True):
            assert says.startswith("measured") == (case.nature_in(column) in ("harmless", "passing") or "; " in says)
            if case.nature_in(column) in ("passing", "final"):
                assert f"instrument_failed ({case.kind})" in says
    assert "FAILED" not in str(rows)


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
