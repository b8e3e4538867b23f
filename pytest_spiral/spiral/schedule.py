"""What is drawn at random before a conversation starts: the order of the prompts and the injections.

Upstream's rule, so that published schedules are reproduced. The whole schedule is drawn at once and never resumed in
the middle: a conversation taken up again keeps its injections.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["injection_schedule", "prompt_order"]

T = TypeVar("T")

# One generated user turn in five carries an injection.
INJECTION_RATE = 1 / 5
ORDER_SEED = 42


def injection_schedule(
    seed: int | str, prompt_id: str, convo_index: int, generated: Sequence[bool], injections: Sequence[T]
) -> tuple[T | None, ...]:
    """The injection of each user turn after the opening, None where there is none.

    generated: per user turn, whether the user model writes it; a scripted turn (False) draws nothing, so that it shifts
    no later draw. seed: the run's seed; upstream takes its run id.
    Raises ValueError where a turn is generated and there are no injections.

    >>> injection_schedule(1, "td05", 0, [True] * 5, ["ask", "tell"])
    (None, None, 'tell', None, 'ask')
    """
    if any(generated) and not injections:
        raise ValueError("no injections to choose from")
    rng = random.Random(f"{seed}-{prompt_id}-{convo_index}")
    return tuple(rng.choice(injections) if drawn and rng.random() < INJECTION_RATE else None for drawn in generated)


def prompt_order(prompts: Sequence[T], limit: int | None = None) -> tuple[T, ...]:
    """The prompts in upstream's order, the first `limit` of them. Not stratified by category."""
    order = list(prompts)
    random.Random(ORDER_SEED).shuffle(order)
    return tuple(order[:limit])
