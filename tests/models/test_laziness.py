"""What talking to models costs a run that does not."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("openai", "aiohttp", "httpx2", "xllamacpp")

CODE = f"""
import json, sys
from pytest_spiral.models import limiter, local_file, local_server, parameters
from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.models.openai_compatible import OpenAICompatible
OpenAICompatible(Endpoint("judge", "http://127.0.0.1:9"))
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""


def test_nothing_heavy_is_imported_before_the_first_call() -> None:
    """A run that only reads old transcripts never pays for openai and aiohttp."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == []


def test_a_worker_imports_nothing_of_the_report() -> None:
    """Only the controller evaluates: the other processes of a run are spared the report and the statistics."""
    code = "import json, sys, pytest_spiral.plugin.worker; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    parts = {name.removeprefix("pytest_spiral.") for name in json.loads(done.stdout)}
    assert "run.runner" in parts
    assert parts & {"report.model", "evaluate", "gates", "stats", "compare", "cli", "spiral.calibration"} == set()
