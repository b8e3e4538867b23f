"""The store's file: resumed, shared between processes, and refused when it is foreign or damaged."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.chat import ChatReply
from pytest_spiral.errors import LostStoreError, StoreError
from pytest_spiral.store import RunStore, StoredChat, StoredExchange, database, run_store
from tests.store.conftest import CONFIG, Counting, FailingConnection, ask, resume


def test_a_resumed_run_is_the_same_run(store: RunStore) -> None:
    """The same configuration opens the store again, with its replies and its secret."""
    store.keep_all([(ask(), ChatReply("kept"))])
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


@pytest.mark.parametrize("pragma", ["application_id=1", "user_version=8"])
def test_stores_of_other_formats_are_refused_by_whoever_opens_them(store: RunStore, pragma: str) -> None:
    """By the controller of a run, by its workers and by readers."""
    store.close()
    with closing(sqlite3.connect(store.path)) as other:
        other.execute(f"PRAGMA {pragma}")

    for opened in (resume, RunStore.join):
        with pytest.raises(StoreError, match=r"run\.sqlite: (not a run store|store format 8, .* reads \d+; choose)"):
            opened(store.path)


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


@pytest.mark.parametrize("lockable", [True, False], ids=["directory", "lock file"])
def test_a_run_has_one_controller_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lockable: bool) -> None:
    """Another one is refused in one sentence, also where directories cannot be locked, and the lock ends with its
    holder, be it by kill -9. Where they can be, there is nothing to delete that would let another one in."""
    files = ["run.sqlite"] if lockable else ["run.lock", "run.sqlite"]
    if not lockable:
        (tmp_path / "fcntl.py").write_text("raise ImportError('as on other systems')\n")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
        monkeypatch.setitem(sys.modules, "fcntl", None)
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
        if lockable:
            for file in path.parent.iterdir():
                file.unlink()
            with pytest.raises(StoreError, match="'r' is under way in another process"):
                RunStore.create_or_resume(path, CONFIG, alone=True)
    finally:
        holder.kill()
        holder.communicate()

    RunStore.create_or_resume(path, CONFIG, alone=True).close()
    RunStore.create_or_resume(path, CONFIG, alone=True).close()
    assert sorted(file.name for file in path.parent.iterdir()) == files


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "cut in the header"])
def test_a_torn_store_is_refused(tmp_path: Path, damage: str) -> None:
    """Before anything is built on it, and it is left as it is."""
    path = tmp_path / "run.sqlite"
    store = resume(path)
    for n in range(200):
        store.keep_all([(ask(f"question {n} " * 20), ChatReply(f"answer {n} " * 20))])
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


@pytest.mark.parametrize("alone", [False, True])
def test_an_empty_file_is_not_a_new_run(tmp_path: Path, alone: bool) -> None:
    """What was in it is lost, which is for the user to know. It is named and left as it is, and so is a log."""
    path = tmp_path / "run.sqlite"
    path.touch()
    log = tmp_path / "run.sqlite-wal"
    log.write_bytes(b"what was not copied into the store")

    with pytest.raises(StoreError, match=r"run\.sqlite: is empty.*another --run-id"):
        RunStore.create_or_resume(path, CONFIG, alone=alone)
    with pytest.raises(StoreError, match=r"run\.sqlite: is empty"):
        RunStore.join(path)
    path.unlink()
    with pytest.raises(StoreError, match=r"run\.sqlite-wal: .* is missing.*another --run-id"):
        RunStore.create_or_resume(path, CONFIG, alone=alone)

    assert [(file, file.stat().st_size > 0) for file in tmp_path.iterdir()] == [(log, True)]


def test_what_a_process_left_that_died_while_making_a_store_is_replaced(tmp_path: Path) -> None:
    """Its half-made files are not taken for a store, nor for the log of the new one."""
    path = tmp_path / "run.sqlite"
    for name in ("run.new", "run.new-wal", "run.new-shm"):
        (tmp_path / name).write_bytes(b"half of something" * 100)

    resume(path).close()
    resume(path).close()

    assert [file.name for file in tmp_path.iterdir()] == ["run.sqlite"]


@pytest.mark.parametrize("number", range(1, 16))
def test_a_process_that_dies_while_it_makes_the_file_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """At any statement: there is a whole file or none, and the next process goes on."""
    path = tmp_path / "run.sqlite"
    real = sqlite3.connect

    def dying(*arguments: Any, **options: Any) -> FailingConnection:
        return FailingConnection(real(*arguments, **options), KeyboardInterrupt(), number)  # type: ignore[arg-type]  # not an Exception

    monkeypatch.setattr(sqlite3, "connect", dying)
    with suppress(KeyboardInterrupt):
        resume(path).close()
    monkeypatch.undo()

    resume(path).close()
    assert [file.name for file in tmp_path.iterdir()] == ["run.sqlite"]


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    """Nor the files that SQLite keeps beside it."""
    old = os.umask(0)
    try:
        store = resume(tmp_path / "run.sqlite")
        store.keep_all([(ask(), ChatReply("private"))])
        modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(old)

    assert modes == dict.fromkeys(["run.sqlite", "run.sqlite-wal", "run.sqlite-shm"], "0o600")


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_is_gone_is_noticed(store: RunStore, monkeypatch: pytest.MonkeyPatch, replaced: bool) -> None:
    """SQLite would go on storing replies where nobody finds them: nothing more is asked or stored."""
    monkeypatch.setattr(run_store, "_LOOK_SECONDS", 0.0)
    model = Counting()
    chat = StoredChat(model, store)
    asyncio.run(chat.complete(ask("before")))
    store.path.unlink()
    if replaced:
        store.path.write_bytes(b"somebody else's")

    for _ in range(2):
        with pytest.raises(LostStoreError, match=r"run\.sqlite: was deleted or replaced"):
            asyncio.run(chat.complete(ask("after")))
    with pytest.raises(LostStoreError):
        store.keep_all([(ask("after"), ChatReply("after"))])

    assert model.calls == 1


def test_a_worker_refuses_another_file_than_the_controllers(store: RunStore) -> None:
    """A copy that took the store's place before the worker came: what it stored there would be lost to the run."""
    file = store.file
    RunStore.join(store.path, file).close()
    copy = store.path.with_name("copy")
    copy.write_bytes(store.path.read_bytes())
    copy.replace(store.path)

    with pytest.raises(LostStoreError, match=r"run\.sqlite: was deleted or replaced"):
        RunStore.join(store.path, file)


