"""Result files with the numbers of published ones and no texts, as `benchmarks.upstream_numbers` makes them."""

from __future__ import annotations

import atexit
import gzip
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pytest_spiral.spiral import Conversation, load_upstream

__all__ = ["ENSEMBLE", "SCORED", "ensemble", "numbers_of"]

SCORED = ("kimi-k2.json", "llama-4-maverick.json")
ENSEMBLE = "gemini-3-pro-preview-v1.2.json"
FOLDER = Path(__file__).parents[1] / "data" / "upstream"


@cache
def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="spiral-numbers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def numbers_of(name: str) -> Path:
    """Path of an unpacked file, named as the published one."""
    path = _scratch() / name
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
    return path


@cache
def ensemble() -> tuple[Sequence[Conversation], Sequence[Mapping[str, Any]]]:
    """Conversations of the file of version 1.2, and its published rows."""
    path = numbers_of(ENSEMBLE)
    (run,) = json.loads(path.read_text()).values()
    return load_upstream(path), run["__meta__"]["scoring_summary"]
