"""Measuring how the cost of reading a text grows with its length."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import TypeVar

T = TypeVar("T")
FACTOR = 8  # times longer; eight times the work is linear, 64 times quadratic
MOST = 32  # times the work, and as much again as a machine is uneven
UNEVEN = 0.005  # seconds of CPU that decide nothing


def cost(read: Callable[[T], object], text: T, enough: float = 0.0) -> float:
    """Seconds of CPU, the least of three tries; of fewer where one has taken no more than what is `enough`."""
    least = float("inf")
    for _ in range(3):
        start = process_time()
        read(text)
        least = min(least, process_time() - start)
        if least <= enough:
            break
    return least


def assert_linear(read: Callable[[str], object], make: Callable[[int], str], size: int) -> None:
    """The text that is `FACTOR` times as long costs at most `MOST` times as much."""
    short = cost(read, make(size))
    long = cost(read, make(FACTOR * size), MOST * short + UNEVEN)

    assert long <= MOST * short + UNEVEN, f"{short:.4f} s for {size} signs, {long:.4f} s for {FACTOR} times as many"
