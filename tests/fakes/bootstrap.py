"""Intervals from few draws: most of the time of a small report goes into its intervals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_spiral.spiral import agreement, calibration, sample
from pytest_spiral.stats import percentile_resamples, rao_wu_resamples, resampling
from pytest_spiral.tempaffect import card_metrics

_gaffke = resampling._gaffke


@contextmanager
def few_draws(draws: int = 50) -> Iterator[None]:
    """Within it, every bootstrap and every bound of a mean of this process makes so many draws."""
    with pytest.MonkeyPatch.context() as patch:
        # Where the statistics draw: the number is data, and its hash is part of reports.
        patch.setattr(card_metrics, "percentile_resamples", lambda n, _, seed: percentile_resamples(n, draws, seed))
        patch.setattr(sample, "rao_wu_resamples", lambda sizes, _, seed: rao_wu_resamples(sizes, draws, seed))
        patch.setattr(resampling, "_gaffke", lambda ordered, confidence, _: _gaffke(ordered, confidence, draws))
        for module, name in ((agreement, "_DRAWS"), (calibration, "_DRAWS"), (calibration, "_FEW_DRAWS")):
            patch.setattr(module, name, min(draws, 20))
        _forget()
        yield
    _forget()


def _forget() -> None:
    """What draws make is remembered: that of other tests is not for these, nor theirs for others."""
    card_metrics.bootstrap_draws.cache_clear()
    calibration.agreement_among_raters.cache_clear()
