"""How far the scorer's own errors may move a useful-and-bounded rate. Pure, on published error rates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pydantic import Field

from pytest_spiral.report.model.tempaffect import ScorerRange
from pytest_spiral.resources import data_root
from pytest_spiral.tables import Table, read_table


class WriterErrors(Table):
    """Errors on replies of one writer that no rule was written for, labelled blind.

    Attributes:
        writer: How the writer writes.
        good, lost: Replies that raters would send, and how many of them the scorer rejects.
        bad, passed: Replies that they would not, and how many it accepts.
    """

    writer: str
    good: int = Field(ge=1)
    lost: int = Field(ge=0)
    bad: int = Field(ge=1)
    passed: int = Field(ge=0)

    def corrected(self, rate: float) -> float | None:
        """The share of replies in 0..1 that raters would send, if the scorer errs as on this writer's.

        None where it tells good from bad no better than by chance. Source: Rogan and Gladen 1978, Am. J. Epidemiology
        107:71.
        """
        information = 1 - self.lost / self.good - self.passed / self.bad
        if information <= 0:
            return None
        return min(1.0, max(0.0, (rate - self.passed / self.bad) / information))


class _File(Table):
    writers: tuple[WriterErrors, ...] = Field(min_length=2)


@lru_cache(maxsize=1)
def published_errors() -> tuple[WriterErrors, ...]:
    """The errors of the scorer on the bundled suite, from `scorer_errors.toml`."""
    return read_table(_File, data_root() / "tempaffect" / "scorer_errors.toml").writers


def range_of(rate: float, writers: Sequence[WriterErrors]) -> ScorerRange:
    """The lowest and the highest rate over the writers, which enclose the rate itself."""
    rates = [rate, *(found for writer in writers if (found := writer.corrected(rate)) is not None)]
    return ScorerRange(low=min(rates), high=max(rates), writers=len(rates) - 1)
