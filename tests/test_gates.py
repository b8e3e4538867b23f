"""The gate language, and what a gate may conclude."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.errors import ConfigError
from pytest_spiral.gates import Gate, Sample, check_metric, decide, parse_gate
from pytest_spiral.stats import percentile_resamples


def mean(units):
    return sum(units) / len(units)


def draws(n):
    return percentile_resamples(n, 1000, "test")


def rate(hits, n, missing=0):
    return Sample([1.0] * hits + [0.0] * (n - hits), mean, True, missing, (0.0, 1.0))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("tempaffect.score >= 0.6", ("tempaffect", None, "score", ">=", 0.6)),
        ("  tempaffect[raw].score>=.6 ", ("tempaffect", "raw", "score", ">=", 0.6)),
        (
            "tempaffect.families.pressured_integrity.fields.boundary_action >= 0.7",
            ("tempaffect", None, "families.pressured_integrity.fields.boundary_action", ">=", 0.7),
        ),
        ("tempaffect.detectors.overvalidation <= 1", ("tempaffect", None, "detectors.overvalidation", "<=", 1.0)),
    ],
)
def test_gates_are_read(expr, expected):
    """Every form of the grammar."""
    gate = parse_gate(expr)

    assert (gate.suite, gate.qualifier, gate.metric, gate.op, gate.threshold) == expected


@pytest.mark.parametrize(
    ("expr", "column"),
    [
        ("", 1),
        ("tempaffect", 11),
        ("tempaffect.score", 17),
        ("tempaffect.score = 0.6", 18),
        ("tempaffect.score >= high", 21),
        ("tempaffect[raw.score >= 0.6", 15),
        ("tempaffect.score >= 0.6 and more", 25),
        ("tempaffect..score >= 1", 12),
    ],
)
def test_errors_point_at_the_column(expr, column):
    """A gate that cannot be read says where."""
    with pytest.raises(ConfigError, match=f"at column {column}$"):
        parse_gate(expr)


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text):
    """Any text is a gate or a clear error."""
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_gate(text), Gate)


def test_unknown_metrics_list_what_exists():
    """A misspelt metric gets a suggestion and the whole list."""
    with pytest.raises(ConfigError, match=r"did you mean 'score'.*tempaffect\.score"):
        check_metric(parse_gate("tempaffect.scor >= 1"), ["tempaffect"], ["raw"], ["score", "skill"])
    with pytest.raises(ConfigError, match="no suite 'spirall'"):
        check_metric(parse_gate("spirall.score >= 1"), ["tempaffect"], ["raw"], ["score"])
    with pytest.raises(ConfigError, match="no prompting mode 'schema'"):
        check_metric(parse_gate("tempaffect[schema].score >= 1"), ["tempaffect"], ["raw"], ["score"])


@pytest.mark.parametrize(
    ("hits", "outcome"), [(75, "pass"), (60, "pass"), (59, "inconclusive"), (48, "inconclusive"), (45, "fail")]
)
def test_three_answers_on_bounds(hits, outcome):
    """A floor of .70 at n = 75: 60 hits clear it, 59 do not yet, and the upper bound decides failure."""
    gate = parse_gate("tempaffect.score >= 0.70")

    assert decide(gate, rate(hits, 75), "bound", draws).outcome == outcome


def test_the_point_policy_has_two_answers():
    """On point estimates there is no third answer."""
    gate = parse_gate("tempaffect.score >= 0.70")

    assert decide(gate, rate(53, 75), "point", draws).outcome == "pass"
    assert decide(gate, rate(52, 75), "point", draws).outcome == "fail"


def test_upper_gates_mirror_lower_ones():
    """`<=` on a rate answers as `>=` on its complement."""
    for hits in range(76):
        floor = decide(parse_gate("tempaffect.score >= 0.70"), rate(hits, 75), "bound", draws)
        ceiling = decide(parse_gate("tempaffect.score <= 0.30"), rate(75 - hits, 75), "bound", draws)

        assert floor.outcome == ceiling.outcome


def test_missing_counts_at_its_worst():
    """One lost measurement turns a bare pass into no answer; what passes anyway passes."""
    gate = parse_gate("tempaffect.score >= 0.70")

    assert decide(gate, rate(60, 75), "bound", draws).outcome == "pass"
    bare = decide(gate, rate(59, 74, missing=1), "bound", draws)
    safe = decide(gate, rate(74, 74, missing=1), "bound", draws)
    lost = decide(gate, rate(20, 74, missing=1), "bound", draws)

    assert (bare.worst_case, bare.best_case, bare.outcome) == ("inconclusive", "pass", "inconclusive")
    assert safe.outcome == "pass"
    assert lost.outcome == "fail"


def test_missing_counts_at_its_worst_for_ceilings_too():
    """For a ceiling the worst case is the high end of the scale."""
    gate = parse_gate("tempaffect.detectors.overvalidation <= 0.05")

    decision = decide(gate, rate(0, 74, missing=1), "bound", draws)

    assert decision.best_case == "pass"
    assert decision.worst_case == "inconclusive"
    assert decision.outcome == "inconclusive"


def test_nothing_measured_is_no_verdict():
    """Without a single unit there is neither value nor outcome."""
    assert decide(parse_gate("tempaffect.score >= 0"), rate(0, 0), "bound", draws).outcome == "incomplete"


def test_a_statistic_without_extremes_is_inconclusive_when_something_is_missing():
    """Where the worst case cannot be built, a gap leaves no answer."""
    sample = Sample([0.2, 0.3, 0.4], mean, False, 1, None)

    assert decide(parse_gate("tempaffect.score >= 0"), sample, "bound", draws).outcome == "inconclusive"
