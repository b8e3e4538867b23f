"""A large suite costs what its scenarios cost: nothing compares each of them with each other one."""

from __future__ import annotations

import gc
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest

from pytest_spiral.evaluate.inputs import RunResults
from pytest_spiral.evaluate.report import evaluate, without_statistics
from pytest_spiral.gates import parse_gate
from pytest_spiral.report.model import Run, RunConfig, Usage
from pytest_spiral.report.write import write_report, write_results
from pytest_spiral.stats import percentile_resamples
from pytest_spiral.tempaffect.detectors import _near_duplicates
from pytest_spiral.tempaffect.records import Item, Mode
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.self_check import baselines
from pytest_spiral.tempaffect.suite import Suite
from tests.fakes.bootstrap import few_draws
from tests.fakes.growth import cost
from tests.tempaffect.cards import SUITE, answers, context

FEW, MANY = 40, 160
# What four times the scenarios may cost in CPU; every pair of them would cost sixteen times as much.
MOST = 7
KIB = 45
"""Memory for each further scenario, with its item, while its report is made and written."""
RUN = Run(
    id="r", started_at="", finished_at="", complete=True, argv=(), config=RunConfig(), versions={}, seed=1
)  # fmt: skip


def large(size: int, mode: Mode = "raw") -> tuple[Suite, list[Item]]:
    """A suite of the bundled scenarios under new names, each with a message of its own, and an item of each."""
    scenarios: list[Scenario] = []
    items: list[Item] = []
    for number in range(size):
        known, item = SUITE.scenarios[number % len(SUITE.scenarios)], answers("perfect", mode)
        message = f"{known.user_message} This is case {number}."
        scenarios.append(known.model_copy(update={"id": f"own-{number:05}", "user_message": message}))
        items.append(replace(item[number % len(item)], id=scenarios[-1].id))
    return Suite(tuple(scenarios)), items


def report(suite: Suite, items: list[Item], folder: Path) -> None:
    """Everything that comes after the last item."""
    circumstances = context(scenarios=suite.by_id, baselines=baselines(suite), own=True)
    gates = [parse_gate("tempaffect.score >= 0.5"), parse_gate("tempaffect.detectors.strategy_overuse <= 0.9")]
    results = RunResults(
        RUN,
        Usage(),
        gates=gates,
        suite=suite,
        items={("m", "raw"): items},
        contexts={("m", "raw"): circumstances},
    )
    write_report(evaluate(results), folder)


def test_cpu_grows_with_the_suite(tmp_path: Path) -> None:
    """Baselines, near-duplicates, leaked ids, gates, JSON and page: in proportion to the scenarios."""
    spent = []
    with few_draws(10):
        report(*large(20), tmp_path)  # what is loaded once
        for size in (FEW, MANY):
            suite, items = large(size)
            began = process_time()
            report(suite, items, tmp_path)
            spent.append(process_time() - began)

    assert spent[1] <= MOST * spent[0], f"{spent[0]:.2f} s for {FEW} scenarios, {spent[1]:.2f} s for {MANY}"


def test_memory_grows_with_the_suite(tmp_path: Path) -> None:
    """What is kept of each scenario for the report, and what its files take while they are written."""
    peaks = []
    with few_draws(10):
        for size in (20, 50):
            suite, items = large(size)
            gc.collect()
            tracemalloc.start()
            try:
                report(suite, items, tmp_path)
                peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()

    assert (peaks[1] - peaks[0]) / 30 / 1024 <= KIB, f"{peaks} bytes for 20 and 50 scenarios"


def test_a_report_is_written_without_a_second_one_in_memory(tmp_path: Path) -> None:
    """`report.json` never exists as a whole but on disk."""
    suite, items = large(MANY)
    written = without_statistics(RunResults(RUN, Usage(), suite=suite, items={("m", "raw"): items}))
    gc.collect()
    tracemalloc.start()
    try:
        write_results(written, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < (tmp_path / "report.json").stat().st_size / 4


def test_a_reply_is_compared_only_with_replies_that_may_be_like_it() -> None:
    """Near-duplicates of one another are found without looking at every pair of replies."""
    rng = random.Random(1)

    def replies(size: int) -> list[list[str]]:
        return [[str(rng.randrange(5000)) for _ in range(12)] for _ in range(size)]

    few, many = (cost(lambda masked: _near_duplicates(masked, 500), replies(size)) for size in (400, 3200))

    assert many <= 32 * few, f"{few:.4f} s for 400 replies, {many:.4f} s for 3,200"


@pytest.mark.parametrize(("units", "times"), [(75, 10_000), (400, 2_500), (4_000, 1_000)])
def test_a_bootstrap_draws_a_bounded_number_of_units(units: int, times: int) -> None:
    """10,000 resamples of a usual suite; of a large one as many as a million units allow, and at least 1,000."""
    draws = percentile_resamples(units, 10_000, "seed")

    assert [len(draws), len(draws[0]), draws[0].itemsize] == [times, units, 2]
