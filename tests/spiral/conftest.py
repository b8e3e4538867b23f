"""Public result files: their numbers from the repository, and the whole files where the environment names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.published import SCORED, numbers_of


@pytest.fixture(params=SCORED)
def numbers_file(request: pytest.FixtureRequest) -> Path:
    """A result file with the numbers of a published one and without its texts."""
    return numbers_of(request.param)


@pytest.fixture(params=SCORED)
def upstream_file(request: pytest.FixtureRequest) -> Path:
    """A published result file with its texts."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not folder:
        pytest.skip("SPIRAL_UPSTREAM_DIR names no folder of upstream's result files")
    return Path(folder) / str(request.param)
