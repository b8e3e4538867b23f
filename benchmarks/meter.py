"""A pytest plugin for measurements: every process of a run writes what it used into the folder METER names."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: Any) -> None:
    """Bytes written to files and pipes, the most memory that was resident, CPU seconds."""
    written = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "worker": hasattr(config, "workerinput"),
        "written": int(written["wchar"]),
        "peak_mib": int(status["VmHWM"].split()[0]) / 1024,
        "cpu": used.ru_utime + used.ru_stime,
    }
    Path(os.environ["METER"], f"{os.getpid()}.json").write_text(json.dumps(found))
