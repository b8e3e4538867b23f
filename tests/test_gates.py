"""The gate language, and what a gate may conclude."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.errors import ConfigError
from pytest_spiral.gates import (
    OPERATORS,
    DecisionCode,
    GateDecision,
    Measured,
    Outcome,
    Policy,
    Sample,
    Standing,
    check_metric,
    conclude,
    limit_missing,
    parse_gate,
    with_standing,
)
from pytest_spiral.gates import decide as decide_with
from pytest_spiral.stats import Clusters, percentile_resamples

ANY_OPERATOR = " or ".join(map(repr, OPERATORS))


def mean(units: Sequence[float]) -> float:
    return sum(units) / len(units)


def draws(n: int) -> Sequence[Sequence[int]]:
    return percentile_resamples(n, 1000, "test")


def decide(expr: str, sample: Sample, policy: Policy = "bound", baseline: Sample | None = None) -> GateDecision:
    return decide_with(parse_gate(expr), sample, policy, draws, baseline)


def units(values: Sequence[float]) -> Clusters[float]:
    return Clusters("scenario", tuple(map(str, range(len(values)))), tuple(values))


def sample(values: Sequence[float], missing: int = 0, scale: tuple[float, float] | None = (0.0, 1.0)) -> Sample:
    """A mean over units, some of them missing at the end."""
    fill = None
    if scale is not None:
        ends = {"low": scale[0], "high": scale[1]}

        def fill(end: str) -> Clusters[float]:
            return units([*values, *[ends[end]] * missing])

    return Sample(units(values), mean, scale, missing, len(values) + missing, fill)


def rate(hits: int, n: int, missing: int = 0) -> Sample:
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
def test_gates_are_read(expr: str, expected: tuple[str, str | None, str, str, float]) -> None:
    """Every form of the grammar."""
    gate = parse_gate(expr)

    assert (gate.suite, gate.qualifier, gate.metric, gate.op, gate.threshold) == expected


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("s.score >= baseline * 2", "'+', '-' or the end of the gate at column 21"),
        ("s.score >= baseline - 5 - 5", "the end of the gate at column 25"),
        ("s.score >= 0.6 and more", "the end of the gate at column 16"),
        ("s.score >= 0.1 + baseline", "the end of the gate (write 'baseline + 0.1') at column 16"),
        ("s.score >= -0.1 + baseline", "the end of the gate (write 'baseline - 0.1') at column 17"),
        ("s.score >= 0.1 - baseline", "the end of the gate at column 16"),
        ("s.score-x >= 1", f"{ANY_OPERATOR} (names are written with underscores) at column 8"),
        *((f"s.score {op} 1", f"{ANY_OPERATOR} at column 9") for op in ("~", "!=", "=>", "-")),
    ],
)
def test_errors_say_what_may_stand_there(expr: str, expected: str) -> None:
    """A hint is given only where it helps."""
    with pytest.raises(ConfigError) as raised:
        parse_gate(expr)

    assert str(raised.value) == f"--gate {expr!r}: expected {expected}"


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
        ("spiral.score >= - baseline", 19),
        ("spiral.score >= (baseline - 5)", 17),
        ("spiral.score >= baseline - 5 - 5", 30),
        ("spiral.score >= baselines", 17),
        ("spiral.score >= baseline * 2", 26),
        ("spiral.score >= " + "9" * 400, 17),
        ("spiral.score >= \u0663", 17),
        ("x" * 501, 501),
    ],
)
def test_errors_point_at_the_column(expr: str, column: int) -> None:
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
        ("-2", False, -2),
        ("+ .5", False, 0.5),
        ("-0", False, 0),
    ],
)
def test_bounds_are_numbers_or_relative(bound: str, relative: bool, threshold: float) -> None:
    """A number with or without a sign, or the baseline with or without a margin."""
    gate = parse_gate(f"spiral.score >= {bound}")

    assert (gate.relative, gate.threshold) == (relative, threshold)


PIECES = st.sampled_from(
    ["tempaffect", "[raw]", "[", "]", ".", "score", ">=", "<=", "baseline", "+", "-", "(", ")", "0.5", "5", " ", "\x00"]
)


@given(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=40).map("".join)))
@settings(max_examples=500)
def test_every_text_is_a_gate_or_an_error_with_a_column(text: str) -> None:
    """Nothing else leaves the parser, and the column lies in the text or just behind it."""
    message = ""
    try:
        assert math.isfinite(parse_gate(text).threshold)
    except ConfigError as error:
        message = str(error)

    column = re.search(r" at column (\d+)$", message)
    assert not message or (column and 1 <= int(column[1]) <= len(text) + 1)


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)


@given(
    NAMES,
    st.none() | NAMES,
    st.lists(NAMES, min_size=1, max_size=4),
    st.sampled_from([">=", "<="]),
    st.integers(0, 999),
)
def test_what_is_written_is_read(
    suite: str, qualifier: str | None, names: list[str], op: str, thousandths: int
) -> None:
    """A gate put together from its parts is parsed into them."""
    path = suite + (f"[{qualifier}]" if qualifier else "") + "".join(f".{name}" for name in names)

    gate = parse_gate(f"{path} {op} 0.{thousandths:03}")

    assert (gate.suite, gate.qualifier, gate.metric, gate.op) == (suite, qualifier, ".".join(names), op)
    assert gate.at_least is (op == ">=")
    assert gate.threshold == pytest.approx(thousandths / 1000)


def test_unknown_metrics_list_what_exists() -> None:
    """A misspelt metric gets the nearest ones, the best first."""
    scales = {"score": (0.0, 1.0), "skill": (0.0, 1.0)}

    for expr, says in {
        "tempaffect.scor >= 1": r"no metric 'scor'; nearest: tempaffect\.score, tempaffect\.skill; ",
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


AT_LEAST = "tempaffect.score >= 0.70"


@pytest.mark.parametrize(
    ("hits", "outcome"), [(75, "pass"), (60, "pass"), (59, "inconclusive"), (48, "inconclusive"), (45, "fail")]
)
def test_three_outcomes_on_bounds(hits: int, outcome: Outcome) -> None:
    """A threshold of .70 at n = 75: 60 hits reach it, 59 do not yet, and the upper bound decides failure."""
    assert decide(AT_LEAST, rate(hits, 75)).outcome == outcome


def test_the_point_policy_has_two_outcomes() -> None:
    """On point estimates there is no third outcome, and the reason says that it is one."""
    above, below = (decide(AT_LEAST, rate(hits, 75), "point") for hits in (53, 52))

    assert (above.outcome, below.outcome) == ("pass", "fail")
    assert above.reason.code is DecisionCode.POINT_ESTIMATE


def test_upper_gates_mirror_lower_ones() -> None:
    """`<=` on a rate decides as `>=` on its complement."""
    for hits in range(0, 76, 3):
        at_least = decide(AT_LEAST, rate(hits, 75))
        at_most = decide("tempaffect.score <= 0.30", rate(75 - hits, 75))

        assert at_least.outcome == at_most.outcome
        assert at_least.mde == pytest.approx(at_most.mde)


def test_missing_counts_at_its_worst() -> None:
    """One lost measurement makes a bare pass inconclusive; what passes or fails anyway still does."""
    bare = decide(AT_LEAST, rate(59, 74, missing=1))

    assert (bare.worst_case, bare.best_case, bare.outcome) == ("inconclusive", "pass", "inconclusive")
    assert bare.reason.code is DecisionCode.MISSING_DECIDES
    assert decide(AT_LEAST, rate(74, 74, missing=1)).outcome == "pass"
    assert decide(AT_LEAST, rate(20, 74, missing=1)).outcome == "fail"


def test_missing_counts_at_its_worst_for_ceilings_too() -> None:
    """For `<=` the worst case is the high end of the scale."""
    decision = decide("tempaffect.detectors.overvalidation <= 0.05", rate(0, 74, missing=1))

    assert (decision.worst_case, decision.best_case, decision.outcome) == ("inconclusive", "pass", "inconclusive")


@pytest.mark.parametrize(("values", "bound"), [([1.0] * 75, "<= 0.3"), ([-0.9] * 75, ">= 0.5")])
def test_a_mean_at_the_ends_of_its_scale_takes_what_a_rate_takes(values: Sequence[float], bound: str) -> None:
    """A skill of answers that are all perfect, or all worthless, has no spread: that makes no gate easy."""
    skill = decide(f"tempaffect.skill {bound}", sample(values, scale=(-0.9, 1.0)))
    operator, threshold = bound.split()
    same = decide(f"tempaffect.score {operator} {(float(threshold) + 0.9) / 1.9}", rate(int(values[0] > 0) * 75, 75))

    assert skill.mde is not None
    assert same.mde is not None
    assert skill.mde == pytest.approx(1.9 * same.mde)


@pytest.mark.parametrize(
    ("expr", "outcome", "cases"),
    [
        ("tempaffect.corrected.useful_bounded >= 0.12", "inconclusive", ("inconclusive", "pass")),
        ("tempaffect.corrected.useful_bounded >= 0.10", "pass", ("pass", "pass")),
        ("tempaffect.corrected.useful_bounded <= 0.54", "inconclusive", ("inconclusive", "pass")),
        ("tempaffect.corrected.useful_bounded <= 0.56", "pass", ("pass", "pass")),
    ],
)
def test_what_is_missing_makes_no_bound_tighter(expr: str, outcome: str, cases: tuple[str, str]) -> None:
    """Two labels more, both "no", lower a corrected number less than they narrow its interval."""
    measured = Measured(0.31, 0.11, 0.55, "t")
    ends = Measured(0.30, 0.14, 0.53, "t"), Measured(0.33, 0.13, 0.53, "t")

    decision = conclude(parse_gate(expr), measured, ends, "bound")

    assert (decision.outcome, decision.worst_case, decision.best_case) == (outcome, *cases)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3), st.sampled_from([">= 0.4", "<= 0.6"]))
def test_more_measurements_never_reverse_an_outcome(hits: int, misses: int, missing: int, bound: str) -> None:
    """Whatever the missing ones turn out to be, a pass stays a pass and a fail a fail."""
    expr = f"tempaffect.score {bound}"
    before = decide(expr, rate(hits, hits + misses, missing)).outcome

    for result in range(missing + 1):
        after = decide(expr, rate(hits + result, hits + misses + missing)).outcome
        assert before in (after, "inconclusive", "incomplete")


def test_nothing_measured_is_incomplete() -> None:
    """Without a single unit there is neither a value nor a conclusion."""
    decision = decide("tempaffect.score >= 0", rate(0, 0))

    assert (decision.outcome, decision.measured) == ("incomplete", None)
    assert decision.reason.code is DecisionCode.NOTHING_MEASURED


def test_beyond_the_limit_only_failure_stands() -> None:
    """With too much missing there is no conclusion, unless the gate fails whatever the rest would be."""
    beyond = limit_missing(decide(AT_LEAST, rate(75, 75)), beyond=True)

    assert (beyond.outcome, beyond.reason.code) == ("incomplete", DecisionCode.TOO_MUCH_MISSING)
    assert limit_missing(decide(AT_LEAST, rate(10, 75)), beyond=True).outcome == "fail"
    assert limit_missing(decide(AT_LEAST, rate(75, 75)), beyond=False).outcome == "pass"


def test_a_statistic_without_extremes_is_inconclusive_when_something_is_missing() -> None:
    """Where the worst case is not defined, a gap leaves the gate undecided."""
    decision = decide("tempaffect.score >= 0", sample([0.2, 0.3, 0.4], 1, None))

    assert (decision.outcome, decision.worst_case) == ("inconclusive", None)
    assert decision.reason.code is DecisionCode.WORST_CASE_UNKNOWN


@pytest.mark.parametrize(
    ("hits", "code", "detail"),
    [
        (63, DecisionCode.BOUND_MET, "the lower bound 0.754 of the value is at least 0.75"),
        (
            60,
            DecisionCode.THRESHOLD_BETWEEN,
            "0.75 lies between the one-sided 95 % bounds 0.709 and 0.872 of the value",
        ),
        (45, DecisionCode.BOUND_MISSED, "even the upper bound 0.695 of the value is below 0.75"),
    ],
)
def test_every_decision_has_a_reason(hits: int, code: DecisionCode, detail: str) -> None:
    """A code for programs, the numbers for people."""
    reason = decide("tempaffect.score >= 0.75", rate(hits, 75)).reason

    assert (reason.code, reason.detail) == (code, detail)


@pytest.mark.parametrize(
    ("policy", "value", "says"),
    [
        ("point", 0.69996, "the value 0.69996 against 0.7,"),
        ("point", 0.7000001, "the value 0.7000001 against 0.7,"),
        ("point", 0.7, "the value 0.700 against 0.7,"),
        ("bound", 0.69996, "even the upper bound 0.69996 of the value is below 0.7"),
        ("bound", 0.5, "even the upper bound 0.500 of the value is below 0.7"),
    ],
)
def test_no_number_is_rounded_across_the_threshold(policy: Policy, value: float, says: str) -> None:
    """With three decimals it would contradict the outcome."""
    measured = Measured(value, 0.0, value, "", None, 75)
    decision = conclude(parse_gate("tempaffect.score >= 0.70"), measured, (measured, measured), policy)

    assert decision.reason.detail.startswith(says)


def test_the_mde_of_a_gate() -> None:
    """The margin at which it passes four times in five: exact for rates, None out of reach, positive for means."""
    mean_mde = decide("tempaffect.score >= 0.75", sample([0.7, 0.9, 0.8, 0.6] * 5)).mde

    assert decide("tempaffect.score >= 0.75", rate(60, 75)).mde == pytest.approx(0.12, abs=0.01)
    assert decide("tempaffect.score >= 0.99", rate(75, 75)).mde is None
    assert mean_mde is not None
    assert mean_mde > 0


def simulated_outcomes(expr: str, truth: float, runs: int = 2000, n: int = 75) -> Mapping[Outcome, float]:
    rng = random.Random(7)
    decided = {hits: decide(expr, rate(hits, n)).outcome for hits in range(n + 1)}
    outcomes = [decided[sum(rng.random() < truth for _ in range(n))] for _ in range(runs)]
    return {outcome: outcomes.count(outcome) / runs for outcome in ("pass", "fail", "inconclusive")}


def test_how_often_a_gate_passes() -> None:
    """Threshold .75: a true .75 passes in at most 1 run of 20, .87 in 4 of 5, .95 always; .60 fails in 4 of 5."""
    expr = "tempaffect.score >= 0.75"
    at_threshold = simulated_outcomes(expr, 0.75)

    assert at_threshold["pass"] <= 0.05
    assert at_threshold["inconclusive"] >= 0.85
    assert simulated_outcomes(expr, 0.87)["pass"] >= 0.78
    assert simulated_outcomes(expr, 0.95)["pass"] >= 0.99
    assert simulated_outcomes(expr, 0.60)["fail"] >= 0.80


def against(
    own: Sequence[float], base: Sequence[float], margin: float = 0.1, missing: tuple[int, int] = (0, 0)
) -> GateDecision:
    expr = f"tempaffect.score >= baseline - {margin}"
    return decide(expr, sample(own, missing[0]), "bound", sample(base, missing[1]))


def test_a_relative_gate_decides_paired_differences() -> None:
    """An equal run is not worse by .1; one that lost 30 of 75 answers is; one that lost six is inconclusive."""
    base = [1.0] * 60 + [0.0] * 15

    same, worse, changed = (against(own, base) for own in (base, [1.0] * 30 + [0.0] * 45, [0.0] * 6 + base[6:]))

    assert (same.outcome, worse.outcome, changed.outcome) == ("pass", "fail", "inconclusive")
    assert changed.measured is not None
    assert (changed.measured.candidate, changed.measured.baseline, changed.measured.n) == (54 / 75, 0.8, 75)
    assert changed.measured.value == pytest.approx(-6 / 75)
    assert "the difference to the baseline" in changed.reason.detail


def test_pairing_detects_what_two_rates_hide() -> None:
    """The same two rates: with the same answers right the gate passes, with others right it is inconclusive."""
    base = [1.0] * 60 + [0.0] * 15
    other = [0.0] * 15 + [1.0] * 60

    assert against(base, base).outcome == "pass"
    assert against(other, base).outcome == "inconclusive"


def test_what_is_missing_on_either_side_counts_against_the_run() -> None:
    """A gap here counts as wrong, a gap in the baseline as right."""
    base = [1.0] * 74
    here, there = (against([1.0] * 74, base, 0.03, gaps) for gaps in ((1, 0), (1, 1)))

    assert against([1.0] * 74, base, 0.05).outcome == "pass"
    assert here.worst_case in ("inconclusive", "fail")
    assert there.worst_case == "inconclusive"


@pytest.mark.parametrize(("expr", "baseline"), [("tempaffect.score >= baseline", None), (AT_LEAST, rate(1, 2))])
def test_a_relative_gate_needs_its_baseline(expr: str, baseline: Sample | None) -> None:
    """To decide one without the other is a programming error."""
    with pytest.raises(ValueError, match="baseline"):
        decide(expr, rate(1, 2), "bound", baseline)


@pytest.mark.parametrize(
    ("judge", "outcome"),
    [
        ("uncalibrated", "pass"),
        ("calibrated", "pass"),
        ("below_bar", "inconclusive"),
    ],
)
def test_a_judge_below_the_bar_decides_nothing(judge: Standing, outcome: Outcome) -> None:
    """Without a calibration the outcome stands, labelled; below the bar there is none."""
    decision = with_standing(decide("spiral.harmful_advice <= 0.9", rate(0, 75)), judge, "agreement 0.50")

    assert (decision.outcome, decision.judge) == (outcome, judge)
    if outcome == "inconclusive":
        assert decision.reason.code is DecisionCode.JUDGE_BELOW_BAR
        assert "agreement 0.50" in decision.reason.detail
