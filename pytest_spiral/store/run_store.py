"""Access to the store of one run, for the controller and its workers."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from pytest_spiral.chat import ChatReply, ChatRequest, Role, TokenUsage
from pytest_spiral.errors import ChatError, LostStoreError, StoreError
from pytest_spiral.grouping import grouped
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import database, texts
from pytest_spiral.store.records import AnsweredCall, EndpointPace, ModelUsage, StoredExchange
from pytest_spiral.store.rows import CHECKED_TABLES, DamagedRowError, add_row, checksum, next_id, verify_rows
from pytest_spiral.store.texts import Texts

# Errors that are about the values of one row, not about the file.
_ROW_ERRORS = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
# Between two looks whether the file is still there. A look takes microseconds; what is paid in between may be lost.
_LOOK_SECONDS = 1.0


class RunStore:
    """One run's database. Safe to use from several threads and processes at once.

    Create it with `create_or_resume` (once, by the controller) or `join` (by its workers). It keeps nothing in memory
    that is also in the file, so a failed write cannot make the two differ.

    Attributes:
        broken: Why nothing more can be stored, None while all is well.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.broken: StoreError | None = None
        self._connection = connection
        self._held = ExitStack()
        self._held.callback(connection.close)
        # A store in memory has no file.
        paths = (path, database.lock_path(path))
        self._files = {each: found for each in paths if (found := database.identity(each)) is not None}
        self._looked_at = time.monotonic()
        self._thread_lock = threading.Lock()
        self._texts = Texts()

    @classmethod
    def create_or_resume(cls, path: Path, config: Mapping[str, object], *, alone: bool = False) -> Self:
        """Open the store of a run; make it if there is none.

        Args:
            config: Everything that decides what is measured, as JSON values.
            alone: Hold the run until `close`, so that no other process can be its controller meanwhile.

        Raises:
            StoreError: The file is no store of ours, is damaged, belongs to a run with another configuration (the
                message names the fields that differ) or to one that is under way.
        """
        with ExitStack() as opened:
            if alone:
                opened.enter_context(database.lock_run(path))
            if not path.exists():
                database.create(path, config)
            store = cls(path, database.connect(path))
            opened.callback(store._held.pop_all().close)
            store._verify()
            store._take(config, may_change=alone)
            store._held = opened.pop_all()
        return store

    @classmethod
    def in_memory(cls, config: Mapping[str, object]) -> Self:
        """A new store that is gone when it is closed."""
        connection = database.open_any(database.IN_MEMORY)
        database.make_tables(connection, config)
        return cls(database.IN_MEMORY, connection)

    @classmethod
    def join(cls, path: Path, file: database.FileIdentity | None = None) -> Self:
        """Open a store that the controller has made. Raises `StoreError`.

        file: the controller's file. Another one in its place is refused, even if it is a copy.
        """
        # Before it is opened: SQLite would take the log of the controller's file for the other one's.
        if file is not None and database.identity(path) != file:
            raise database.lost(path)
        store = cls(path, database.connect(path))
        if file is not None:
            store._files[path] = file
        return store

    @property
    def file(self) -> database.FileIdentity | None:
        """The file that this store works on, as processes of this machine know it; None for a store in memory."""
        return self._files.get(self.path)

    def check(self) -> None:
        """Raise `StoreError` where nothing more can be stored: then nothing more must be asked and paid for."""
        self.check_file()
        if self.broken is not None:
            raise self.broken

    def check_file(self, *, now: bool = False) -> None:
        """Raise `LostStoreError` where the file is no longer where it was. Looked at once a second, or `now`."""
        at = time.monotonic()
        if now or at - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = at
            for path, found in self._files.items():
                if database.identity(path) != found:
                    self.broken = database.lost(path)
        if isinstance(self.broken, LostStoreError):
            raise self.broken

    def _take(self, config: Mapping[str, object], *, may_change: bool) -> None:
        """Raise `StoreError` for a run with another configuration.

        may_change: whether a run in which nothing was measured takes this one: its own may have kept it from starting.
        """
        measured = "SELECT 1 FROM reply WHERE unit NOT LIKE ? || '%' LIMIT 1"
        with self._reading() as connection:
            stored = {field: json.loads(value) for field, value in connection.execute("SELECT * FROM run")}
            found = connection.execute(measured, (database.PREFLIGHT,)).fetchone()
        other = database.other_run(self.path, stored, config)
        if other is not None and (found is not None or not may_change):
            raise other
        if other is not None:
            with self._writing() as connection:
                database.keep_config(connection, config)

    def _verify(self) -> None:
        """Verify every row and text before anything is built on them. Raises `StoreError`."""
        with self._reading() as connection:
            ((pages,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
            if pages != "ok":
                raise DamagedRowError(str(pages).partition("\n")[0])
            # One moment, whatever is added meanwhile.
            connection.execute("BEGIN")
            for table in CHECKED_TABLES:
                verify_rows(connection, table)
            next_text = next_id(connection, "text")
            for row_id, settings, reasoning in connection.execute("SELECT id, settings, reasoning FROM reply"):
                used = [settings, reasoning or 0, *texts.places_in(connection, row_id)]
                if not -row_id <= min(used) <= max(used) < next_text:
                    raise DamagedRowError(f"a text of reply {row_id} is missing")
            database.roll_back(connection)

    def find(self, request: ChatRequest) -> ChatReply | None:
        """The stored reply to a request, None if it was never answered. Raises `StoreError`."""
        with self._reading() as connection:
            return self._reply(connection, request)

    def keep_all(self, answered: Iterable[tuple[ChatRequest, ChatReply]]) -> list[ChatReply]:
        """Store replies; they are committed when this returns, and where it raises, nothing is stored.

        Returns:
            The replies that count: of two to the same request, the first.

        Raises:
            StoreError: The file cannot be written.
            ChatError: A reply cannot be stored (`store_failed`); others can.
        """
        with self._writing() as connection:
            kept = []
            for request, reply in answered:
                if (stored := self._reply(connection, request)) is None:
                    self._insert(connection, request, reply)
                kept.append(stored or reply)
            return kept

    def exchanges(self) -> list[StoredExchange]:
        """Every request with its reply, in the order in which they were stored. Raises `StoreError`."""
        with self._reading() as connection:
            found = connection.execute("SELECT * FROM reply ORDER BY id").fetchall()
            return [self._exchange(connection, row) for row in found]

    def answers(self, known: int) -> list[AnsweredCall]:
        """Who has answered, in the order in which it was stored, but for the first `known`. Raises `StoreError`."""
        with self._reading() as connection:
            # Ids have no gaps.
            found = connection.execute(
                "SELECT role, model, unit, seconds, at, attempts FROM reply WHERE id > ? ORDER BY id", (known,)
            )
            return [AnsweredCall(*values) for values in found.fetchall()]

    def last_exchange(self, unit: str, role: Role, model: str) -> StoredExchange | None:
        """The last request of a unit to a model that was answered, None for none. Raises `StoreError`."""
        last = "SELECT * FROM reply WHERE unit = ? AND role = ? AND model = ? ORDER BY id DESC LIMIT 1"
        with self._reading() as connection:
            row = connection.execute(last, (unit, role, model)).fetchone()
            return None if row is None else self._exchange(connection, row)

    def add_failure(self, request: ChatRequest, error: ChatError) -> None:
        """Store that a call failed; it is made again when the run is resumed. Raises like `keep_all`."""
        key = _key(request)
        row = (key, request.role, request.model, request.unit, str(error.code), str(error), error.attempts, time.time())
        with self._writing() as connection:
            add_row(connection, "failure", row)

    def usage(self) -> list[ModelUsage]:
        """Requests, tokens, retries and failures per role and model over the whole life of the run."""
        with self._reading() as connection:
            replies = connection.execute(
                "SELECT role, model, count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), "
                "sum(reasoning_tokens), sum(reasoning_tokens > 0 OR reasoning IS NOT NULL), sum(attempts - 1) "
                "FROM reply GROUP BY role, model"
            ).fetchall()
            failures = connection.execute(
                "SELECT role, model, count(*), sum(max(attempts - 1, 0)) FROM failure GROUP BY role, model"
            ).fetchall()
        found = {(row[0], row[1]): ModelUsage(*row) for row in replies}
        for role, model, count, retries in failures:
            row = found.get((role, model), ModelUsage(role, model))
            found[role, model] = replace(row, failures=count, retries=row.retries + retries)
        return [found[name] for name in sorted(found)]

    def served_models(self, model: str) -> tuple[str, ...]:
        """Names under which endpoints served `model` as the evaluated model, sorted."""
        with self._reading() as connection:
            found = connection.execute(
                "SELECT DISTINCT served_model FROM reply "
                "WHERE role = 'evaluated' AND model = ? AND served_model <> '' ORDER BY served_model",
                (model,),
            ).fetchall()
        return tuple(name for (name,) in found)

    def pace(self, endpoint: str) -> EndpointPace | None:
        """The limit on an endpoint's requests in flight that holds now, None before the first."""
        with self._reading():
            return self._pace(endpoint)

    def set_pace(self, endpoint: str, seen: EndpointPace | None, new: EndpointPace) -> EndpointPace:
        """Let `new` follow `seen`. Where another process was faster, its value holds.

        Returns:
            The value that holds.
        """
        with self._writing() as connection:
            held = self._pace(endpoint)
            if held is not None and held != seen:
                return held
            add_row(connection, "pace", (endpoint, new.most, new.ceiling, new.reason, new.epoch, float(new.at)))
        return new

    def paces(self) -> dict[str, list[EndpointPace]]:
        """Every limit that every endpoint has had, in order."""
        with self._reading() as connection:
            rows = connection.execute("SELECT endpoint, most, ceiling, reason, epoch, at FROM pace ORDER BY id")
            return grouped((endpoint, EndpointPace(*values)) for endpoint, *values in rows)

    def secret(self) -> str:
        """A random string of this run, the same whenever it is resumed; nothing that a model sees reveals it."""
        with self._reading() as connection:
            return str(connection.execute("SELECT value FROM secret").fetchone()[0])

    def set_secret(self, secret: str) -> None:
        """Take over the secret of the run that this store works for, before anything is asked."""
        with self._writing() as connection:
            connection.execute("UPDATE secret SET value = ?, checksum = ?", (secret, checksum(1, [secret])))

    def close(self) -> None:
        """Close the connection and release the run. Harmless when called twice."""
        self._held.close()

    def _insert(self, connection: sqlite3.Connection, request: ChatRequest, reply: ChatReply) -> None:
        row_id, usage = next_id(connection, "reply"), reply.usage
        asked = (_key(request), request.role, request.model, request.unit, request.sample)
        settings = self._texts.place(connection, request.settings)
        content = self._texts.pack(connection, row_id, request, reply.text)
        tokens = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.reasoning_tokens)
        reasoning = self._texts.place(connection, reply.reasoning) if reply.reasoning else None
        times = (round(float(reply.seconds), 3), reply.attempts, round(time.time(), 3))
        # In the order of the columns, see `data/store.sql`.
        row = (*asked, settings, content, reply.finish, reply.model, *tokens, reasoning, *times)
        add_row(connection, "reply", row)

    def _reply(self, connection: sqlite3.Connection, request: ChatRequest) -> ChatReply | None:
        row = connection.execute("SELECT * FROM reply WHERE key = ?", (_key(request),)).fetchone()
        return None if row is None else self._read_reply(connection, _verified(row))

    def _exchange(self, connection: sqlite3.Connection, row: sqlite3.Row) -> StoredExchange:
        row_id, role, model = _verified(row)["id"], row["role"], row["model"]
        try:
            settings = json.loads(texts.text_at(connection, row["settings"]))
            messages = texts.messages_of(connection, row_id)
            request = ChatRequest(role, model, messages, **settings, sample=row["sample"], unit=row["unit"])
            if _key(request) == row["key"]:
                return StoredExchange(request, self._read_reply(connection, row), row["at"])
        except texts.UNREADABLE as error:
            says = str(error) if isinstance(error, DamagedRowError) else f"the request of reply {row_id} cannot be read"
            raise DamagedRowError(says) from None
        raise DamagedRowError(f"reply {row_id} does not belong to its request")

    def _read_reply(self, connection: sqlite3.Connection, row: sqlite3.Row) -> ChatReply:
        tokens = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
        usage = TokenUsage(*(row[name] for name in tokens))
        text = self._texts.reply(connection, row["id"])
        reasoning = "" if row["reasoning"] is None else texts.text_at(connection, row["reasoning"])
        return ChatReply(text, row["finish"], row["served_model"], usage, row["seconds"], row["attempts"], reasoning)

    def _pace(self, endpoint: str) -> EndpointPace | None:
        row = self._connection.execute(
            "SELECT most, ceiling, reason, epoch, at FROM pace WHERE endpoint = ? ORDER BY id DESC LIMIT 1", (endpoint,)
        ).fetchone()
        return row and EndpointPace(*row)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._thread_lock:
            try:
                # What a failed rollback has left open is not in the file and must not be read.
                database.roll_back(self._connection)
                yield self._connection
            except (*database.ERRORS, DamagedRowError, json.JSONDecodeError) as error:
                raise database.damaged(self.path, error) from None
            except Exception as error:
                raise self._refused(error) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction. An error about one row fails that row; one about the file breaks the store."""
        with self._thread_lock:
            # SQLite would go on writing to a file that nobody can find.
            self.check_file()
            try:
                with self._texts.kept(), database.transaction(self._connection):
                    yield self._connection
            except DamagedRowError as error:
                raise database.damaged(self.path, error) from None
            except database.ERRORS as error:
                if isinstance(error, _ROW_ERRORS):
                    raise self._refused(error) from None
                self.broken = database.unwritable(self.path, error)
                raise self.broken from None
            except Exception as error:  # such as integers or strings that SQLite cannot hold
                raise self._refused(error) from error

    def _refused(self, error: Exception) -> ChatError:
        says = f"{self.path}: the store cannot handle this entry ({type(error).__name__}: {error})"
        return ChatError(ReasonCode.STORE_FAILED, says)


def _key(request: ChatRequest) -> bytes:
    return bytes.fromhex(request.key)[:16]


def _verified(row: sqlite3.Row) -> sqlite3.Row:
    """A row as it is. Raises `DamagedRowError`."""
    row_id, *values, found = row
    with suppress(AttributeError, TypeError):  # a value of another type
        if isinstance(row_id, int) and found == checksum(row_id, values):
            return row
    raise DamagedRowError("the checksum of a reply is wrong")
