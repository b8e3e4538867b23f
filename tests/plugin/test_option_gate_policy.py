"""`--gate-policy`: bounds, or on request the point estimate."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

# 75 of 75 are valid: the estimate is 1, the one-sided 95 % bound 0.961.
GATE = ("--gate", "tempaffect.valid_output_rate >= 0.99")
PERFECT = ("--model", "dry/perfect", "--suite=tempaffect", "--prompting", "raw", "-p", "no:xdist")


@pytest.mark.parametrize(("policy", "code"), [("bound", 10), ("point", 0)])
def test_policies(project: Project, policy: str, code: int) -> None:
    """What an estimate passes, its bound may leave open; the report says which decided."""
    result = project.pytest(*PERFECT, *GATE, "--gate-policy", policy)

    assert result.ret == code
    (gate,) = project.report()["gates"]
    assert gate["policy"] == policy
    assert gate["ci_low"] == pytest.approx(0.05 ** (1 / 75))
    assert ("decided on the point estimate" in " ".join(result.stdout.str().split())) == (policy == "point")


def test_ini_and_its_check(project: Project) -> None:
    """The ini key takes the same two words."""
    project.write(pytest__ini="[pytest]\nspiral_gate_policy = luck\n")

    result = project.here(*PERFECT)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*spiral_gate_policy*'luck'*bound, point*"])
