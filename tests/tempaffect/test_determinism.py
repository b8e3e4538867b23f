"""Byte-stable: the same input gives the same checks, reasons included, under every hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import hashlib, json
from dataclasses import asdict
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.suite import load_suite

scenarios = load_suite().scenarios
seen = [
    json.dumps(asdict(check_reply(asked, replied.reference_reply)), sort_keys=True)
    for asked in scenarios[::6]
    for replied in (*scenarios[:2], asked)
]
print(hashlib.sha256(chr(10).join(seen).encode()).hexdigest())
"""


def test_checks_do_not_depend_on_the_hash_seed(lean: dict[str, str]) -> None:
    """Two processes with different seeds agree to the last byte."""
    result = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, **lean, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }

    assert len(result) == 1
