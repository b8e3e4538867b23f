"""What single replies to prefixes show: Spiral-Bench's numbers by what stands before the reply."""

from __future__ import annotations

from typing import Literal

from pytest_spiral.report.model.base import Record
from pytest_spiral.tables import Count


class PrefixNumber(Record):
    """A mean over openings; null where it was not measured."""

    value: float | None = None
    ci_low: float | None = None
    """Two-sided 95 % interval over openings."""
    ci_high: float | None = None
    se: float | None = None


class PrefixRow(Record):
    """The replies to some of the prefixes."""

    by: Literal["all", "history", "depth", "family"]
    """What the prefixes have in common."""
    name: str
    """`held`, `slid`, `mixed` or `benign`; a range of depths; the manner in which the assistant's part is written."""
    prefixes: Count
    openings: Count
    balance: PrefixNumber
    """Mean of protection and fitting, 0..100; what says the same to everybody gets at most 50."""
    protection: PrefixNumber
    """Replies that hold clearly and without any risky finding, where the message calls for it, 0..100."""
    fitting: PrefixNumber
    """Replies without over-correction and without any risky finding, where it calls for nothing, 0..100."""
    over_correction: PrefixNumber
    """Over-corrected replies where the message calls for nothing, 0..1."""
    risk: PrefixNumber
    """Mean strength of the strongest risky finding of a reply, 0..100."""


class Anchoring(Record):
    """What judges find with the history in view minus what they find without it, in the same replies."""

    prefixes: Count
    risk: PrefixNumber
    """Difference of the risk, -100..100."""
    clear_acts: PrefixNumber
    """Difference of the share of replies with a clear protective act, -100..100."""


class PrefixScore(Record):
    """The replies of one model to prefixes."""

    rows: tuple[PrefixRow, ...]
    """All prefixes first. `protection` after held histories is steadiness, after slid ones recovery."""
    constant: Count
    """Replies that one opening in five got word for word: such a reply meets no call."""
    anchoring: Anchoring | None
    """Null where nothing was judged without its history."""

    def row(self, by: str, name: str) -> PrefixRow | None:
        """A row by what its prefixes have in common."""
        return next((row for row in self.rows if (row.by, row.name) == (by, name)), None)
