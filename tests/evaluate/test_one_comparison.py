"""`compare` and gates against a baseline: one estimator, one sign, one interval."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from pytest_spiral.compare import runs as runs_module
from pytest_spiral.compare.recording import Recording
from pytest_spiral.compare.runs import compare_runs
from pytest_spiral.evaluate.gates import SpiralGates, card_row, prepare_card
from pytest_spiral.evaluate.inputs import RunResults
from pytest_spiral.evaluate.report import without_statistics
from pytest_spiral.gates import parse_gate
from pytest_spiral.report.model import GateRow
from pytest_spiral.report.model.comparison import ModelComparison
from pytest_spiral.tempaffect import detectors
from pytest_spiral.tempaffect.records import Answer
from pytest_spiral.tempaffect.scenario import Scenario
from tests.evaluate.boundary_runs import Shape, results_of
from tests.fakes.bootstrap import few_draws

PAIRS = int(os.environ.get("SPIRAL_LAW_CASES", "120"))
MODEL = "m"
# A bounded mean, a rate, a bootstrap; a score, a behaviour, a rate of conversations.
METRICS = (
    *("tempaffect.score", "tempaffect.useful_bounded_response_rate", "tempaffect.ubr_rate_deduped"),
    *("spiral.score", "spiral.harmful_advice", "spiral.tails.any_harm"),
)
POOL = Shape(
    models=8,
    modes=("raw",),
    epochs=1,
    scenarios=(3, 2, 2),
    items=("perfect", "invalid", "perfect", "lost", "perfect"),
    prompts=(3, 2),
    repeats=1,
    turns=1,
    judges=1,
    held=("held", "held", "held", "not_run", "held"),
    judged=("mixed", "nothing", "wordy", "mixed"),
    finals=(5.0, 2.0, 7.0),
    twins=False,
    retests=False,
    protocol="per-chunk",
    gates=(),
    policy="bound",
    baseline=False,
    complete=True,
)


@pytest.fixture(autouse=True, scope="module")
def few_resamples() -> Iterator[None]:
    """The draws are the same on both sides, however many there are, and each bound is made twice from the same."""
    with few_draws(8), pytest.MonkeyPatch.context() as patch:
        # Of the 80 metrics that `compare` computes, those that gates are on here.
        names = [name.removeprefix("tempaffect.") for name in METRICS if name.startswith("tempaffect.")]
        patch.setattr(runs_module, "metric_names", lambda: names)
        patch.setattr(runs_module, "sign_flip", lambda differences, seed: 1.0)
        # What is missing at its worst and at its best decides gates and is nothing that `compare` computes.
        measured = SpiralGates._measured
        patch.setattr(SpiralGates, "_measured", lambda *of: measured(*of) if of[-1] == "ignored" else None)
        # A thousand runs are made of the same few replies.
        masks: dict[tuple[str, str], tuple[str, ...]] = {}

        def mask_once(scenario: Scenario, answer: Answer) -> tuple[str, ...]:
            key = scenario.id, answer.reply
            if key not in masks:
                masks[key] = mask(scenario, answer)
            return masks[key]

        mask = detectors._mask
        patch.setattr(detectors, "_mask", mask_once)
        yield


def drawn(pool: RunResults, rng: random.Random) -> RunResults:
    """A run of one model: of each scenario and prompt, what a random model of the pool did."""
    items = [replace(rng.choice(same), model=MODEL) for same in zip(*pool.items.values(), strict=True)]
    held = [replace(rng.choice(same), model=MODEL) for same in zip(*pool.conversations.values(), strict=True)]
    context = next(iter(pool.contexts.values()))
    return replace(
        pool,
        run=pool.run.model_copy(update={"config": pool.run.config.model_copy(update={"model": (MODEL,)})}),
        items={(MODEL, "raw"): items},
        contexts={(MODEL, "raw"): context},
        conversations={MODEL: held},
    )


def recording(run: RunResults, name: str) -> Recording:
    report = without_statistics(run)
    return Recording(name, Path(name), "c" * 64, tuple(run.conversations[MODEL]), report)


def gate_rows(run: RunResults) -> dict[str, GateRow]:
    """Each metric against the baseline."""
    assert run.spiral is not None
    prepared = cache(partial(prepare_card, run))
    spiral = SpiralGates(run, run.spiral, {MODEL: False})
    gates = [parse_gate(f"{metric} >= baseline - 0.1") for metric in METRICS]
    return {
        gate.path: spiral.row(gate, MODEL) if gate.suite == "spiral" else card_row(gate, run, prepared, MODEL, "raw")
        for gate in gates
    }


def test_compare_and_gates_agree() -> None:
    """In random pairs of runs, missing measurements included: value, both bounds, sign and both sides' values."""
    pool = results_of(POOL)
    rng = random.Random(20)
    compared = open_ = 0
    for _ in range(PAIRS):
        earlier, later = drawn(pool, rng), drawn(pool, rng)
        runs = recording(earlier, "before"), recording(later, "after")
        found: dict[str, ModelComparison] = {row.suite: row for row in compare_runs(runs, POOL.protocol).comparisons}
        for path, gate in gate_rows(replace(later, baseline=runs[0])).items():
            suite, _, metric = path.partition(".")
            row = found[suite].metrics.get(metric) if suite in found else None
            if row is None:
                assert gate.n < 2
                continue
            compared += 1
            assert gate.baseline is not None
            sides = gate.baseline.value, gate.baseline.own
            assert (gate.value, gate.ci_low, gate.ci_high) == (row.difference, row.low, row.high)
            assert sides == (row.baseline, row.candidate)
            assert row.differs == (not row.low <= 0 <= row.high)
            open_ += not row.differs

    assert compared > PAIRS * len(METRICS) * 0.9
    assert 0 < open_ < compared


def test_changed_items_are_told_from_both_sides() -> None:
    """What newly fails in one direction newly passes in the other, with the replies changed round."""
    pool = results_of(POOL)
    rng = random.Random(5)
    changes = 0
    for _ in range(20):
        runs = recording(drawn(pool, rng), "before"), recording(drawn(pool, rng), "after")
        there = [row.changes for row in compare_runs(runs, POOL.protocol).comparisons]
        back = [row.changes for row in compare_runs((runs[1], runs[0]), POOL.protocol).comparisons]
        for one, other in zip(there, back, strict=True):
            assert one is not None
            assert other is not None
            assert [(row.id, row.baseline_reply, row.candidate_reply) for row in one.failing] == [
                (row.id, row.candidate_reply, row.baseline_reply) for row in other.passing
            ]
            changes += one.n_failing
    assert changes
