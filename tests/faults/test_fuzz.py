"""Spoiled input for everything that reads foreign text: the short form of `python -m benchmarks.fuzz`."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import time

import pytest

from tests.faults.mutation import mutate
from tests.faults.targets import TARGETS


@pytest.fixture(scope="module", autouse=True)
def clean():
    """What earlier runs in this process left to the garbage collector takes it a second, which no reader caused."""
    gc.collect()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name.replace(" ", "-"))
def test_spoiled_input_is_refused_or_read(target):
    """Nothing is raised but what is promised, and nothing takes long."""
    rng, examples, slowest = random.Random(target.name), target.examples(), 0.0
    for text in examples:
        target.read(text)
    for _ in range(250):
        text = mutate(rng.choice(examples), rng)
        started = time.process_time()
        with contextlib.suppress(target.allowed):
            target.read(text)
        slowest = max(slowest, time.process_time() - started)

    assert slowest < 1


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name.replace(" ", "-"))
def test_depth_and_size_are_bounded(target):
    """A bomb is refused in no time."""
    for bomb in (
        "[" * 1_000_000,
        '{"a":' * 200_000,
        '"' + "x" * 5_000_000 + '"',
        "9" * 100_000,
        "[" + "0," * 300_000 + "0]",
    ):
        started = time.process_time()
        with contextlib.suppress(target.allowed):
            target.read(bomb)
        assert time.process_time() - started < 1


def test_mutations_reach_trees_and_characters():
    """The spoiler makes both kinds of damage, and is the same for the same seed."""
    good = json.dumps({"a": [1, {"b": "c"}]})
    spoiled = [mutate(good, random.Random(n)) for n in range(200)]

    assert spoiled == [mutate(good, random.Random(n)) for n in range(200)]
    assert len(set(spoiled)) > 100

    def reads(text):
        try:
            json.loads(text)
        except ValueError:
            return False
        return True

    assert 40 < sum(map(reads, spoiled)) < 190
