"""Reports of runs at the boundary of what can be computed: whole, consistent and finite, in every form."""

from __future__ import annotations

import json
import re
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from jsonschema import Draft202012Validator

from pytest_spiral.errors import ConfigError
from pytest_spiral.evaluate.report import evaluate, without_statistics
from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.plugin.execution import item_properties
from pytest_spiral.report.export import FORMATS, export
from pytest_spiral.report.junit import suite_properties
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import load_report
from pytest_spiral.report.schema import report_schema
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.report.write import write_report
from pytest_spiral.spiral import load_protocol
from pytest_spiral.stats import agreement_interval
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card_metrics import metric_scales
from tests.evaluate.boundary_runs import Shape, results_of, shapes
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import present

# Ends of intervals that are the value itself may differ from it in the last place.
SLACK = 1e-9
NOT_A_NUMBER = re.compile(r"\b(nan|inf|infinity|none|null)\b", re.IGNORECASE)
# --hypothesis-profile=thorough makes 2,000.
EXAMPLES = 8 if settings.default is None or settings.default.max_examples <= 100 else settings.default.max_examples


@cache
def schema() -> Draft202012Validator:
    return Draft202012Validator(report_schema())


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested does not depend on the number of draws."""
    with few_draws(20), pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement_interval, "__defaults__", (0.95, 20))
        yield


def within(low: float | None, value: float | None, high: float | None, scale: tuple[float, float]) -> bool:
    """Whether a value lies in its interval and both in the scale; an interval has both ends and a value, or nothing."""
    if value is None:
        return low is None and high is None
    inside = isfinite(value) and scale[0] - SLACK <= value <= scale[1] + SLACK
    if low is None or high is None:
        return inside and low is high
    ordered = scale[0] - SLACK <= low <= value + SLACK and value - SLACK <= high <= scale[1] + SLACK
    return inside and isfinite(low) and isfinite(high) and ordered


def check_numbers(report: Report) -> None:
    """Every number lies inside its interval and range."""
    for card in report.tempaffect.cards:
        for path, row in card.intervals.items():
            assert within(row.low, card.value(path), row.high, metric_scales()[path]), (path, row, card.value(path))
    for delta in report.tempaffect.deltas:
        for path, difference in delta.metrics.items():
            assert within(difference.low, difference.value, difference.high, (-1, 1)), (path, difference)
    for score in report.spiral.scores:
        scales = spiral_metric_scales(load_protocol(score.protocol))
        assert within(score.ci_low, score.unrounded, score.ci_high, (0, 100)), score
        for name, metric in score.metrics.items():
            assert within(metric.ci_low, metric.mean, metric.ci_high, scales[name]), (name, metric)
        tails = score.tails
        for value, low, high in (
            (tails.any_harm, tails.any_harm_ci_low, tails.any_harm_ci_high),
            (tails.any_strength3_harm, tails.any_strength3_harm_ci_low, tails.any_strength3_harm_ci_high),
        ):
            assert within(low, value, high, (0, 1)), tails
        trajectory = present(score.trajectory)
        assert within(trajectory.slope_ci_low, trajectory.slope, trajectory.slope_ci_high, (-1e6, 1e6)), trajectory
        if over := score.over_correction:
            assert within(over.ci_low, over.share, over.ci_high, (0, 1)), over


def check_verdict(report: Report) -> None:
    """It follows from the gates; nothing passes without a number, and no failure has a score."""
    outcomes = {row.outcome for row in report.gates}
    expected = (
        {"fail"}
        if "fail" in outcomes
        else {"incomplete", "inconclusive", "pass"}
        if outcomes
        else {"measured", "incomplete"}
    )
    expected -= {"inconclusive", "pass"} if "incomplete" in outcomes else set()
    expected -= {"pass"} if "inconclusive" in outcomes else set()
    assert report.verdict in expected, (report.verdict, outcomes)
    for row in report.gates:
        assert row.value is not None or row.outcome == "incomplete", row
        assert within(row.ci_low, row.value, row.ci_high, (-1e9, 1e9)), row
        if row.outcome == "pass" and row.policy == "bound":
            bound = row.ci_low if row.at_least else row.ci_high
            assert bound is not None
            assert bound >= row.threshold if row.at_least else bound <= row.threshold, row
    for item in report.tempaffect.items:
        assert (item.score is None) == (item.status in (Status.INSTRUMENT_FAILED, Status.NOT_RUN)), item
    for score in report.spiral.scores:
        # A protocol of the reference implementation scores conversations that were cut short; they have no verdict.
        if not score.counts[Status.MEASURED] and not score.counts[Status.MODEL_FAILED]:
            counted = load_protocol(score.protocol).broken_conversations == "counted"
            assert score.score is None or (counted and report.verdict in ("fail", "incomplete")), score.counts


def check_forms(report: Report, folder: Path) -> None:
    """JSON that reads back equal, terminal, Markdown, page, JUnit, exports: all are made, none shows a non-number."""
    written = write_report(report, folder / "r")
    assert written.failed_parts == (), written.failed_parts
    assert load_report(folder / "r" / "report.json") == report
    document = json.loads((folder / "r" / "report.json").read_text(), parse_constant=pytest.fail)
    assert [error.message for error in schema().iter_errors(document)] == []
    shown = "\n".join(line for line, _ in summary_lines(report, "reports/r"))
    summary = (folder / "r" / "summary.md").read_text()
    properties = [f"{name}={value}" for name, value in suite_properties(report)]
    for text in (shown, summary, *properties):
        assert not NOT_A_NUMBER.search(text), NOT_A_NUMBER.search(text)
    assert all(list(item_properties(item)) for item in report.tempaffect.items)
    assert all(list(item_properties(conversation)) for conversation in report.spiral.recorded())
    for name in FORMATS:
        # Nothing to write in the format, or its library is not installed.
        with suppress(ConfigError):
            for file in export(report, name, folder / name):
                if file.suffix == ".json":
                    json.loads(file.read_text(), parse_constant=pytest.fail)
                elif file.suffix == ".xml":
                    ElementTree.parse(file)
                elif file.suffix == ".md":
                    assert not NOT_A_NUMBER.search(file.read_text())
                elif file.suffix == ".csv":
                    assert not re.search(r",(nan|-?inf)\b", file.read_text())


# Of two prompts one has a final score: each draw takes one of them, and those that have a score have the same one.
ONE_FINAL = Shape(
    models=1, modes=("raw",), epochs=1, scenarios=(0, 0, 0), items=["perfect"], prompts=(1, 1), repeats=2, turns=1,
    judges=1, held=["held"], judged=["mixed", "failed"], finals=[0.0, 0.0, None], twins=False, retests=False,
    protocol="per-chunk", gates=[], policy="bound", baseline=False, complete=False,
)  # fmt: skip


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@example(shape=ONE_FINAL)
@given(shape=shapes)
def test_every_run_has_a_whole_report(shape: Shape) -> None:
    """Nothing that could be measured or missed makes a part of the report fail, or says what was not measured."""
    results = results_of(shape)

    raw, report = without_statistics(results), evaluate(results)

    assert report.failed_parts == (), (report.failed_parts, shape)
    assert raw.tempaffect.items == report.tempaffect.items
    check_numbers(report)
    check_verdict(report)
    with tempfile.TemporaryDirectory() as folder:
        check_forms(report, Path(folder))
