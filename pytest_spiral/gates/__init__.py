"""Release conditions: their language, and what the data allow to conclude about them."""

# Each module lists its public names.
from pytest_spiral.gates.decision import *  # noqa: F403
from pytest_spiral.gates.estimate import *  # noqa: F403
from pytest_spiral.gates.grammar import *  # noqa: F403
