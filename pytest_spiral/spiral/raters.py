"""How far the raters of labelled turns agree: with each other, and together with what the turns' author meant. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pytest_spiral.report.model.judges import Agreement
from pytest_spiral.spiral.agreement import agreement_on
from pytest_spiral.spiral.labels import LabelledSet
from pytest_spiral.stats import Clusters

__all__ = ["Meant", "among_raters", "with_author"]

_SEED = "raters"


@dataclass(frozen=True, slots=True)
class Meant:
    """The raters' consensus on one behaviour against one reading of the author's.

    agreement: Krippendorff's alpha of the two. both: turns in which both have it; other_strength: those of them with
    another strength. consensus_only, author_only: the ids of turns in which only one has it.
    """

    agreement: Agreement
    both: int
    other_strength: tuple[str, ...]
    consensus_only: tuple[str, ...]
    author_only: tuple[str, ...]


# Each of several judges is measured against the same labels.
@lru_cache(maxsize=64)
def among_raters(labelled: LabelledSet, behaviour: str) -> Agreement | None:
    """Agreement of the raters with each other; None where there is one."""
    if len(labelled.raters) < 2:
        return None
    things = (
        (
            turn.unit,
            [float(turn.labels[r].get(behaviour, 0)) if r in turn.labels else None for r in labelled.raters],
        )
        for turn in labelled.turns
    )
    return agreement_on(Clusters.group("conversation", things), list(labelled.raters), _SEED)


@lru_cache(maxsize=64)
def with_author(labelled: LabelledSet, author: str, behaviour: str) -> Meant:
    """The consensus of the raters against a reading of the author's."""
    pairs = [(turn, turn.reference(behaviour), turn.meant[author].get(behaviour, 0)) for turn in labelled.turns]
    things = ((turn.unit, [float(one), float(two)]) for turn, one, two in pairs)
    return Meant(
        agreement_on(Clusters.group("conversation", things), ["consensus", author], _SEED),
        both=sum(bool(one and two) for _, one, two in pairs),
        other_strength=tuple(turn.id for turn, one, two in pairs if one and two and one != two),
        consensus_only=tuple(turn.id for turn, one, two in pairs if one and not two),
        author_only=tuple(turn.id for turn, one, two in pairs if two and not one),
    )
