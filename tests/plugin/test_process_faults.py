"""What a run survives besides its endpoints: signals, dead processes, full and read-only disks, a second controller."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.store import PREFLIGHT
from tests.fakes.forks import ADDRESS
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve, command

RAW = ("--model", "m", "--suite=tempaffect", "--prompting", "raw", "--run-id", "r")
NO_XDIST = ("-p", "no:xdist")
Begin = Callable[..., subprocess.Popen[str]]
# Done by a worker before it opens the store.
REPLACE_STORE = """
import os, shutil
def pytest_collection_finish(session):
    if hasattr(session.config, "workerinput"):
        shutil.copy("reports/r/run.sqlite", "copy")
        os.replace("copy", "reports/r/run.sqlite")
"""
# Bytes of a file that fit on the disk: some dozens of replies.
ROOM = 60_000


def in_peace(project: Project, run: str = "r") -> bool:
    """Whether the cards of a run are those of an undisturbed one."""
    found = project.cards(run)
    return project.pytest(*RAW[:-1], "peace", *NO_XDIST).ret == 0 and project.cards("peace") == found


def replies_stored(project: Project, run: str = "r") -> int:
    """How many replies about scenarios a run has kept."""
    with closing(sqlite3.connect(project.folder(run) / "run.sqlite")) as store:
        (n,) = store.execute(f"SELECT count(*) FROM reply WHERE unit NOT LIKE '{PREFLIGHT}%'").fetchone()
    return int(n)


@pytest.fixture
def begin(project: Project) -> Iterator[Begin]:
    """Start runs in process groups of their own; all are gone after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*args: str, **options: Any) -> subprocess.Popen[str]:
        options = {"cwd": project.path, "process_group": 0, **options}
        processes.append(
            subprocess.Popen(command(*args), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        )
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def descendants(pid: int) -> list[int]:
    """Process ids of a process's children and theirs."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc")
    children = [int(child) for child in path.read_text().split()] if path.exists() else []
    return [*children, *(deeper for child in children for deeper in descendants(child))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_full_disk_stops_the_run(project: Project, serve: Serve, begin: Begin) -> None:
    """No traceback and no score: exit code 4 and what to do, and nothing more is asked that could not be kept. With
    room again the same run goes on and loses nothing."""
    model = ScriptedModel()
    project.reach(serve(model, latency=0.01))

    process = begin(
        *RAW, *NO_XDIST, "-p", "no:cacheprovider", "--concurrency=4",
        # A full disk would leave half-written byte code to all later processes.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (ROOM, ROOM))
    text = process.communicate(timeout=60)[0]
    asked, stored = len(model.asked), replies_stored(project)
    again = project.pytest(*RAW, *NO_XDIST)

    assert process.returncode == pytest.ExitCode.USAGE_ERROR
    assert "INTERNALERROR" not in text
    assert "Traceback" not in text
    assert "check disk and permissions" in text or "make room" in text
    # How many fit depends on the pages of SQLite and on how many replies shared a commit: some did, not all.
    assert 0 < stored < asked < 75
    # Four were under way when the disk was full, and the replies of one commit went with it.
    assert asked - stored <= 8
    assert again.ret == 0
    assert len(model.asked) == asked + 75 - stored
    assert in_peace(project)


def test_a_place_where_nobody_may_write(project: Project) -> None:
    """Exit code 4 and the remedy, before anything is asked."""
    if not Path("/sys/kernel").is_dir():
        pytest.skip("needs a folder where not even root may write")

    result = project.here(
        "--model=dry/perfect", "--suite=tempaffect", *NO_XDIST, "--run-id=r", "--report-dir=/sys/kernel"
    )

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "give a writable --report-dir" in " ".join(result.stderr.str().split())
    assert "Traceback" not in result.stderr.str()


def test_a_run_has_one_controller(project: Project, serve: Serve, begin: Begin, wait_for: Callable[..., None]) -> None:
    """A second run under the same id is refused while the first is under way, and does not disturb it."""
    model = ScriptedModel()
    project.reach(serve(model, latency=0.1))
    first = begin(*RAW, *NO_XDIST, "--concurrency=4")
    wait_for(lambda: len(model.asked) >= 4)

    second = project.pytest(*RAW, *NO_XDIST)
    text = first.communicate(timeout=60)[0]
    third = project.pytest(*RAW, *NO_XDIST)

    assert second.ret == pytest.ExitCode.USAGE_ERROR
    assert "'r' is under way in another process" in " ".join(second.stderr.str().split())
    assert first.returncode == 0, text
    assert third.ret == 0
    assert set(Counter(model.asked).values()) == {1}


@pytest.mark.parametrize(("place", "again"), [(NO_XDIST, False), (("-n", "1"), True)], ids=["no-xdist", "n1"])
def test_a_run_whose_directory_is_deleted_stops_paying(
    project: Project, serve: Serve, begin: Begin, wait_for: Callable[..., None], place: tuple[str, ...], again: bool
) -> None:
    """Within a second nothing more is sent, the run says why, and exits with 3. Nothing is put into a directory that
    somebody has made in its place (again)."""
    model = ScriptedModel()
    project.reach(serve(model, latency=0.4))
    process = begin(*RAW, *place, "--concurrency=2")
    wait_for(lambda: len(model.asked) >= 4)

    shutil.rmtree(project.folder("r"))
    if again:
        project.folder("r").mkdir()
    at = len(model.asked)
    text = process.communicate(timeout=60)[0]

    assert process.returncode == 3, text
    assert "was deleted or replaced while the run was under way" in " ".join(text.split())
    assert "INTERNALERROR" not in text
    assert "Traceback" not in text
    # Two in flight every 0.4 s, looked at once a second; the machine may be busy.
    assert len(model.asked) < at + 25 < 75
    assert project.folder("r").exists() == again
    assert not again or not list(project.folder("r").iterdir())


def test_a_worker_refuses_a_copy_of_the_store(project: Project) -> None:
    """A copy that takes the place of the store before a worker opens it: nothing is asked or stored, and it is said."""
    project.write(conftest__py=REPLACE_STORE)

    result = project.pytest("--model=dry/perfect", *RAW[2:], "-n1", "-k", "rm-01")
    text = " ".join((result.stdout.str() + result.stderr.str()).split())

    assert (result.ret, replies_stored(project)) == (3, 0), text
    assert "InstrumentFailure: " in text
    assert "was deleted or replaced while the run was under way" in text
    assert "INTERNALERROR" not in text
    assert "Traceback" not in text


def test_ctrl_c_once_and_twice(project: Project, serve: Serve, begin: Begin, wait_for: Callable[..., None]) -> None:
    """Once: nothing is sent any more, and the report is written. Twice at once: the run ends as well. Neither loses a
    stored reply."""
    model = ScriptedModel()
    server = serve(model, latency=0.05)
    project.reach(server)

    for times in (1, 2):
        before = len(model.asked)
        process = begin(*RAW, *NO_XDIST, "--concurrency=3")
        wait_for(lambda before=before: len(model.asked) >= before + 7)
        # From here on answers are slow: three wait, and whatever comes meanwhile was sent after the interruption.
        server.latency = 2
        time.sleep(0.4)
        at = len(model.asked)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        text = process.communicate(timeout=30)[0]

        # The second one may hit Python on its way out, which then ends by the signal itself.
        assert process.returncode in ((2,) if times == 1 else (2, -signal.SIGINT))
        assert len(model.asked) == at
        if times == 1:
            assert project.report("r")["run"]["complete"] is False
            assert "INTERNALERROR" not in text
        server.latency = 0.05
    server.latency = 0
    assert project.pytest(*RAW, *NO_XDIST).ret == 0
    # Three were under way at each interruption.
    assert len(model.asked) <= 75 + 3 + 3
    assert in_peace(project)


def test_killed_workers_and_a_killed_controller(
    project: Project, serve: Serve, begin: Begin, wait_for: Callable[..., None]
) -> None:
    """kill -9 of one worker: another takes over. Of the controller alone: its workers end by themselves, and the run
    can be resumed at once or as soon as they are gone."""
    model = ScriptedModel()
    server = serve(model, latency=0.15)
    project.reach(server)

    # Its workers must be its children.
    project.delenv(ADDRESS)
    process = begin(*RAW, "-n", "2", "--concurrency=4")
    wait_for(lambda: len(model.asked) >= 12)
    first, *_ = descendants(process.pid)
    os.kill(first, signal.SIGKILL)
    at = len(model.asked)
    wait_for(lambda: len(model.asked) >= at + 12)
    workers = descendants(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(map(alive, workers)), 30)
    wait_for(lambda: server.in_flight == 0)
    before, server.latency = len(model.asked), 0
    result = project.pytest(*RAW, *NO_XDIST)

    assert len(workers) >= 2
    assert result.ret == 0
    assert set(Counter(model.asked[before:]).values()) <= {1}
    # Two were under way in the worker that died, four in the run that died.
    assert len(model.asked) <= 75 + 2 + 4
    assert in_peace(project)
