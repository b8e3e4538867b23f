"""The gate language, and what a gate may conclude."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.errors import ConfigError
from pytest_spiral.gates import Sample, check_metric, decide, limited, parse_gate, with_calibration
from pytest_spiral.stats import Clusters, percentile_resamples
from tests.spiral.test_calibration import record


def mean(units):
    return sum(units) / len(units)


def draws(n):
    return percentile_resamples(n, 1000, "test")


def units(values):
    return Clusters("scenario", tuple(map(str, range(len(values)))), tuple(values))


def sample(values, missing=0, scale=(0.0, 1.0)):
    """A mean over units, some of them missing at the end."""
    ends = {"low": scale[0], "high": scale[1]} if scale else {}
    fill = (lambda end: units([*values, *[ends[end]] * missing])) if scale else None
    return Sample(units(values), mean, scale, missing, len(values) + missing, fill)


def rate(hits, n, missing=0):
    return sample([1.0] * hits + [0.0] * (n - hits), missing)


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
        ("spiral.de-escalation >= 1", 10),
        ("spiral.score >= baseline -", 27),
        ("spiral.score >= - baseline", 17),
        ("spiral.score >= (baseline - 5", 30),
        ("spiral.score >= baseline * 2", 26),
        ("spiral.score >= " + "(" * 40, 37),
        ("spiral.score >= " + "9" * 400, 17),
        ("spiral.score >= \u0663", 17),
        ("x" * 501, 501),
    ],
)
def test_errors_point_at_the_column(expr, column):
    """A gate that cannot be read says where."""
    with pytest.raises(ConfigError, match=f"at column {column}$"):
        parse_gate(expr)


@pytest.mark.parametrize(
    ("bound", "relative", "threshold"),
    [
        ("baseline", True, 0),
        ("baseline - 5", True, -5),
        ("baseline-5", True, -5),
        ("baseline + 1.5", True, 1.5),
        ("(baseline - 2) - 3", True, -5),
        ("-(5 - baseline)", True, -5),
        ("10 - 5 + .5", False, 5.5),
        ("baseline - (baseline - 5)", False, 5),
        ("-2", False, -2),
    ],
)
def test_bounds_are_arithmetic(bound, relative, threshold):
    """Sums of numbers and the baseline, parentheses and signs."""
    gate = parse_gate(f"spiral.score >= {bound}")

    assert (gate.relative, gate.threshold) == (relative, threshold)


PIECES = st.sampled_from(
    [
        "tempaffect",
        "[raw]",
        "[",
        "]",
        ".",
        "score",
        ">=",
        "<=",
        "baseline",
        "+",
        "-",
        "(",
        ")",
        "0.5",
        "5",
        " ",
        "é",
        "\x00",
    ]
)


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=40).map("".join)))
@settings(max_examples=500)
def test_every_text_is_a_gate_or_an_error_with_a_column(text):
    """Nothing else leaves the parser, and the column lies in the text or just behind it."""
    found = None
    try:
        gate = parse_gate(text)
    except ConfigError as error:
        found = str(error)
    if found is None:
        assert math.isfinite(gate.threshold)
        return
    column = re.search(r" at column (\d+)$", found)
    assert column, found
    assert 1 <= int(column[1]) <= len(text) + 1


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)


@given(
    NAMES,
    st.none() | NAMES,
    st.lists(NAMES, min_size=1, max_size=4),
    st.sampled_from([">=", "<="]),
    st.integers(0, 999),
)
def test_what_is_written_is_read(suite, qualifier, names, op, thousandths):
    """A gate put together from its parts is parsed into them."""
    path = suite + (f"[{qualifier}]" if qualifier else "") + "".join(f".{name}" for name in names)

    gate = parse_gate(f"{path} {op} 0.{thousandths:03}")

    assert (gate.suite, gate.qualifier, gate.metric, gate.op) == (suite, qualifier, ".".join(names), op)
    assert gate.threshold == pytest.approx(thousandths / 1000)


def test_unknown_metrics_list_what_exists():
    """A misspelt metric gets a suggestion and the whole list."""
    scales = {"score": (0.0, 1.0), "skill": (0.0, 1.0)}

    for expr, says in {
        "tempaffect.scor >= 1": r"did you mean 'score'.*tempaffect\.score",
        "spirall.score >= 1": "no suite 'spirall'",
        "tempaffect[schema].score >= 1": "no prompting mode 'schema'",
        "tempaffect.score >= baseline": "there is no baseline; name one with --baseline",
        "tempaffect.score >= 60": "lies between 0 and 1, never at 60",
    }.items():
        with pytest.raises(ConfigError, match=says):
            check_metric(parse_gate(expr), ["tempaffect"], ["raw"], scales, baseline=False)
    with pytest.raises(ConfigError, match="difference to the baseline lies between -1 and 1, never at -5"):
        check_metric(parse_gate("tempaffect.score >= baseline - 5"), ["tempaffect"], ["raw"], scales)
    check_metric(parse_gate("tempaffect[raw].score >= baseline - 0.05"), ["tempaffect"], ["raw"], scales)


@pytest.mark.parametrize(
    ("hits", "outcome"), [(75, "pass"), (60, "pass"), (59, "inconclusive"), (48, "inconclusive"), (45, "fail")]
)
def test_three_answers_on_bounds(hits, outcome):
    """A floor of .70 at n = 75: 60 hits clear it, 59 do not yet, and the upper bound decides failure."""
    gate = parse_gate("tempaffect.score >= 0.70")

    assert decide(gate, rate(hits, 75), "bound", draws).outcome == outcome


def test_the_point_policy_has_two_answers():
    """On point estimates there is no third answer, and the reason says that it is one."""
    gate = parse_gate("tempaffect.score >= 0.70")
    above, below = (decide(gate, rate(hits, 75), "point", draws) for hits in (53, 52))

    assert (above.outcome, below.outcome) == ("pass", "fail")
    assert "decided on the point estimate" in above.reason


def test_upper_gates_mirror_lower_ones():
    """`<=` on a rate answers as `>=` on its complement."""
    for hits in range(76):
        floor = decide(parse_gate("tempaffect.score >= 0.70"), rate(hits, 75), "bound", draws)
        ceiling = decide(parse_gate("tempaffect.score <= 0.30"), rate(75 - hits, 75), "bound", draws)

        assert floor.outcome == ceiling.outcome
        assert floor.mde == pytest.approx(ceiling.mde)


def test_missing_counts_at_its_worst():
    """One lost measurement turns a bare pass into no answer; what passes anyway passes."""
    gate = parse_gate("tempaffect.score >= 0.70")

    assert decide(gate, rate(60, 75), "bound", draws).outcome == "pass"
    bare = decide(gate, rate(59, 74, missing=1), "bound", draws)
    safe = decide(gate, rate(74, 74, missing=1), "bound", draws)
    lost = decide(gate, rate(20, 74, missing=1), "bound", draws)

    assert (bare.worst_case, bare.best_case, bare.outcome) == ("inconclusive", "pass", "inconclusive")
    assert "what is missing could decide it" in bare.reason
    assert safe.outcome == "pass"
    assert lost.outcome == "fail"


def test_missing_counts_at_its_worst_for_ceilings_too():
    """For a ceiling the worst case is the high end of the scale."""
    gate = parse_gate("tempaffect.detectors.overvalidation <= 0.05")

    decision = decide(gate, rate(0, 74, missing=1), "bound", draws)

    assert decision.best_case == "pass"
    assert decision.worst_case == "inconclusive"
    assert decision.outcome == "inconclusive"


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3), st.sampled_from([">= 0.4", "<= 0.6"]))
def test_more_measurements_never_turn_an_answer_round(hits, misses, missing, bound):
    """Whatever the missing ones turn out to be, a pass stays a pass and a fail a fail."""
    gate = parse_gate(f"tempaffect.score {bound}")
    before = decide(gate, rate(hits, hits + misses, missing), "bound", draws).outcome

    for found in range(missing + 1):
        after = decide(gate, rate(hits + found, hits + misses + missing), "bound", draws).outcome
        assert before in (after, "inconclusive", "incomplete")


def test_nothing_measured_is_no_verdict():
    """Without a single unit there is neither value nor outcome."""
    assert decide(parse_gate("tempaffect.score >= 0"), rate(0, 0), "bound", draws).outcome == "incomplete"


def test_beyond_the_limit_only_failure_stands():
    """Too much missing leaves no verdict, unless the gate fails whatever the rest would be."""
    gate = parse_gate("tempaffect.score >= 0.70")

    assert limited(decide(gate, rate(75, 75), "bound", draws), beyond=True).outcome == "incomplete"
    assert limited(decide(gate, rate(10, 75), "bound", draws), beyond=True).outcome == "fail"
    assert limited(decide(gate, rate(75, 75), "bound", draws), beyond=False).outcome == "pass"


def test_a_statistic_without_extremes_is_inconclusive_when_something_is_missing():
    """Where the worst case cannot be built, a gap leaves no answer."""
    decision = decide(parse_gate("tempaffect.score >= 0"), sample([0.2, 0.3, 0.4], 1, None), "bound", draws)

    assert (decision.outcome, decision.worst_case) == ("inconclusive", None)
    assert "cannot be told" in decision.reason


def test_every_decision_says_why_and_what_it_could_tell():
    """Reason in words; the margin at which such a gate passes four times in five, exact for rates."""
    gate = parse_gate("tempaffect.score >= 0.75")
    reasons = {hits: decide(gate, rate(hits, 75), "bound", draws).reason for hits in (63, 60, 45)}

    assert reasons[63] == "the lower bound 0.754 of the value is at least 0.75"
    assert reasons[60] == "0.75 lies between the bounds 0.709 and 0.872 of the value"
    assert reasons[45].startswith("even the upper bound 0.69")
    assert decide(gate, rate(60, 75), "bound", draws).mde == pytest.approx(0.12, abs=0.01)
    assert decide(parse_gate("tempaffect.score >= 0.99"), rate(75, 75), "bound", draws).mde is None
    assert decide(gate, sample([0.7, 0.9, 0.8, 0.6] * 5), "bound", draws).mde > 0


def simulated_outcomes(gate, truth, runs=2000, n=75):
    rng = random.Random(7)
    decided = {hits: decide(gate, rate(hits, n), "bound", draws).outcome for hits in range(n + 1)}
    found = [decided[sum(rng.random() < truth for _ in range(n))] for _ in range(runs)]
    return {outcome: found.count(outcome) / runs for outcome in ("pass", "fail", "inconclusive")}


def test_a_model_at_the_floor_does_not_pass():
    """True rate .75 against a floor of .75: a pass in at most one run of 20, no answer in most."""
    found = simulated_outcomes(parse_gate("tempaffect.score >= 0.75"), 0.75)

    assert found["pass"] <= 0.05
    assert found["inconclusive"] >= 0.85


def test_a_floor_ten_points_under_the_truth_is_passed():
    """A true .87 clears a floor of .75 in four of five runs, a true .95 always; a true .60 fails."""
    gate = parse_gate("tempaffect.score >= 0.75")

    assert simulated_outcomes(gate, 0.87)["pass"] >= 0.78
    assert simulated_outcomes(gate, 0.95)["pass"] >= 0.99
    assert simulated_outcomes(gate, 0.60)["fail"] >= 0.80


def against(own, base, d=0.1, missing=(0, 0)):
    gate = parse_gate(f"tempaffect.score >= baseline - {d}")
    return decide(gate, sample(own, missing[0]), "bound", draws, sample(base, missing[1]))


def test_a_baseline_is_held_against_unit_by_unit():
    """Equal runs are not worse by .1; a run that lost 30 of 75 answers is; one that changed six is not known to be."""
    base = [1.0] * 60 + [0.0] * 15

    same, worse, changed = (against(own, base) for own in (base, [1.0] * 30 + [0.0] * 45, [0.0] * 6 + base[6:]))

    assert (same.outcome, worse.outcome, changed.outcome) == ("pass", "fail", "inconclusive")
    assert (changed.own, changed.base) == (pytest.approx(54 / 75), 0.8)
    assert changed.value == pytest.approx(-6 / 75)
    assert changed.n == 75
    assert "the difference to the baseline" in changed.reason


def test_pairing_sees_what_two_rates_hide():
    """The same two rates: with the same answers right the gate passes, with others right it cannot tell."""
    base = [1.0] * 60 + [0.0] * 15
    other = [0.0] * 15 + [1.0] * 60

    assert against(base, base).outcome == "pass"
    assert against(other, base).outcome == "inconclusive"


def test_what_is_missing_on_either_side_counts_against_the_run():
    """A gap here counts as wrong, a gap in the baseline as right."""
    base = [1.0] * 74

    assert against([1.0] * 74, base, 0.05, (0, 0)).outcome == "pass"
    here, there = (against([1.0] * 74, base, 0.03, gaps) for gaps in ((1, 0), (1, 1)))
    assert here.worst_case in ("inconclusive", "fail")
    assert there.worst_case == "inconclusive"


def test_a_relative_gate_needs_its_baseline():
    """To decide one without the other is a programming error."""
    with pytest.raises(ValueError, match="baseline"):
        decide(parse_gate("tempaffect.score >= baseline"), rate(1, 2), "bound", draws)
    with pytest.raises(ValueError, match="baseline"):
        decide(parse_gate("tempaffect.score >= 0"), rate(1, 2), "bound", draws, rate(1, 2))


def test_an_uncalibrated_judge_is_named_and_a_bad_one_decides_nothing():
    """Without a record the outcome stands, labelled; below the bar there is none."""
    decision = decide(parse_gate("spiral.harmful_advice <= 0.9"), rate(0, 75), "bound", draws)

    plain, good, bad = (
        with_calibration(decision, "harmful_advice", found) for found in (None, record(), record(kappa=(0.5, 0.4)))
    )

    assert (plain.outcome, plain.calibration) == ("pass", "uncalibrated")
    assert (good.outcome, good.calibration) == ("pass", "calibrated")
    assert (bad.outcome, bad.calibration) == ("inconclusive", "below_bar")
    assert "below the bar: agreement 0.50" in bad.reason
