"""Intervals, tests, power and agreement over independent units. Pure, standard library only.

Every function states its formula and source. Samples come as `Clusters` or `Tally`, which cannot be made of turns.
"""

# Each module lists its public names.
from pytest_spiral.stats.agreement import *  # noqa: F403
from pytest_spiral.stats.clusters import *  # noqa: F403
from pytest_spiral.stats.corrected import *  # noqa: F403
from pytest_spiral.stats.label_plan import *  # noqa: F403
from pytest_spiral.stats.rates import *  # noqa: F403
from pytest_spiral.stats.resampling import *  # noqa: F403
from pytest_spiral.stats.variance import *  # noqa: F403
