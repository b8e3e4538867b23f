"""What a run survives besides its endpoints: signals, dead processes, full disks, damaged stores, jumping clocks."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import for_one_suite

RAW = ("--model", "m", "--prompting", "raw", "--run-id", "r")


def undisturbed(project):
    """Cards of the same run in peace."""
    assert project.pytest(*RAW[:-1], "peace", "-p", "no:xdist").ret == 0
    return project.cards("peace")


def started(project, *args, **options):
    """A run in a session of its own, so that single processes of it can be killed."""
    command = [sys.executable, "-m", "pytest", *for_one_suite(args)]
    return subprocess.Popen(
        command, cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def children(pid):
    """Process ids of a process's children."""
    path = f"/proc/{pid}/task/{pid}/children"
    if not os.path.exists(path):
        pytest.skip("needs /proc")
    with open(path) as file:
        return [int(child) for child in file.read().split()]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_full_disk(project, serve):
    """Not a traceback and not a score: exit code 4 and what to do; with room the same run goes on and loses nothing."""
    model = ScriptedModel()
    project.reach(serve(model))

    process = started(
        project, *RAW, "-p", "no:xdist", "-p", "no:cacheprovider",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (160_000, 160_000)),
    )  # fmt: skip
    text = process.communicate(timeout=60)[0]
    before = len(model.asked)
    again = project.pytest(*RAW, "-p", "no:xdist")

    print(text)
    assert process.returncode == 4
    assert "INTERNALERROR" not in text
    assert "Traceback" not in text
    assert "check disk and permissions" in text or "make room" in text
    assert again.ret == 0
    assert set(Counter(model.asked[before:]).values()) == {1}
    assert project.cards("r") == undisturbed(project)