@pytest.mark.parametrize("read", ["find", "last_exchange", "exchanges"])
def test_an_error_while_reading_keeps_nothing_of_the_past(store: RunStore, read: str) -> None:
    """While somebody holds the error, the store still sees what other processes store after it."""
    store.keep_all([(ask("before"), ChatReply("x"))])
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("UPDATE reply SET finish = cast(x'ff' AS TEXT)")
        connection.commit()
    calls: dict[str, Callable[[], object]] = {
        "find": lambda: store.find(ask("before")),
        "last_exchange": lambda: store.last_exchange("u", "evaluated", "m"),
        "exchanges": store.exchanges,
    }

    with pytest.raises(StoreError, match="damaged") as held:
        calls[read]()
    other = RunStore.join(store.path)
    other.keep_all([(ask("after"), ChatReply("y"))])
    other.close()

    assert [row.requests for row in store.usage()] == [2], held


def test_looking_is_cheap(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second at most, however much is stored."""
    looked: list[Path] = []
    monkeypatch.setattr(database, "identity", lambda path: looked.append(path) or store._files[path])  # type: ignore[func-returns-value]  # None
    now = [1000.0]
    monkeypatch.setattr("pytest_spiral.store.run_store.time.monotonic", lambda: now[0])
    store._looked_at = 0.0

    for n in range(50):
        now[0] += 0.1
        store.keep_all([(ask(str(n)), ChatReply("x"))])

    assert 4 <= len(looked) <= 6


def write_many(path: Path, start: int) -> None:
    store = RunStore.join(path)
    for n in range(start, start + 200):
        store.keep_all([(ask(str(n)), ChatReply(str(n)))])
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
    store.keep_all([(ask("a"), ChatReply("a"))])
    store.keep_all([(ask("b"), ChatReply("b"))])
    first, second = store.exchanges()

    assert isinstance(first, StoredExchange)
    assert 1.7e9 < first.at <= second.at
