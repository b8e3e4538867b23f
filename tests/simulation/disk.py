"""A disk that fails: SQLite connections that raise errors or die at a chosen statement, and files with flipped bits."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

__all__ = ["CHANGED", "DAMAGES", "ERRORS", "Connection", "Damage", "Disk", "DiskFault", "Killed", "connect", "damage"]
__all__ += ["lose_unsynced", "stored_keys"]

_connect = sqlite3.connect


class Killed(SystemExit):
    """The process that runs is no more: raised where it died, so that nothing of it goes on."""


def _operational(message: str, code: int) -> Callable[[], Exception]:
    def make() -> Exception:
        error = sqlite3.OperationalError(message)
        error.sqlite_errorcode = code
        return error

    return make


ERRORS: dict[str, Callable[[], Exception]] = {
    "disk full": _operational("database or disk is full", sqlite3.SQLITE_FULL),
    "disk I/O error": _operational("disk I/O error", sqlite3.SQLITE_IOERR),
    "locked": _operational("database is locked", sqlite3.SQLITE_BUSY),
    "overflow": lambda: OverflowError("Python int too large to convert to SQLite INTEGER"),
    "encoding": lambda: UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    "memory": MemoryError,
}


@dataclass(frozen=True)
class DiskFault:
    """What happens at the statement with this number, counted from the last time that faults were armed.

    what: "kill", or one of `ERRORS`. when: before the statement took effect, or after. lasting: later ones fail too.
    writing: count only statements that write.
    """

    number: int
    what: str
    when: Literal["before", "after"]
    lasting: bool = False
    writing: bool = False


@dataclass
class Disk:
    """What the connections of one simulated process go through.

    statements: executed so far. met: faults that happened. dead: the process was killed; nothing of it has any effect.
    """

    name: str
    faults: list[DiskFault] = field(default_factory=list)
    statements: int = 0
    writes: int = 0
    met: list[str] = field(default_factory=list)
    raised: list[BaseException] = field(default_factory=list)
    dead: bool = False
    connections: list[Connection] = field(default_factory=list)
    note: Callable[[str], None] = lambda _: None

    def at(self, sql: str, when: Literal["before", "after"]) -> None:
        """Called around every statement. Raises what is to happen there."""
        if self.dead:
            raise Killed
        writes = sql.startswith(("BEGIN", "INSERT", "COMMIT"))
        self.statements += when == "before"
        self.writes += writes and when == "before"
        for fault in self.faults:
            if fault.writing and not writes:
                continue
            count = self.writes if fault.writing else self.statements
            due = fault.number == count or (fault.lasting and fault.number < count)
            if not due or fault.when != when or (fault.lasting and sql.startswith(("SELECT", "ROLLBACK"))):
                continue
            self.met.append(fault.what)
            self.note(f"{self.name}: {fault.what} {when} statement {self.statements}, {sql[:40]!r}")
            if fault.what == "kill":
                self.dead = True
                raise Killed
            error = ERRORS[fault.what]()
            self.raised.append(error)
            raise error

    def drop(self) -> None:
        """Take the process's connections away as the end of a process does: nothing is committed."""
        self.dead = True
        for connection in self.connections:
            connection.really_close()
        self.connections.clear()


class Connection(sqlite3.Connection):
    """A connection of a simulated process."""

    disk: Disk
    cursors: WeakSet[sqlite3.Cursor]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.disk.at(sql, "before")
        cursor = super().execute(sql, parameters)
        self.cursors.add(cursor)
        try:
            self.disk.at(sql, "after")
        except Exception:  # whatever fault the simulated disk raises
            # As sqlite3 does. The error is kept for long, and with it this frame, which would go on reading.
            cursor.close()
            raise
        return cursor

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        self.disk.at(sql, "before")
        cursor = super().executemany(sql, parameters)
        self.disk.at(sql, "after")
        return cursor

    def close(self) -> None:
        if not self.disk.dead:
            super().close()

    def really_close(self) -> None:
        """Close, whatever became of the process."""
        with suppress(sqlite3.ProgrammingError):
            # A statement that is under way would keep its locks.
            for cursor in self.cursors:
                cursor.close()
            if self.in_transaction:
                super().rollback()
        super().close()


