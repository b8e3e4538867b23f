"""`--gate`: release conditions, their outcomes and their mistakes."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

PERFECT = ("--model", "dry/perfect", "--suite=tempaffect", "-p", "no:xdist")
VALID = "tempaffect.valid_output_rate"


def test_outcomes_per_card_and_the_verdict_of_all(project: Project) -> None:
    """One row per gate and card; one failed gate fails the run, whatever the others say."""
    gates = (f"{VALID} >= 0.9", "tempaffect[raw].valid_output_rate >= 0.99", f"{VALID} <= 0.5")

    result = project.pytest(*PERFECT, *[part for gate in gates for part in ("--gate", gate)])

    assert result.ret == 1
    report = project.report()
    assert [(row["expr"], row["prompting_mode"], row["outcome"]) for row in report["gates"]] == [
        (gates[0], "schema_assisted", "pass"),
        (gates[0], "raw_json", "pass"),
        (gates[1], "raw_json", "inconclusive"),
        (gates[2], "schema_assisted", "fail"),
        (gates[2], "raw_json", "fail"),
    ]
    assert report["verdict"] == "fail"
    result.stdout.fnmatch_lines(["verdict: FAIL", "gate PASS *", "gate INCONCLUSIVE *", "gate FAIL *"])
    assert all(row["reason"] and row["unit"] == "scenario" and row["n"] == 75 for row in report["gates"])
    block = result.outlines[result.outlines.index("tempaffect  dry/perfect") :]
    # Gates after the numbers, 80 columns but for the command to paste, and no colour where nobody looks.
    assert block.index(next(line for line in block if line.startswith("report:"))) < block.index(
        next(line for line in block if line.startswith("gate "))
    )
    assert all(len(line) <= 80 and "\x1b" not in line for line in block[:-1])
    assert block[-1].startswith("  pytest --model")


def test_any_number_of_gates_in_ini(project: Project) -> None:
    """A list in the project's settings; native TOML and classic."""
    project.write(pyproject__toml=f'[tool.pytest]\nspiral_gate = ["{VALID} >= 0.9", "tempaffect.score >= 0"]\n')

    assert project.pytest(*PERFECT, "--prompting", "raw").ret == 0
    assert [row["expr"] for row in project.report()["gates"]] == [f"{VALID} >= 0.9", "tempaffect.score >= 0"]


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        ("tempaffect.valid_output_rat >= 0.5", "; nearest: tempaffect.valid_output_rate, tempaffect."),
        ("spirals.score >= 1", "there is tempaffect"),
        ("tempaffect[loud].score >= 1", "there is raw, schema"),
        ("tempaffect.score", "at column 17"),
        ("tempaffect.score > 1", "at column 18"),
        ("tempaffect.score >= high", "at column 21"),
        ("tempaffect.score >= 0.5 and", "at column 25"),
    ],
)
def test_a_gate_that_cannot_be_decided_is_a_usage_error(project: Project, gate: str, says: str) -> None:
    """Before anything is sent; the message lists what exists or points at the column."""
    result = project.here(*PERFECT, f"--gate={gate}")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gate *"])
    assert says in result.stderr.str()
    assert not (project.path / "reports").exists()


@pytest.mark.parametrize(
    ("metric", "options"), [("per_10k.score", ()), ("score", ("--protocol=per-10k-chars",))], ids=["beside", "own"]
)
def test_no_gate_trusts_a_bound_that_is_too_low(project: Project, metric: str, options: tuple[str, ...]) -> None:
    """A score per 10,000 characters can be asked to be high enough, not to be low enough."""
    run = ("--model=dry/perfect", "--suite=spiral", "--num-turns=2", *options, "--plan")

    refused = project.here(*run, f"--gate=spiral.{metric} <= 80")

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["ERROR: --gate *the upper bound of a score per 10,000 characters is too low*"])
    assert project.here(*run, f"--gate=spiral.{metric} >= 80").ret == 0


def test_nor_is_skill_per_10000_characters(project: Project) -> None:
    """It has the bounds of the score."""
    run = ("--model=dry/perfect", "--suite=spiral", "--num-turns=2", "--protocol=per-10k-chars", "--floors", "--plan")

    assert project.here(*run, "--gate=spiral.skill <= 0.8").ret == pytest.ExitCode.USAGE_ERROR
    assert project.here(*run, "--gate=spiral.skill >= 0.8").ret == 0


def test_a_wrong_gate_in_ini_is_a_usage_error(project: Project) -> None:
    """The settings are no place to hide a mistake."""
    project.write(pytest__ini="[pytest]\nspiral_gate = tempaffect.nothing >= 0.5\n")

    assert project.here(*PERFECT).ret == pytest.ExitCode.USAGE_ERROR


def test_a_verdict_by_other_gates_is_not_forgotten(project: Project) -> None:
    """Thresholds chosen when the numbers are known decide nothing: what was decided before stands beside them."""
    run = ("--model=dry/caver", "--suite=tempaffect", "--prompting=raw", "--run-id=r", "-p", "no:xdist")

    assert project.pytest(*run, "--gate=tempaffect.score >= 0.99").ret == 1
    assert project.report("r")["run"]["notes"] == []
    chosen = project.pytest(*run, "--gate=tempaffect.score >= 0.01")
    again = project.pytest(*run, "--gate=tempaffect.score >= 0.02")

    note = "decided before by other gates: FAIL by tempaffect.score >= 0.99"
    assert (chosen.ret, again.ret) == (0, 0)
    report = project.report("r")["run"]
    assert report["notes"] == [note]
    assert report["decided_before"] == [{"verdict": "fail", "gates": ["tempaffect.score >= 0.99"], "policy": "bound"}]
    again.stdout.fnmatch_lines([f"*{note}*"])


def test_a_verdict_on_other_terms_says_which(project: Project) -> None:
    """The same gate, first on bounds and then on point estimates."""
    run = ("--model=dry/caver", "--suite=tempaffect", "--prompting=raw", "--run-id=r", "-p", "no:xdist")
    gate = "--gate=tempaffect.score >= 0.99"

    project.pytest(*run, gate)
    project.pytest(*run, gate, "--gate-policy=point")

    assert project.report("r")["run"]["notes"] == ["decided before on bounds: FAIL by tempaffect.score >= 0.99"]
