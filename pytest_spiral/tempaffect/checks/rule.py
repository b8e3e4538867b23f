"""The form of all language rules: an ordered table in which the first rule that applies decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Subject = TypeVar("Subject")
Ruling = TypeVar("Ruling")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Subject, Ruling]):
    """One rule of an ordered table; its examples are in `tests/tempaffect/data/rule_examples.toml`.

    Attributes:
        name: What the rule recognises, unique in its table.
        applies: Whether the rule decides about a subject. A rule that quotes the reply returns the words it quotes.
        kind: What the rule makes of the subject.
    """

    name: str
    applies: Callable[[Subject], bool | str]
    kind: Ruling


def first_rule(rules: Iterable[Rule[Subject, Ruling]], subject: Subject) -> Rule[Subject, Ruling] | None:
    """Return the first rule that applies, None if none does."""
    for rule in rules:
        if rule.applies(subject):
            return rule
    return None


def matches(rules: Iterable[Rule[Subject, Ruling]], subject: Subject) -> Iterator[tuple[Rule[Subject, Ruling], str]]:
    """Yield every rule that applies, with the words it quotes or else its name."""
    for rule in rules:
        found = rule.applies(subject)
        if found:
            yield rule, found if isinstance(found, str) else rule.name