def connect(disk: Disk, database: Any, **options: Any) -> Connection:
    """What `sqlite3.connect` does in a simulated process."""
    if disk.dead:
        raise Killed
    # Nobody can wait for a lock here: no other process does anything meanwhile.
    options["timeout"] = 0
    connection = _connect(database, factory=Connection, **options)
    assert isinstance(connection, Connection)
    connection.disk, connection.cursors = disk, WeakSet()
    disk.connections.append(connection)
    return connection


def stored_keys(files: Sequence[Path]) -> set[str]:
    """Keys of the replies in a store's files, read from a copy: opening them would tidy them up."""
    with tempfile.TemporaryDirectory(dir=files[0].parent if files else None) as folder:
        for path in files:
            shutil.copy(path, folder)
        connection = _connect(Path(folder) / "run.sqlite")
        try:
            return {row[0].hex() for row in connection.execute("SELECT key FROM reply")}
        except sqlite3.DatabaseError:
            return set()
        finally:
            connection.close()


def lose_unsynced(files: Mapping[Path, bytes], rng: random.Random) -> str:
    """What a power cut leaves of a store's files: the log is written to the disk only when it is copied into the file.

    Its end may be missing, or be there without its content. Returns what was lost.
    """
    what = "nothing"
    for path, content in files.items():
        path.unlink(missing_ok=True)
        if path.name.endswith("-shm"):
            continue
        copied = files.get(path.with_name(path.name.replace("-wal", "-shm")), b"")[96:100]
        if path.name.endswith("-wal") and content and not any(copied):
            kept = rng.randrange(len(content) + 1)
            what = f"{len(content) - kept} of {len(content)} bytes of the log"
            content = content[:kept] + rng.choice((b"", bytes(len(content) - kept)))
        path.write_bytes(content)
    return what


Damage = Literal["bit", "value", "emptied", "cut", "foreign"]
DAMAGES: tuple[Damage, ...] = ("bit", "value", "emptied", "cut", "foreign")
# Columns of `reply` of which a value is changed.
CHANGED = ("content", "reasoning", "settings", "finish", "prompt_tokens", "served_model", "attempts", "sample")


def damage(folder: Path, kind: Damage, rng: random.Random) -> str:
    """Change the store's files behind its back. Returns how, "" where there is nothing to change."""
    path = folder / "run.sqlite"
    if kind == "bit":
        return _flip_a_bit(folder, rng)
    if kind == "value":
        return _change_a_value(path, rng)
    # What is in the log would mend the file.
    connection = _connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = path.read_bytes()
    if kind == "cut":
        content = content[: rng.randrange(1, len(content))]
    path.write_bytes(content if kind == "cut" else b"" if kind == "emptied" else b"a file of somebody else\n" * 100)
    return f"{path.name} {kind}"


def _change_a_value(path: Path, rng: random.Random) -> str:
    """One value of one row, as damage in memory or a tool that meant well would change it."""
    connection = _connect(path)
    try:
        ids = [row[0] for row in connection.execute("SELECT id FROM reply ORDER BY id")]
        if not ids:
            return ""
        row, column = rng.choice(ids), rng.choice(CHANGED)
        (value,) = connection.execute(f"SELECT {column} FROM reply WHERE id = ?", (row,)).fetchone()
        if isinstance(value, bytes):
            other: object = value[::-1]
        else:
            other = f"{value}1" if isinstance(value, str) else rng.randrange(1, max(ids) * 3)
        connection.execute(f"UPDATE reply SET {column} = ? WHERE id = ?", (other, row))
        connection.commit()
        return f"{column} of reply {row}" if other != value else ""
    finally:
        connection.close()


def _flip_a_bit(folder: Path, rng: random.Random) -> str:
    files = [
        path for path in (folder / "run.sqlite", folder / "run.sqlite-wal") if path.exists() and path.stat().st_size
    ]
    if not files:
        return ""
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    place, bit = rng.randrange(len(data)), rng.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"{path.name}, byte {place}, bit {bit}"
