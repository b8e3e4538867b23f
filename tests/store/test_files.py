"""The store's file: resumed, shared between processes, and refused when it is foreign or damaged."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_spiral.chat import ChatReply
from pytest_spiral.errors import StoreError
from pytest_spiral.store import Exchange, RunStore
from tests.store.conftest import CONFIG, ask, resume


def test_a_resumed_run_is_the_same_run(store: RunStore) -> None:
    """The same configuration opens the store again, with its replies and its secret."""
    store.keep(ask(), ChatReply("kept"))
    secret = store.secret()
    store.close()

    again = resume(store.path)

    assert (again.find(ask()), again.secret()) == (ChatReply("kept"), secret)
    again.close()


def test_another_configuration_is_refused_by_field(store: RunStore) -> None:
    """The message names what differs and what to do."""
    with pytest.raises(StoreError, match=r"seed \(was 1, now 2\).*another --run-id"):
        RunStore.create_or_resume(store.path, {**CONFIG, "seed": 2})


def test_foreign_databases_are_refused(tmp_path: Path) -> None:
    """Somebody else's SQLite file is left alone."""
    path = tmp_path / "run.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")

    with pytest.raises(StoreError, match="not a run store"):
        resume(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """A file that is no database is named, not replaced."""
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"this is not a database, and long enough to be read as one" * 50)

    with pytest.raises(StoreError, match="damaged"):
        resume(path)

    assert path.read_bytes().startswith(b"this is not")


HOLD = """
import sys, time
from pathlib import Path
from pytest_spiral.store import RunStore
store = RunStore.create_or_resume(Path(sys.argv[1]), {"models": ["a"], "seed": 1}, alone=True)
print("held", flush=True)
time.sleep(60)
"""


def test_a_run_has_one_controller_at_a_time(tmp_path: Path) -> None:
    """Another one is refused in one sentence; the lock ends with its holder, be it by kill -9."""
    path = tmp_path / "r" / "run.sqlite"
    path.parent.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        with pytest.raises(StoreError, match="'r' is under way in another process"):
            RunStore.create_or_resume(path, CONFIG, alone=True)
        # Reading it meanwhile is allowed.
        resume(path).close()
    finally:
        holder.kill()
        holder.communicate()

    RunStore.create_or_resume(path, CONFIG, alone=True).close()
    RunStore.create_or_resume(path, CONFIG, alone=True).close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["run.lock", "run.sqlite"]


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "cut in the header"])
def test_a_torn_store_is_refused(tmp_path: Path, damage: str) -> None:
    """Before anything is built on it, and it is left as it is."""
    path = tmp_path / "run.sqlite"
    store = resume(path)
    for n in range(200):
        store.keep(ask(f"question {n} " * 20), ChatReply(f"answer {n} " * 20))
    store.close()
    whole = path.read_bytes()
    torn = {
        "truncated": whole[: len(whole) // 2 + 100],
        "overwritten": whole[:20_000] + b"\xa5" * 20_000 + whole[40_000:],
        "cut in the header": whole[:50],
    }[damage]
    path.write_bytes(torn)

    with pytest.raises(StoreError, match=r"run\.sqlite: the run store is damaged .*another --run-id"):
        resume(path)

    assert path.read_bytes() == torn


def test_an_empty_store_is_refused(tmp_path: Path) -> None:
    """Something else has emptied it: a store comes into being whole, whenever its process dies."""
    path = tmp_path / "run.sqlite"
    path.touch()

    with pytest.raises(StoreError, match=r"run\.sqlite: an empty file; restore it or choose another --run-id"):
        resume(path)

    assert path.read_bytes() == b""


def test_what_a_process_left_that_died_while_making_a_store_is_replaced(tmp_path: Path) -> None:
    """Its half-made files are not taken for a store, nor for the log of the new one."""
    path = tmp_path / "run.sqlite"
    for name in ("run.new", "run.new-wal", "run.new-shm"):
        (tmp_path / name).write_bytes(b"half of something" * 100)

    resume(path).close()
    resume(path).close()

    assert [file.name for file in tmp_path.iterdir()] == ["run.sqlite"]


def write_many(path: Path, start: int) -> None:
    store = RunStore.join(path)
    for n in range(start, start + 200):
        store.keep(ask(str(n)), ChatReply(str(n)))
    store.close()


@pytest.mark.parametrize(("method", "count"), [("spawn", 2), ("fork", 4)])
def test_processes_write_side_by_side(store: RunStore, method: str, count: int) -> None:
    """Several writers lose nothing and lock nobody out, however they were started."""
    context = multiprocessing.get_context(method)
    writers = [context.Process(target=write_many, args=(store.path, 200 * k)) for k in range(count)]  # type: ignore[attr-defined]  # typeshed has it on the concrete contexts only
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [writer.exitcode for writer in writers] == [0] * count
    texts = sorted(int(each.reply.text) for each in store.exchanges())
    assert texts == list(range(200 * count))


def test_when_a_reply_was_stored_is_on_record(store: RunStore) -> None:
    """In seconds since 1970, in the order of storing."""
    store.keep(ask("a"), ChatReply("a"))
    store.keep(ask("b"), ChatReply("b"))
    first, second = store.exchanges()

    assert isinstance(first, Exchange)
    assert 1.7e9 < first.at <= second.at
