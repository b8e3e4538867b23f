"""A pytest plugin for measurements: every process of a run writes what it used into the folder METER names."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: Any) -> None:
    """CPU seconds, and the most memory that was resident."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    found = {
        "worker": hasattr(config, "workerinput"),
        "peak_mib": int(status["VmHWM"].split()[0]) / 1024,
        "cpu": _cpu(),
    }
    Path(os.environ["METER"], f"{os.getpid()}.json").write_text(json.dumps(found))
