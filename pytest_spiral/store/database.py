"""The store's SQLite file: its tables, opening and checking it, and its transactions."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from pytest_spiral.differences import differences, listed
from pytest_spiral.errors import LostStoreError, StoreError
from pytest_spiral.resources import data_root, read_text
from pytest_spiral.store.rows import add_row

# SQLite quotes a damaged file in its messages, and Python decodes them.
ERRORS = (sqlite3.Error, UnicodeDecodeError)
_APPLICATION_ID = 0x53504952  # "SPIR": tells our file from any other SQLite database
_FORMAT = 9
# Seconds that a writer waits for another process of the run; a commit takes less than a millisecond.
_BUSY_SECONDS = 30
# Copying the log into the database waits for the disk, so it happens once in 8 MB and not once in 1 MB.
_CHECKPOINT_PAGES = 2048
_REMEDY = "restore it or choose another --run-id"
PREFLIGHT = "(preflight) "
"""How units begin that measure nothing: they learn how a model is to be asked."""
FileIdentity = tuple[int, int]
"""Device and number of a file: two paths with the same one lead to the same file."""
IN_MEMORY = Path(":memory:")
"""The path of a store without a file."""


def connect(path: Path) -> sqlite3.Connection:
    """Open a store of this format. Raises `StoreError`."""
    try:
        if not path.stat().st_size:
            raise StoreError(f"{path}: is empty, so it is no run store; {_REMEDY}")
        connection = open_any(path)
        with ExitStack() as opened:
            opened.callback(connection.close)
            ours, version = connection.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchone()
            if ours != _APPLICATION_ID:
                raise StoreError(f"{path}: not a run store of pytest-spiral; {_REMEDY}")
            if version != _FORMAT:
                says = f"store format {version}, this version reads {_FORMAT}"
                raise StoreError(f"{path}: {says}; choose another --run-id")
            opened.pop_all()
            return connection
    except (OSError, sqlite3.OperationalError) as error:
        says = f"{path}: the run store cannot be opened ({getattr(error, 'strerror', None) or error})"
        raise StoreError(f"{says}; check the path and its permissions") from None
    except ERRORS as error:
        raise damaged(path, error) from None


def open_any(path: Path) -> sqlite3.Connection:
    """Open a file, whatever is in it, or a store in memory. Raises `sqlite3.Error`."""
    # SQLite would make a file that is missing.
    name = str(path) if path == IN_MEMORY else f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(name, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    connection.row_factory = sqlite3.Row
    # With a write-ahead log a killed process loses nothing; only a power cut may lose the last commits.
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
    return connection


def damaged(path: Path, error: object) -> StoreError:
    """The error for a file whose content cannot be trusted."""
    return StoreError(f"{path}: the run store is damaged ({error}); {_REMEDY}")


def create(path: Path, config: Mapping[str, object]) -> None:
    """Make the file of a new run: under another name first, so that an unfinished one is never taken for it.

    Only its owner may read it, and the files that SQLite keeps beside it. Raises `StoreError`.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        # SQLite would replay it into the new file.
        raise StoreError(f"{log}: the run store it belongs to is missing; {_REMEDY}")
    new = path.with_suffix(".new")
    try:
        # What a process left that died here.
        for suffix in ("", "-journal", "-wal", "-shm"):
            new.with_name(new.name + suffix).unlink(missing_ok=True)
        new.touch(0o600, exist_ok=False)
        with closing(open_any(new)) as connection:
            make_tables(connection, config)
        new.replace(path)
    except (OSError, *ERRORS) as error:
        raise unwritable(path, error) from None


def make_tables(connection: sqlite3.Connection, config: Mapping[str, object]) -> None:
    """The tables of a new run. Raises `sqlite3.Error`."""
    with transaction(connection):
        for statement in read_text(data_root() / "store.sql").split(";"):
            connection.execute(statement)
        keep_config(connection, config)
        add_row(connection, "secret", (secrets.token_hex(16),))
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={_FORMAT}")
    # Set once, before any worker opens the file: processes that switch at the same time lock each other out.
    connection.execute("PRAGMA journal_mode=WAL")


def keep_config(connection: sqlite3.Connection, config: Mapping[str, object]) -> None:
    """Store the configuration of the run."""
    connection.execute("DELETE FROM run")
    rows = [(field, json.dumps(value, sort_keys=True)) for field, value in sorted(config.items())]
    connection.executemany("INSERT INTO run VALUES (?, ?)", rows)


def lost(path: Path) -> LostStoreError:
    """The error for a file that is no longer where it was."""
    return LostStoreError(
        f"{path}: was deleted or replaced while the run was under way, so replies can no longer be kept; nothing more "
        "is sent. Start the run again, and leave its directory alone until it ends"
    )


def unwritable(path: Path, error: object) -> StoreError:
    """The error for a file that nothing can be stored in."""
    return StoreError(f"{path}: the run store cannot be written ({error}); check disk and permissions")


def other_run(path: Path, stored: Mapping[str, object], config: Mapping[str, object]) -> StoreError | None:
    """The error for a file that belongs to a run with another configuration than `config`, None if it does not."""
    own = json.loads(json.dumps(dict(config)))
    if not (differing := list(differences(stored, own))):
        return None
    again = f"pytest --replay={path.parent} --redo-judging --judge-model=NAME"
    judges = stored.get("judge_model") != own.get("judge_model")
    other_judges = f"; for other judges of its conversations: {again}" if judges else ""
    return StoreError(
        f"run {path.parent.name!r} exists with another configuration: "
        + listed(differing, "{name} (was {one}, now {other})")
        + f". Give the same configuration to resume it, or another --run-id for a new run{other_judges}"
    )


@contextmanager
def lock_run(path: Path) -> Iterator[None]:
    """The right to be a run's controller: a lock that the operating system releases however its holder ends.

    It is on the run directory itself, where there is no file that somebody could delete. Raises `StoreError` while
    another process holds it.
    """
    taken = f"run {path.parent.name!r} is under way in another process; wait for its end or give another --run-id"
    with ExitStack() as held:
        try:
            import fcntl

            folder = os.open(path.parent, os.O_RDONLY)
            held.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(taken) from None
        except (ImportError, OSError):
            # Windows and some network file systems cannot lock directories. Windows deletes no file that is open.
            held.callback(_lock_file(lock_path(path), taken).close)
        yield


def lock_path(path: Path) -> Path:
    """The file that is locked where directories cannot be."""
    return path.with_suffix(".lock")


def _lock_file(lock: Path, taken: str) -> sqlite3.Connection:
    held = sqlite3.connect(lock, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        # Nothing is ever written, so there is no journal beside it.
        held.execute("PRAGMA journal_mode=MEMORY")
        held.execute("BEGIN EXCLUSIVE")
    except ERRORS as error:
        held.close()
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            raise StoreError(taken) from None
        raise StoreError(f"{lock}: cannot be locked ({error}); check disk and permissions") from None
    return held


def identity(path: Path) -> FileIdentity | None:
    """What stays the same while a path leads to the same file, None where it leads to none."""
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; writers of several processes queue up instead of failing."""
    roll_back(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # After a commit there is nothing to undo. A full disk leaves some transactions open and ends others by itself.
        with suppress(sqlite3.Error):
            roll_back(connection)


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what a failed transaction may have left behind."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
