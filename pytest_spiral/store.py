"""The run store: one SQLite file per run that holds every request and reply the moment it completes.

Nothing is written twice: texts are stored once, a request refers to an earlier one for the history it shares with it,
and rows are only ever appended. What is known is looked up in memory, so there is no index to keep. Resuming a run is
running it again against its store: a request whose key is known is answered from here and never sent twice.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pytest_spiral.chat import ChatModel, ChatReply, ChatRequest, Message, Schema, Usage, as_json, digest
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.models.limiter import Pace

__all__ = ["RunStore", "StoredChat"]

_APPLICATION_ID = 0x53504952  # "SPIR": tells our file from any other SQLite database
_FORMAT = 2
# A commit rewrites the last, half-full page of each table: small pages keep that small.
_PAGE_BYTES = 1024
_CHECKPOINT_PAGES = 8192
# How many messages the next request of a conversation may have beyond those it shares with the one before.
_LOOK_BACK = 4
_TABLES = """
CREATE TABLE run (field TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE secret (value TEXT NOT NULL);
CREATE TABLE text (id INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE form (id INTEGER PRIMARY KEY, role TEXT NOT NULL, model TEXT NOT NULL, params TEXT NOT NULL, schema TEXT);
CREATE TABLE exchange (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL, form INTEGER NOT NULL REFERENCES form, unit TEXT NOT NULL,
  sample INTEGER NOT NULL,
  base INTEGER REFERENCES exchange, kept INTEGER NOT NULL, added TEXT NOT NULL,
  text INTEGER NOT NULL REFERENCES text, finish TEXT NOT NULL, served_model TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
  seconds REAL NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL
);
CREATE TABLE failure (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL, unit TEXT NOT NULL,
  kind TEXT NOT NULL, message TEXT NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL
);
CREATE TABLE pace (
  id INTEGER PRIMARY KEY, endpoint TEXT NOT NULL, most INTEGER NOT NULL, ceiling INTEGER NOT NULL, reason TEXT NOT NULL,
  epoch INTEGER NOT NULL, at REAL NOT NULL
);
CREATE VIEW reply AS
  SELECT exchange.id, lower(hex(key)) AS key, role, model, unit, sample, params, schema, text.content AS text, finish,
    served_model, prompt_tokens, cached_tokens, completion_tokens, seconds, attempts, at
  FROM exchange JOIN form ON form.id = form JOIN text ON text.id = text;
CREATE VIEW message AS
  SELECT DISTINCT json_extract(value, '$[0]') AS role, content
  FROM exchange, json_each(added) JOIN text ON text.id = json_extract(value, '$[1]')
"""
_INSERT = """
INSERT INTO exchange
  (key, form, unit, sample, base, kept, added, text, finish, served_model,
   prompt_tokens, cached_tokens, completion_tokens, seconds, attempts, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: ChatRequest
    reply: ChatReply
    kept: asyncio.Future[ChatReply]


class RunStore:
    """Access to one run's database. Safe to use from several threads and processes at once.

    Create with `create_or_resume` (once, by the process that leads the run) or `join` (its workers).
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._claim: sqlite3.Connection | None = None
        self.broken: StoreError | None = None
        """Why nothing more can be kept, None while all is well."""
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
        # What is in the file, as far as this process has seen it. Ids are those of rows.
        self._last = 0
        self._known: dict[str, int] = {}
        self._texts: dict[bytes, int] = {}
        self._forms: dict[tuple[str, ...], int] = {}
        self._histories: dict[bytes, int] = {}

    @classmethod
    def create_or_resume(cls, path: Path, config: Mapping[str, Any], *, alone: bool = False) -> RunStore:
        """Open the store of a run, made anew where there is none.

        config: everything that decides what is measured, as JSON values. alone: hold the run until `close`, so that
        nobody else can lead it meanwhile.
        Raises `StoreError` where the file is no store of ours, is damaged, belongs to a run with another configuration
        (the message names the fields that differ), or to one that is under way.
        """
        store = cls(path, _connect(path))
        try:
            if not store._is_empty():
                store._check(config)
            if alone:
                store._claim = _claim(path)
            if store._is_empty():
                store._create(config)
            else:
                store._check(config)
                store._check_pages()
            with store._reading():
                store._catch_up()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def join(cls, path: Path) -> RunStore:
        """Open a store that the leading process has made."""
        store = cls(path, _connect(path))
        with store._reading():
            store._catch_up()
        return store

    def _is_empty(self) -> bool:
        """Whether the file is new, or was left behind by a process that died before it had written anything."""
        try:
            return bool(self._connection.execute("SELECT count(*) = 0 FROM sqlite_schema").fetchone()[0])
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> StoreError:
        return _damaged(self.path, error)

    def _create(self, config: Mapping[str, Any]) -> None:
        rows = [(field, json.dumps(value, sort_keys=True)) for field, value in sorted(config.items())]
        try:
            self._connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
            self._connection.execute("PRAGMA journal_mode=WAL")
            with self._transaction():
                for statement in _TABLES.split(";"):
                    self._connection.execute(statement)
                self._connection.executemany("INSERT INTO run VALUES (?, ?)", rows)
                self._connection.execute("INSERT INTO secret VALUES (?)", (secrets.token_hex(16),))
                self._connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version={_FORMAT}")
        except sqlite3.Error as error:
            raise self._unwritable(error) from None

    def _check(self, config: Mapping[str, Any]) -> None:
        try:
            application = self._connection.execute("PRAGMA application_id").fetchone()[0]
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if application != _APPLICATION_ID:
                raise StoreError(f"{self.path}: not a run store of pytest-spiral; choose another --run-id")
            if version != _FORMAT:
                raise StoreError(
                    f"{self.path}: store format {version}, this version reads {_FORMAT}; choose another --run-id"
                )
            stored = {field: json.loads(value) for field, value in self._connection.execute("SELECT * FROM run")}
        except (sqlite3.Error, ValueError) as error:
            raise self._damaged(error) from None
        wanted = json.loads(json.dumps(dict(config)))
        differing = [
            f"{field} (was {_short(stored.get(field))}, now {_short(wanted.get(field))})"
            for field in sorted({*stored, *wanted})
            if stored.get(field) != wanted.get(field)
        ]
        if differing:
            raise StoreError(
                f"run {self.path.parent.name!r} exists with another configuration: {'; '.join(differing)}. "
                "Give the same configuration to resume it, or another --run-id for a new run"
            )

    def _check_pages(self) -> None:
        """A torn or truncated file is found out before anything is built on it."""
        try:
            ((said,),) = self._connection.execute("PRAGMA quick_check(1)").fetchall()
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        if said != "ok":
            raise self._damaged(ValueError(str(said).partition("\n")[0]))

    def find(self, request: ChatRequest) -> ChatReply | None:
        """The stored reply to a request, None if it was never answered."""
        known = self._known.get(request.key)
        if known is None:
            return None
        with self._reading():
            row = self._connection.execute(
                "SELECT text, content, finish, served_model, prompt_tokens, cached_tokens, completion_tokens, seconds, "
                "attempts FROM exchange JOIN text ON text.id = text WHERE exchange.id = ?",
                (known,),
            ).fetchone()
        text, content, finish, served, prompt, cached, completion, seconds, attempts = row
        # What comes after a resumed history refers to it.
        self._remember(request, known)
        self._texts[digest(content)] = text
        return ChatReply(_decode(content), finish, served, Usage(prompt, cached, completion), seconds, attempts)

    def knows(self, request: ChatRequest) -> bool:
        """Whether a request was answered, as far as this process has seen."""
        return request.key in self._known

    def messages(self, key: str) -> tuple[Message, ...]:
        """The messages of an answered request, by its key. Raises `KeyError`."""
        with self._reading():
            return tuple(self._messages(self._known[key]))

    def _messages(self, exchange: int) -> list[Message]:
        base, kept, added = self._connection.execute(
            "SELECT base, kept, added FROM exchange WHERE id = ?", (exchange,)
        ).fetchone()
        found = self._messages(base)[:kept] if base is not None else []
        for role, text in json.loads(added):
            (content,) = self._connection.execute("SELECT content FROM text WHERE id = ?", (text,)).fetchone()
            found.append(Message(role, _decode(content)))
        return found

    async def keep(self, request: ChatRequest, reply: ChatReply) -> ChatReply:
        """Keep a reply; committed when this returns. All replies of one turn of the event loop share a commit.

        Returns the reply that counts: of two replies to the same request the first. Raises `StoreError`.
        """
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = []
            loop.call_soon(self._commit_waiting, loop)
        kept: asyncio.Future[ChatReply] = loop.create_future()
        waiting.append(_Waiting(request, reply, kept))
        return await kept

    def _commit_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.pop(loop)
        try:
            replies = self._commit([(each.request, each.reply) for each in waiting])
        except StoreError as error:
            for each in waiting:
                if not each.kept.done():
                    each.kept.set_exception(error)
            return
        self._hand_over(loop, deque(zip(waiting, replies, strict=True)))

    def _hand_over(self, loop: asyncio.AbstractEventLoop, kept: deque[tuple[_Waiting, ChatReply]]) -> None:
        """One reply in each turn of the loop: a conversation has sent its next request before the next one goes on, so
        that those whose replies came together do not stay together."""
        each, reply = kept.popleft()
        # A unit that was cancelled meanwhile does not wait any more; its reply is kept all the same.
        if not each.kept.done():
            each.kept.set_result(reply)
        if kept:
            loop.call_soon(self._hand_over, loop, kept)

    def add(self, request: ChatRequest, reply: ChatReply) -> ChatReply:
        """`keep` for code without an event loop."""
        return self._commit([(request, reply)])[0]

    def add_all(self, answered: Sequence[tuple[ChatRequest, ChatReply]]) -> None:
        """Keep replies that were given elsewhere, in one commit; known requests are left as they are."""
        if answered:
            self._commit(answered)

    def replies(self) -> Iterator[tuple[str, ChatReply]]:
        """Every reply with the key of its request."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT key, text, finish, served_model, prompt_tokens, cached_tokens, completion_tokens, seconds, "
                "attempts FROM reply ORDER BY id"
            ).fetchall()
        for key, text, finish, served, prompt, cached, completion, seconds, attempts in rows:
            yield key, ChatReply(_decode(text), finish, served, Usage(prompt, cached, completion), seconds, attempts)

    def _commit(self, answered: Sequence[tuple[ChatRequest, ChatReply]]) -> list[ChatReply]:
        doubles: list[int] = []
        with self._writing():
            for number, (request, reply) in enumerate(answered):
                if request.key in self._known:
                    doubles.append(number)
                else:
                    self._insert(request, reply)
        # Another conversation may have asked the very same at the same time: both go on with the reply that is kept.
        kept = [reply for _, reply in answered]
        for number in doubles:
            found = self.find(answered[number][0])
            assert found is not None
            kept[number] = found
        return kept

    def _insert(self, request: ChatRequest, reply: ChatReply) -> None:
        base, kept = self._known_history(request)
        added = [(message.role, self._text(message.content)) for message in request.messages[kept:]]
        usage = reply.usage
        row = (
            bytes.fromhex(request.key),
            self._form(request),
            request.unit,
            request.sample,
            base,
            kept,
            json.dumps(added, separators=(",", ":")),
            self._text(reply.text),
            reply.finish,
            reply.model,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            round(reply.seconds, 3),
            reply.attempts,
            round(time.time(), 3),
        )
        self._last = self._inserted(_INSERT, row)
        self._known[request.key] = self._last
        self._remember(request, self._last)

    def _known_history(self, request: ChatRequest) -> tuple[int | None, int]:
        """The exchange that a request goes on from, and how many of its messages it shares."""
        whole = len(request.messages)
        # The other side has spoken since, and both; or the last message carried a note that is gone by now.
        for length in range(whole, max(0, whole - _LOOK_BACK), -1):
            found = self._histories.get(request.history(length))
            if found is not None:
                return found, length
        return None, 0

    def _remember(self, request: ChatRequest, exchange: int) -> None:
        whole = len(request.messages)
        for length in range(max(1, whole - 1), whole + 1):
            self._histories.setdefault(request.history(length), exchange)

    def _text(self, text: str) -> int:
        content = _encode(text)
        name = digest(content)
        if name not in self._texts:
            self._texts[name] = self._inserted("INSERT INTO text (content) VALUES (?)", (content,))
        return self._texts[name]

    def _form(self, request: ChatRequest) -> int:
        params = as_json(dict(request.params), sort_keys=True)
        schema = "" if request.schema is None else Schema.of(request.schema).canonical
        name = (request.role, request.model, params, schema)
        if name not in self._forms:
            insert = "INSERT INTO form (role, model, params, schema) VALUES (?, ?, ?, nullif(?, ''))"
            self._forms[name] = self._inserted(insert, name)
        return self._forms[name]

    def _inserted(self, statement: str, row: Sequence[object]) -> int:
        number = self._connection.execute(statement, row).lastrowid
        assert number is not None
        return number

    def add_failure(self, request: ChatRequest, error: ChatError) -> None:
        """Keep a failed call, for the accounts; it is asked for again on resume. Raises `StoreError`."""
        key = bytes.fromhex(request.key)
        row = (key, request.role, request.model, request.unit, error.code, str(error), error.attempts, time.time())
        with self._writing():
            self._connection.execute(
                "INSERT INTO failure (key, role, model, unit, kind, message, attempts, at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction that knows what other processes have written before it. Raises `StoreError`."""
        with self._lock:
            try:
                with self._transaction():
                    self._catch_up()
                    yield
            except sqlite3.Error as error:
                # What this process believes to be in the file may not be there.
                self._last = 0
                for known in (self._known, self._texts, self._forms, self._histories):
                    known.clear()
                with suppress(sqlite3.Error):
                    self._catch_up()
                self.broken = self._unwritable(error)
                raise self.broken from None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One reader at a time. Raises `StoreError`."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise self._damaged(error) from None

    def _catch_up(self) -> None:
        new = self._connection.execute("SELECT id, key FROM exchange WHERE id > ? ORDER BY id", (self._last,))
        for number, key in new:
            self._known.setdefault(key.hex(), number)
            self._last = number

    def _unwritable(self, error: Exception) -> StoreError:
        return StoreError(f"{self.path}: the run store cannot be written ({error}); check disk and permissions")

    def _transaction(self) -> _Transaction:
        return _Transaction(self._connection)

    def usage(self) -> list[dict[str, Any]]:
        """Requests, tokens, retries and failures per role and model over the whole life of the run."""
        with self._reading():
            replies = self._connection.execute(
                "SELECT role, model, count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), "
                "sum(attempts - 1) FROM exchange JOIN form ON form.id = form GROUP BY role, model ORDER BY role, model"
            ).fetchall()
            failures = self._connection.execute(
                "SELECT role, model, count(*), sum(attempts) FROM failure GROUP BY role, model ORDER BY role, model"
            ).fetchall()
        names = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "retries", "failures")
        found: dict[tuple[str, str], dict[str, int]] = {}
        for role, model, *numbers in replies:
            found[role, model] = dict(zip(names, (*numbers, 0), strict=True))
        for role, model, count, attempts in failures:
            row = found.setdefault((role, model), dict.fromkeys(names, 0))
            row["failures"] = count
            row["retries"] += attempts - count
        return [{"role": role, "model": model, **row} for (role, model), row in sorted(found.items())]

    def pace(self, endpoint: str) -> Pace | None:
        """The limit of an endpoint that holds now, as all processes of the run know it."""
        with self._reading():
            return self._pace(endpoint)

    def _pace(self, endpoint: str) -> Pace | None:
        row = self._connection.execute(
            "SELECT most, ceiling, reason, epoch, at FROM pace WHERE endpoint = ? ORDER BY id DESC LIMIT 1", (endpoint,)
        ).fetchone()
        return row and Pace(*row)

    def set_pace(self, endpoint: str, seen: Pace | None, new: Pace) -> Pace:
        """Let `new` follow `seen`; where another process was faster, its value holds. Returns what holds."""
        with self._writing():
            held = self._pace(endpoint)
            if held is not None and held != seen:
                return held
            row = (endpoint, new.most, new.ceiling, new.reason, new.epoch, new.at)
            self._connection.execute(
                "INSERT INTO pace (endpoint, most, ceiling, reason, epoch, at) VALUES (?, ?, ?, ?, ?, ?)", row
            )
        return new

    def paces(self) -> dict[str, list[Pace]]:
        """Every limit every endpoint has had, in order."""
        with self._reading():
            rows = self._connection.execute("SELECT endpoint, most, ceiling, reason, epoch, at FROM pace ORDER BY id")
            found: dict[str, list[Pace]] = {}
            for endpoint, *values in rows:
                found.setdefault(endpoint, []).append(Pace(*values))
        return found

    def secret(self) -> str:
        """A random string of this run, the same whenever it is resumed; nothing a model sees tells it."""
        with self._reading():
            return str(self._connection.execute("SELECT value FROM secret").fetchone()[0])

    def set_secret(self, secret: str) -> None:
        """Take over the secret of the run that this store works for, before anything is asked."""
        with self._writing():
            self._connection.execute("UPDATE secret SET value = ?", (secret,))

    def has_replies(self) -> bool:
        """Whether anything was answered yet."""
        with self._reading():
            return self._connection.execute("SELECT 1 FROM exchange LIMIT 1").fetchone() is not None

    def served_models(self, model: str) -> tuple[str, ...]:
        """Names under which endpoints served `model` as the evaluated model, sorted."""
        with self._reading():
            rows = self._connection.execute(
                "SELECT DISTINCT served_model FROM exchange JOIN form ON form.id = form "
                "WHERE role = 'evaluated' AND model = ? AND served_model <> '' ORDER BY served_model",
                (model,),
            ).fetchall()
        return tuple(row[0] for row in rows)

    def close(self) -> None:
        """Close the connection and let go of the run. Harmless when called twice."""
        self._connection.close()
        if self._claim is not None:
            self._claim.close()


class _Transaction:
    """BEGIN IMMEDIATE ... COMMIT, so that writers of several processes queue up instead of failing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._connection.execute("COMMIT")
        finally:
            # A full disk leaves some transactions open and ends others by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


class StoredChat:
    """A model whose replies are kept: answers from the store where it can, asks and keeps where it cannot."""

    def __init__(self, inner: ChatModel, store: RunStore) -> None:
        self._inner = inner
        self._store = store
        # Whoever asks the very same at the same moment waits for the first; gone once nobody does.
        self._under_way: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def is_stored(self, request: ChatRequest) -> bool:
        """Whether the reply is known already, so that asking costs nothing."""
        return self._store.knows(request)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The stored reply, or a new one that is stored when this returns. Raises `ChatError` and `StoreError`."""
        under_way = self._under_way.setdefault(request.key, asyncio.Lock())
        async with under_way:
            return await self._complete(request)

    async def _complete(self, request: ChatRequest) -> ChatReply:
        found = self._store.find(request)
        if found is not None:
            return found
        if self._store.broken is not None:
            # Nothing is asked, and paid for, that could not be kept.
            raise self._store.broken
        try:
            reply = await self._inner.complete(request)
        except ChatError as error:
            self._store.add_failure(request, error)
            raise
        try:
            return await self._store.keep(request, reply)
        except StoreError:
            # Those that wait for their turn are past the check above.
            await self._inner.aclose()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
    except sqlite3.Error as error:
        if not isinstance(error, sqlite3.OperationalError):
            raise _damaged(path, error) from None
        raise StoreError(
            f"{path}: the run store cannot be opened ({error}); check the path and its permissions"
        ) from None
    return connection


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path}: the run store is damaged ({error}); restore it or choose another --run-id")


def _claim(path: Path) -> sqlite3.Connection:
    """The right to lead a run: a lock of the operating system, which ends with its holder however that ends."""
    # On a file of its own: SQLite's readers and writers share the store's.
    lock = path.with_suffix(".lock")
    held = sqlite3.connect(lock, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        # Nothing is ever written: no journal beside it.
        held.execute("PRAGMA journal_mode=MEMORY")
        held.execute("BEGIN EXCLUSIVE")
    except sqlite3.Error as error:
        held.close()
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            raise StoreError(
                f"run {path.parent.name!r} is under way in another process; wait for its end or give another --run-id"
            ) from None
        raise StoreError(f"{lock}: cannot be locked ({error}); check disk and permissions") from None
    return held


def _encode(text: str) -> bytes:
    # Model output may hold lone surrogates, which SQLite text cannot.
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else f"{text[:57]}..."
