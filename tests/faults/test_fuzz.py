"""Mutated input for everything that reads foreign text: the short form of `python -m benchmarks.fuzz`."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import time

import pytest

from tests.faults.mutation import mutate
from tests.faults.targets import TARGETS, Target


@pytest.fixture(scope="module", autouse=True)
def clean() -> None:
    """Collect garbage of earlier tests, which would count as CPU time of a reader."""
    gc.collect()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name.replace(" ", "-"))
def test_mutated_input_is_refused_or_read(target: Target) -> None:
    """Only the documented errors are raised, and no input takes a second of CPU time."""
    rng, examples, slowest = random.Random(target.name), target.examples(), 0.0
    for text in examples:
        target.read(text)
    for _ in range(250):
        text = mutate(rng.choice(examples), rng)
        started = time.process_time()
        with contextlib.suppress(*target.allowed):
            target.read(text)
        slowest = max(slowest, time.process_time() - started)

    assert slowest < 1


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name.replace(" ", "-"))
def test_depth_and_size_are_bounded(target: Target) -> None:
    """Very deep and very long input is refused within a second of CPU time."""
    for bomb in (
        "[" * 1_000_000,
        '{"a":' * 200_000,
        '"' + "x" * 5_000_000 + '"',
        "9" * 100_000,
        "[" + "0," * 300_000 + "0]",
    ):
        started = time.process_time()
        with contextlib.suppress(*target.allowed):
            target.read(bomb)
        assert time.process_time() - started < 1


def test_mutations_reach_trees_and_characters() -> None:
    """Some mutations stay JSON and some do not, and the same seed gives the same mutations."""
    good = json.dumps({"a": [1, {"b": "c"}]})
    mutated = [mutate(good, random.Random(n)) for n in range(200)]

    assert mutated == [mutate(good, random.Random(n)) for n in range(200)]
    assert len(set(mutated)) > 100

    def is_json(text: str) -> bool:
        try:
            json.loads(text)
        except ValueError:
            return False
        return True

    assert 40 < sum(map(is_json, mutated)) < 190
