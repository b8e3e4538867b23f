"""Upstream's result files, where the environment names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILES = ("kimi-k2.json", "llama-4-maverick.json")


@pytest.fixture(params=FILES)
def upstream_file(request):
    """Path of one published result file."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not folder:
        pytest.skip("SPIRAL_UPSTREAM_DIR names no folder of upstream's result files")
    return Path(folder) / request.param
