"""The run store: one SQLite file per run that holds every request and reply the moment it completes.

Messages are stored once, by content. Resuming a run is running it again against its store: a request whose key is
known is answered from here and never sent twice.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_spiral.chat import ChatModel
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.records import ChatReply, ChatRequest, Usage

__all__ = ["RunStore", "StoredChat"]

_APPLICATION_ID = 0x53504952  # "SPIR": tells our file from any other SQLite database
_FORMAT = 1
_TABLES = """
CREATE TABLE run (field TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE secret (value TEXT NOT NULL);
CREATE TABLE message (hash TEXT PRIMARY KEY, role TEXT NOT NULL, content BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE reply (
  key TEXT PRIMARY KEY, role TEXT NOT NULL, model TEXT NOT NULL, unit TEXT NOT NULL, sample INTEGER NOT NULL,
  params TEXT NOT NULL, schema TEXT, messages TEXT NOT NULL,
  text BLOB NOT NULL, finish TEXT NOT NULL, served_model TEXT NOT NULL,
  prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
  seconds REAL NOT NULL, attempts INTEGER NOT NULL, at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;
CREATE TABLE failure (
  key TEXT NOT NULL, role TEXT NOT NULL, model TEXT NOT NULL, unit TEXT NOT NULL, kind TEXT NOT NULL,
  message TEXT NOT NULL, attempts INTEGER NOT NULL, at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
"""
_INSERT_REPLY = """
INSERT OR IGNORE INTO reply
  (key, role, model, unit, sample, params, schema, messages, text, finish, served_model,
   prompt_tokens, cached_tokens, completion_tokens, seconds, attempts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class RunStore:
    """Access to one run's database. Safe to use from several threads and processes at once.

    Create with `create_or_resume` (once, by the process that leads the run) or `join` (its workers).
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def create_or_resume(cls, path: Path, config: Mapping[str, Any]) -> RunStore:
        """Open the store of a run, made anew where there is none.

        config: everything that decides what is measured, as JSON values.
        Raises `StoreError` where the file is no store of ours, is damaged, or belongs to a run with another
        configuration (the message names the fields that differ).
        """
        store = cls(path, _connect(path))
        try:
            if store._is_empty():
                store._create(config)
            else:
                store._check(config)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def join(cls, path: Path) -> RunStore:
        """Open a store that the leading process has made."""
        return cls(path, _connect(path))

    def _is_empty(self) -> bool:
        """Whether the file is new, or was left behind by a process that died before it had written anything."""
        try:
            return bool(self._connection.execute("SELECT count(*) = 0 FROM sqlite_schema").fetchone()[0])
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> StoreError:
        return StoreError(f"{self.path}: the run store is damaged ({error}); restore it or choose another --run-id")

    def _create(self, config: Mapping[str, Any]) -> None:
        rows = [(field, json.dumps(value, sort_keys=True)) for field, value in sorted(config.items())]
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            with self._transaction():
                for statement in _TABLES.split(";"):
                    self._connection.execute(statement)
                self._connection.executemany("INSERT INTO run VALUES (?, ?)", rows)
                self._connection.execute("INSERT INTO secret VALUES (?)", (secrets.token_hex(16),))
                self._connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version={_FORMAT}")
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path}: the run store cannot be written ({error}); check disk and permissions"
            ) from None

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

    def find(self, key: str) -> ChatReply | None:
        """The stored reply to a request, None if it was never answered."""
        with self._lock:
            row = self._connection.execute(
                "SELECT text, finish, served_model, prompt_tokens, cached_tokens, completion_tokens, seconds, attempts "
                "FROM reply WHERE key = ?",
                (key,),
            ).fetchone()
        if row is None:
            return None
        text, finish, served, prompt, cached, completion, seconds, attempts = row
        return ChatReply(_decode(text), finish, served, Usage(prompt, cached, completion), seconds, attempts)

    def add(self, request: ChatRequest, reply: ChatReply) -> None:
        """Keep a reply; committed when this returns. A second reply to the same request is dropped."""
        hashes = []
        messages = []
        for message in request.messages:
            content = _encode(message.content)
            name = hashlib.sha256(message.role.encode() + b"\0" + content).hexdigest()[:32]
            hashes.append(name)
            messages.append((name, message.role, content))
        usage = reply.usage
        row = (
            request.key,
            request.role,
            request.model,
            request.unit,
            request.sample,
            json.dumps(dict(request.params), sort_keys=True),
            None if request.schema is None else json.dumps(request.schema, sort_keys=True),
            json.dumps(hashes),
            _encode(reply.text),
            reply.finish,
            reply.model,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            reply.seconds,
            reply.attempts,
        )
        with self._lock, self._transaction():
            self._connection.executemany("INSERT OR IGNORE INTO message VALUES (?, ?, ?)", messages)
            self._connection.execute(_INSERT_REPLY, row)

    def add_failure(self, request: ChatRequest, error: ChatError) -> None:
        """Keep a failed call, for the accounts; it is asked for again on resume."""
        row = (request.key, request.role, request.model, request.unit, error.kind, str(error), error.attempts)
        with self._lock, self._transaction():
            self._connection.execute(
                "INSERT INTO failure (key, role, model, unit, kind, message, attempts) VALUES (?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def _transaction(self) -> _Transaction:
        return _Transaction(self._connection)

    def usage(self) -> list[dict[str, Any]]:
        """Requests, tokens, retries and failures per role and model over the whole life of the run."""
        with self._lock:
            replies = self._connection.execute(
                "SELECT role, model, count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), "
                "sum(attempts - 1) FROM reply GROUP BY role, model ORDER BY role, model"
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

    def secret(self) -> str:
        """A random string of this run, the same whenever it is resumed; nothing a model sees tells it."""
        with self._lock:
            return str(self._connection.execute("SELECT value FROM secret").fetchone()[0])

    def has_replies(self) -> bool:
        """Whether anything was answered yet."""
        with self._lock:
            return self._connection.execute("SELECT 1 FROM reply LIMIT 1").fetchone() is not None

    def served_models(self, model: str) -> tuple[str, ...]:
        """Names under which endpoints served `model` as the evaluated model, sorted."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT DISTINCT served_model FROM reply WHERE role = 'evaluated' AND model = ? AND served_model <> '' "
                "ORDER BY served_model",
                (model,),
            ).fetchall()
        return tuple(row[0] for row in rows)

    def close(self) -> None:
        """Close the connection. Harmless when called twice."""
        self._connection.close()


class _Transaction:
    """BEGIN IMMEDIATE ... COMMIT, so that writers of several processes queue up instead of failing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")


class StoredChat:
    """A model whose replies are kept: answers from the store where it can, asks and keeps where it cannot."""

    def __init__(self, inner: ChatModel, store: RunStore) -> None:
        self._inner = inner
        self._store = store

    def is_stored(self, request: ChatRequest) -> bool:
        """Whether the reply is known already, so that asking costs nothing."""
        return self._store.find(request.key) is not None

    async def complete(self, request: ChatRequest) -> ChatReply:
        found = self._store.find(request.key)
        if found is not None:
            return found
        try:
            reply = await self._inner.complete(request)
        except ChatError as error:
            self._store.add_failure(request, error)
            raise
        self._store.add(request, reply)
        # Another conversation may have asked the very same at the same time: both go on with the reply that is kept.
        return self._store.find(request.key) or reply

    async def aclose(self) -> None:
        await self._inner.aclose()


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous=NORMAL")
    except sqlite3.Error as error:
        raise StoreError(
            f"{path}: the run store cannot be opened ({error}); check the path and its permissions"
        ) from None
    return connection


def _encode(text: str) -> bytes:
    # Model output may hold lone surrogates, which SQLite text cannot.
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else f"{text[:57]}..."
