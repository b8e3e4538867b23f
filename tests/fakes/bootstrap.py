"""Bootstrap intervals from few draws: most of the time of a small report goes into its intervals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_spiral.spiral import agreement, calibration, sample
from pytest_spiral.stats import percentile_resamples, rao_wu_resamples
from pytest_spiral.tempaffect import card_metrics


@contextmanager
def few_draws(draws: int = 200) -> Iterator[None]:
    """Within it, every bootstrap of this process makes so many draws."""
    with pytest.MonkeyPatch.context() as patch:
        # Where the statistics draw: the number is data, and its hash is part of reports.
        patch.setattr(card_metrics, "percentile_resamples", lambda n, _, seed: percentile_resamples(n, draws, seed))
        patch.setattr(sample, "rao_wu_resamples", lambda sizes, _, seed: rao_wu_resamples(sizes, draws, seed))
        for module, name in ((agreement, "_DRAWS"), (calibration, "_DRAWS"), (calibration, "_FEW_DRAWS")):
            patch.setattr(module, name, min(draws, 20))
        # Draws are remembered: those of other tests are not for these, nor these for others.
        card_metrics.bootstrap_draws.cache_clear()
        yield
    card_metrics.bootstrap_draws.cache_clear()
