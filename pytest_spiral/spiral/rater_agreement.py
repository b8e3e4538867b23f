"""How far the raters of labelled turns agree with each other, and with what the turns' author meant."""

from __future__ import annotations

from functools import lru_cache

from pytest_spiral.report.model.judges import Agreement
from pytest_spiral.spiral.agreement import agreement_on
from pytest_spiral.spiral.labels import LabelledSet
from pytest_spiral.spiral.toml_tables import Table
from pytest_spiral.stats import Clusters

_SEED = "raters"


class AuthorAgreement(Table):
    """The raters' consensus on one behaviour against one reading of the author's, with the ids of differing turns."""

    agreement: Agreement
    both: int
    other_strength: tuple[str, ...]
    consensus_only: tuple[str, ...]
    author_only: tuple[str, ...]


# Each of several judges is measured against the same labels.
@lru_cache(maxsize=64)
def agreement_among_raters(labelled: LabelledSet, behaviour: str) -> Agreement | None:
    """Agreement of the raters with each other; None where there is one, or where nobody looked."""
    if len(labelled.raters) < 2:
        return None
    rows = [
        (turn.unit, [float(given[rater]) if rater in given else None for rater in labelled.raters])
        for turn in labelled.turns
        for given in (turn.given(behaviour),)
    ]
    if not any(rating is not None for _, ratings in rows for rating in ratings):
        return None
    return agreement_on(Clusters.group("conversation", rows), list(labelled.raters), _SEED)


@lru_cache(maxsize=64)
def agreement_with_author(labelled: LabelledSet, author: str, behaviour: str) -> AuthorAgreement:
    """The consensus of the raters against a reading of the author's."""
    pairs = [
        (turn, reference, turn.meant[author].get(behaviour, 0))
        for turn in labelled.turns
        if (reference := turn.reference(behaviour)) is not None
    ]
    rows = ((turn.unit, (float(one), float(two))) for turn, one, two in pairs)
    return AuthorAgreement(
        agreement=agreement_on(Clusters.group("conversation", rows), ["consensus", author], _SEED),
        both=sum(bool(one and two) for _, one, two in pairs),
        other_strength=tuple(turn.id for turn, one, two in pairs if one and two and one != two),
        consensus_only=tuple(turn.id for turn, one, two in pairs if one and not two),
        author_only=tuple(turn.id for turn, one, two in pairs if two and not one),
    )
