"""A pytest plugin for measurements: every process of a run writes what it used into the folder METER names."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_LOOP = pytest.StashKey[float]()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """CPU seconds from the first item to the last, without start-up and report."""
    began = _cpu()
    try:
        return (yield)
    finally:
        session.config.stash[_LOOP] = _cpu() - began


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: Any) -> None:
    """Bytes written to files and pipes, the most memory that was resident, CPU seconds."""
    written = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    found = {
        "worker": hasattr(config, "workerinput"),
        "written": int(written["wchar"]),
        "peak_mib": int(status["VmHWM"].split()[0]) / 1024,
        "cpu": _cpu(),
        "loop_cpu": config.stash.get(_LOOP, 0.0),
    }
    Path(os.environ["METER"], f"{os.getpid()}.json").write_text(json.dumps(found))
