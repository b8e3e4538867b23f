"""Requests and replies as rows of the store, and back. Every row and every text is verified when it is read."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_spiral.chat import ChatReply, ChatRequest, Finish, Message, MessageRole, Role, Usage
from pytest_spiral.store.records import Exchange

__all__ = ["DamagedRowError", "has_reply", "insert_reply", "read_exchanges", "read_reply"]

_LETTERS: Mapping[MessageRole, str] = {"system": "s", "user": "u", "assistant": "a"}
_ROLES: Mapping[str, MessageRole] = {letter: role for role, letter in _LETTERS.items()}
# 128 bits: two texts of one run do not share a digest by accident.
_DIGEST_BYTES = 16
# 64 bits are enough to notice damage; they keep nobody from changing a row and its checksum on purpose.
_CHECKSUM_BYTES = 8


class _Row(NamedTuple):
    """The columns of table `reply` in order, its id and checksum apart.

    Attributes:
        settings: Id of the text `{"params": ..., "schema": ...}`.
        speakers: One letter for the role of each message: s, u or a.
        messages: Ids of the messages' texts, as JSON.
        text: Id of the reply's text.
    """

    key: bytes
    role: Role
    model: str
    unit: str
    sample: int
    settings: int
    speakers: str
    messages: str
    text: int
    finish: Finish
    served_model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seconds: float
    attempts: int
    at: float


_COLUMNS = ", ".join(_Row._fields)
_INSERT = f"INSERT INTO reply ({_COLUMNS}, checksum) VALUES ({', '.join('?' * (len(_Row._fields) + 1))})"  # noqa: S608
_BY_KEY = f"SELECT {_COLUMNS}, checksum FROM reply WHERE key = ?"  # noqa: S608  # names of ours
_ALL = f"SELECT {_COLUMNS}, checksum FROM reply ORDER BY id"  # noqa: S608


class DamagedRowError(ValueError):
    """A stored row or text is not what was written."""


def insert_reply(connection: sqlite3.Connection, request: ChatRequest, reply: ChatReply) -> None:
    """Add a request and its reply, with those of their texts that are new. To be called within a transaction."""
    schema = None if request.schema is None else dict(request.schema)
    settings = json.dumps({"params": dict(request.params), "schema": schema}, separators=(",", ":"))
    contents = [message.content for message in request.messages]
    settings_id, reply_id, *message_ids = _text_ids(connection, [settings, reply.text, *contents])
    row = _Row(
        key=bytes.fromhex(request.key),
        role=request.role,
        model=request.model,
        unit=request.unit,
        sample=request.sample,
        settings=settings_id,
        speakers="".join(_LETTERS[message.role] for message in request.messages),
        messages=json.dumps(message_ids, separators=(",", ":")),
        text=reply_id,
        finish=reply.finish,
        served_model=reply.model,
        prompt_tokens=reply.usage.prompt_tokens,
        cached_tokens=reply.usage.cached_tokens,
        completion_tokens=reply.usage.completion_tokens,
        seconds=round(float(reply.seconds), 3),
        attempts=reply.attempts,
        at=round(time.time(), 3),
    )
    connection.execute(_INSERT, (*row, _checksum(row)))


def has_reply(connection: sqlite3.Connection, key: str) -> bool:
    """Whether a reply is stored under a key."""
    return connection.execute("SELECT 1 FROM reply WHERE key = ?", (bytes.fromhex(key),)).fetchone() is not None


def read_reply(connection: sqlite3.Connection, key: str) -> ChatReply | None:
    """The reply under a key, None if there is none. Raises `DamagedRowError`."""
    found = connection.execute(_BY_KEY, (bytes.fromhex(key),)).fetchone()
    return None if found is None else _reply(connection, _verified(found))


def read_exchanges(connection: sqlite3.Connection) -> list[Exchange]:
    """Everything in the order in which it was stored. Raises `DamagedRowError`."""
    return [_exchange(connection, _verified(found)) for found in connection.execute(_ALL).fetchall()]


def _verified(found: Sequence[object]) -> _Row:
    *values, checksum = found
    row = _Row._make(values)
    if checksum != _checksum(row):
        raise DamagedRowError("the checksum of a reply is wrong")
    return row


def _exchange(connection: sqlite3.Connection, row: _Row) -> Exchange:
    settings = json.loads(_text(connection, row.settings))
    contents = [_text(connection, text_id) for text_id in json.loads(row.messages)]
    spoken = zip(row.speakers, contents, strict=True)
    request = ChatRequest(
        role=row.role,
        model=row.model,
        messages=tuple(Message(_ROLES[letter], content) for letter, content in spoken),
        params=settings["params"],
        schema=settings["schema"],
        sample=row.sample,
        unit=row.unit,
    )
    if bytes.fromhex(request.key) != row.key:
        raise DamagedRowError("a reply does not belong to its request")
    return Exchange(request, _reply(connection, row), row.at)


def _reply(connection: sqlite3.Connection, row: _Row) -> ChatReply:
    usage = Usage(row.prompt_tokens, row.cached_tokens, row.completion_tokens)
    return ChatReply(_text(connection, row.text), row.finish, row.served_model, usage, row.seconds, row.attempts)


def _text_ids(connection: sqlite3.Connection, texts: Sequence[str]) -> list[int]:
    """Ids of texts, in order. Those that are not stored yet are added."""
    # Text from models may hold lone surrogates, which have no UTF-8 form of their own.
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    digests = [_digest(each) for each in data]
    marks = ",".join("?" * len(digests))
    ids = dict(connection.execute(f"SELECT digest, id FROM text WHERE digest IN ({marks})", digests))  # noqa: S608
    for digest, each in zip(digests, data, strict=True):
        if digest not in ids:
            row = (digest, zlib.compress(each))
            ids[digest] = connection.execute("INSERT INTO text (digest, content) VALUES (?, ?)", row).lastrowid
    return [ids[digest] for digest in digests]


def _text(connection: sqlite3.Connection, text_id: int) -> str:
    row = connection.execute("SELECT digest, content FROM text WHERE id = ?", (text_id,)).fetchone()
    try:
        digest, content = row
        data = zlib.decompress(content)
    except (TypeError, zlib.error):
        raise DamagedRowError(f"text {text_id} cannot be read") from None
    if _digest(data) != digest:
        raise DamagedRowError(f"the checksum of text {text_id} is wrong")
    return data.decode("utf-8", "surrogatepass")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]


def _checksum(row: _Row) -> bytes:
    text = json.dumps([row.key.hex(), *row[1:]])
    return hashlib.sha256(text.encode("ascii")).digest()[:_CHECKSUM_BYTES]
