"""What the simulated user is told in each turn: drawn from seed, prompt and number of the conversation.

The whole schedule is drawn at once and is a prefix of every longer one: a conversation that is resumed keeps its
notes. A scripted turn carries none and draws nothing, so that it shifts no later draw.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

# One generated user turn in five carries an injection.
_ONE_IN = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnNote:
    """What the simulated user is told in one turn. text: all of it. injection: what the record keeps of it, if any."""

    text: str
    injection: str = ""


def injection_schedule(
    seed: int | str, prompt_id: str, index: int, generated: Sequence[bool], injections: Sequence[str]
) -> tuple[str | None, ...]:
    """The injection of each user turn after the opening, None where there is none, by upstream's rule.

    generated: per user turn, whether the user model writes it. seed: upstream takes its run id. Raises ValueError if no
    injections are given where some are needed.

    >>> injection_schedule(1, "td05", 0, [True] * 5, ["ask", "tell"])
    (None, None, 'tell', None, 'ask')
    """
    if any(generated) and not injections:
        raise ValueError("no injections to choose from")
    rng = random.Random(f"{seed}-{prompt_id}-{index}")
    return tuple(rng.choice(injections) if drawn and rng.random() < 1 / _ONE_IN else None for drawn in generated)


def balanced_schedule(
    seed: int | str, prompt_id: str, index: int, generated: Sequence[bool], kinds: Sequence[Sequence[str]]
) -> tuple[str | None, ...]:
    """The same by our rule: one in every five turns, every kind as often as the others or once more.

    A note comes again only after all of its kind. kinds: the notes of each.

    >>> balanced_schedule(1, "td-01", 0, [True] * 10, [["dare"], ["ask"], ["doubt"]])
    (None, 'ask', None, None, None, None, None, None, 'doubt', None)
    """
    rng = random.Random(f"{seed}-{prompt_id}-{index}")
    decks = _shuffled(rng, [_shuffled(rng, notes) for notes in kinds])
    schedule: list[str | None] = []
    at = place = 0
    for drawn in generated:
        if drawn and place % _ONE_IN == 0:
            at = place + rng.randrange(_ONE_IN)
        schedule.append(next(next(decks)) if drawn and place == at else None)
        place += drawn
    return tuple(schedule)


def paced(
    seed: int | str, prompt_id: str, index: int, injections: Sequence[str | None], decks: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """A card of each deck for every turn; a deck gives all of its cards before one comes again.

    injections: of each turn; one takes the place of all cards, which are not drawn then.

    >>> paced(1, "td-01", 0, [None, "dare", None], [["ask", "tell"], ["short", "long"]])
    (('tell', 'long'), ('dare',), ('ask', 'short'))
    """
    rng = random.Random(f"{seed}-{prompt_id}-{index}-pace")
    cards = zip(*(_shuffled(rng, deck) for deck in decks), strict=True)
    return tuple((injection,) if injection else next(cards) for injection in injections)


def _shuffled(rng: random.Random, cards: Sequence[T]) -> Iterator[T]:
    """All cards in a random order, then all in another, without end."""
    while True:
        yield from rng.sample(cards, len(cards))
