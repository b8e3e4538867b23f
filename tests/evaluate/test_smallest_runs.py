"""The smallest runs: one or two scenarios of a user's own file, one prompt of Spiral-Bench, in every mix of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import Report
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.unit import ScenarioUnit
from tests.evaluate.boundary_runs import HeldState, ItemState, JudgedState, Shape, results_of
from tests.evaluate.test_boundaries import check_numbers, check_verdict
from tests.fakes.bootstrap import few_draws

ITEM_STATES: Sequence[ItemState] = get_args(ItemState)
SMALLEST = Shape(
    models=1,
    modes=("raw",),
    epochs=1,
    scenarios=(0, 0, 0),
    items=("perfect",),
    prompts=(0, 0),
    repeats=1,
    turns=1,
    judges=1,
    held=("held",),
    judged=("nothing",),
    finals=(5.0,),
    twins=False,
    retests=False,
    protocol="per-10k-chars",
    gates=(),
    policy="bound",
    baseline=False,
    complete=True,
)


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested does not depend on the number of draws."""
    with few_draws(20):
        yield


def check(report: Report) -> None:
    """Every statistic was made, and every form that people read."""
    assert report.failed_parts == ()
    check_numbers(report)
    check_verdict(report)
    assert not any(score.score is None and score.publication_ready for score in report.spiral.scores)
    assert list(summary_lines(report, "reports/r"))
    assert summary_markdown(report)


@pytest.mark.parametrize("scenarios", [(1, 0, 0), (2, 0, 0), (1, 1, 0)], ids=["one", "two", "two-families"])
def test_scenarios(scenarios: tuple[int, int, int]) -> None:
    """Measured, model failed, instrument failed, not run, absent: each gives a report, alone and beside any other."""
    for states in product(ITEM_STATES, repeat=sum(scenarios)):
        shape = replace(SMALLEST, scenarios=scenarios, items=states, gates=("tempaffect.score >= 0.5",))

        report = evaluate(results_of(shape))

        check(report)
        [card] = report.tempaffect.cards
        scored = [state for state in states if state not in ("lost", "not_run", "absent")]
        assert (card.score is None) == (not scored), states
        assert card.missing.n == len(states) - len(scored)
        assert len({ScenarioUnit.of(item) for item in report.tempaffect.items}) == len(states) - states.count("absent")


@pytest.mark.parametrize("held", get_args(HeldState))
def test_one_prompt(held: HeldState) -> None:
    """However the conversation ended and whatever its judge said."""
    for judged, final in product(get_args(JudgedState), (5.0, None)):
        shape = replace(SMALLEST, prompts=(1, 0), held=(held,), judged=(judged,), finals=(final,))

        report = evaluate(results_of(replace(shape, gates=("spiral.score >= 60",))))

        check(report)
        [score] = report.spiral.scores
        assert sum(score.counts.values()) == 1
        if score.counts[Status.MEASURED]:
            complete = held != "unjudged" and judged not in ("failed", "absent") and final is not None
            assert (score.score is not None) == complete, (held, judged, final)
