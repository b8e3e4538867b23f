"""From gate decisions and missing measurements to a verdict and an exit code. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pytest_spiral.gates import Outcome
from pytest_spiral.resources import data_root, read_toml

__all__ = ["Verdict", "exit_code", "missing_limit", "verdict_of"]

Verdict = Literal["pass", "fail", "inconclusive", "incomplete"]

PASSED, FAILED, INTERRUPTED, INTERNAL, USAGE, NOTHING, INCONCLUSIVE, INCOMPLETE, TERMINATED = (
    0,
    1,
    2,
    3,
    4,
    5,
    10,
    11,
    143,
)


def missing_limit(wanted: int) -> int:
    """How many of `wanted` measurements may be missing before there is no verdict."""
    limits = read_toml(data_root() / "verdict.toml")["missing"]
    return int(max(limits["limit_at_least"], wanted * limits["limit_per_mille"] // 1000))


def verdict_of(gates: Sequence[Outcome], missing_beyond_limit: bool) -> Verdict:
    """All gates must pass; too much missing leaves no verdict, unless a gate failed even in the best case."""
    if "fail" in gates:
        return "fail"
    if missing_beyond_limit or "incomplete" in gates:
        return "incomplete"
    return "inconclusive" if "inconclusive" in gates else "pass"


def exit_code(pytest_status: int, verdict: Verdict | None, tests_failed: bool) -> int:
    """Exit code of the run, by precedence 4, 3, 2 (143), 1, 11, 10, 5, 0.

    pytest_status: what pytest itself would exit with. verdict: None where nothing of ours was to run.
    tests_failed: a user's own test failed, or an item did under --strict-items; instrument failures are none.
    """
    if pytest_status not in (PASSED, FAILED, NOTHING):
        return pytest_status
    if tests_failed or verdict == "fail":
        return FAILED
    if verdict == "incomplete":
        return INCOMPLETE
    if verdict == "inconclusive":
        return INCONCLUSIVE
    return NOTHING if pytest_status == NOTHING else PASSED
