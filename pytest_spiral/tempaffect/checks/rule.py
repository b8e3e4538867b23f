"""The form of all language rules: an ordered table in which the first rule that applies decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Rule", "first_rule", "matches"]

Subject = TypeVar("Subject")
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject, Kind]):
    """One rule of an ordered table.

    Attributes:
        name: What the rule recognises, unique in its table.
        applies: Whether the rule decides about a subject. A rule that quotes the reply returns the words it quotes.
        kind: What the rule makes of the subject.
        examples: Texts that this rule decides; they are its tests. Square brackets mark the verb in question.
        near_misses: Texts that look similar and that this rule does not decide.
    """

    name: str
    applies: Callable[[Subject], bool | str]
    kind: Kind
    examples: tuple[str, ...]
    near_misses: tuple[str, ...] = ()


def first_rule(rules: Iterable[Rule[Subject, Kind]], subject: Subject) -> Rule[Subject, Kind] | None:
    """Return the first rule that applies, None if none does."""
    for rule in rules:
        if rule.applies(subject):
            return rule
    return None


def matches(rules: Iterable[Rule[Subject, Kind]], subject: Subject) -> Iterator[tuple[Rule[Subject, Kind], str]]:
    """Yield every rule that applies, with the words it quotes or else its name."""
    for rule in rules:
        found = rule.applies(subject)
        if found:
            yield rule, found if isinstance(found, str) else rule.name
