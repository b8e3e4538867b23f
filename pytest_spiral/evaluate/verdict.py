"""From gate outcomes and missing measurements to a verdict and an exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_spiral.gates import Outcome
from pytest_spiral.gates.recipes import missing_limits
from pytest_spiral.report.model import Card, Score, Verdict
from pytest_spiral.status import Status

PASSED, FAILED, INTERNAL, USAGE, NOTHING, INCONCLUSIVE, INCOMPLETE, TERMINATED = 0, 1, 3, 4, 5, 10, 11, 143


def is_beyond_limit(missing: int, expected: int) -> bool:
    """Whether more is missing than a verdict allows; a run of which all is missing has measured nothing."""
    limits = missing_limits()
    limit = max(limits.limit_at_least, expected * limits.limit_per_mille // 1000)
    return missing > limit or missing >= expected > 0


def has_no_verdict(score: Score) -> bool:
    """Whether a score has no verdict: too many conversations or judgements are missing, or the judges failed."""
    if score.judges.health.no_verdict:
        return True
    missing = score.missing
    # A protocol may count what was not measured; a verdict does not.
    unmeasured = sum(n for status, n in score.counts.items() if status is not Status.MEASURED)
    return (
        is_beyond_limit(max(unmeasured, missing.conversations), missing.of_conversations)
        or is_beyond_limit(missing.chunks, missing.of_chunks)
        or is_beyond_limit(missing.finals, missing.of_finals)
    )


def is_incomplete(cards: Iterable[Card], scores: Iterable[Score]) -> bool:
    """Whether more is missing in any card or score than a verdict allows."""
    return any(is_beyond_limit(card.missing.n, card.missing.of) for card in cards) or any(map(has_no_verdict, scores))


def verdict_of(outcomes: Sequence[Outcome], incomplete: bool) -> Verdict:
    """The verdict of a run.

    All gates must pass. Too much missing leaves no verdict, unless a gate failed even in the best case. Without gates
    a run is at best `measured`: nothing was asked of it that it could pass.

    Args:
        outcomes: Of all gates on all cards and scores.
        incomplete: Whether more is missing anywhere than the limit allows, or a part of the evaluation failed.
    """
    if "fail" in outcomes:
        return "fail"
    if incomplete or "incomplete" in outcomes:
        return "incomplete"
    if not outcomes:
        return "measured"
    return "inconclusive" if "inconclusive" in outcomes else "pass"


def exit_code(pytest_status: int, verdict: Verdict | None, tests_failed: bool, parts_failed: bool = False) -> int:
    """Exit code of a run, by precedence 4, 3, 2 (143), 1, 11, 10, 5, 0.

    Args:
        pytest_status: What pytest itself would exit with.
        verdict: None where nothing of the suites was to run.
        tests_failed: A user's own test failed, or an item did under --strict-items; instrument failures do not count.
        parts_failed: A part of the report could not be made.
    """
    if parts_failed and pytest_status != USAGE:
        return INTERNAL
    if pytest_status not in (PASSED, FAILED, NOTHING):
        return pytest_status
    if tests_failed or verdict == "fail":
        return FAILED
    if verdict == "incomplete":
        return INCOMPLETE
    if verdict == "inconclusive":
        return INCONCLUSIVE
    return NOTHING if pytest_status == NOTHING else PASSED
