"""Workers that do not see the run directory: they get a copy of the store, and their replies travel back as text."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue

from pytest_spiral.chat import ChatReply, ChatRequest, Finish, Message, MessageRole, TokenUsage
from pytest_spiral.differences import differences, listed
from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import RunStore


class Package(BaseModel):
    """What such a worker is given: the run's identity, and the secret and the replies of its store, packed."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    identity: dict[str, JsonValue]
    secret: str
    replies: str


def make_package(store: RunStore, identity: Mapping[str, object]) -> Package:
    """Pack a store for a worker."""
    stored = [(exchange.request, exchange.reply) for exchange in store.exchanges()]
    return Package(identity=json.loads(json.dumps(identity)), secret=store.secret(), replies=_pack(stored, ()))


class RemoteStore(RunStore):
    """A store in memory whose new replies and failures are also to be sent to the controller."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        self._unsent_lock = threading.Lock()
        self._replies: list[tuple[ChatRequest, ChatReply]] = []
        self._failures: list[tuple[ChatRequest, ChatError]] = []

    def keep_all(self, answered: Iterable[tuple[ChatRequest, ChatReply]]) -> list[ChatReply]:
        """Store replies."""
        answered = list(answered)
        stored = super().keep_all(answered)
        with self._unsent_lock:
            self._replies += answered
        return stored

    def add_failure(self, request: ChatRequest, error: ChatError) -> None:
        """Store a failure, which the controller counts."""
        super().add_failure(request, error)
        with self._unsent_lock:
            self._failures.append((request, error))

    def pack(self) -> str | None:
        """Everything new since the last time as ASCII text, None if there is nothing."""
        with self._unsent_lock:
            replies, self._replies = self._replies, []
            failures, self._failures = self._failures, []
        return _pack(replies, failures) if replies or failures else None


def open_package(package: Package, identity: Mapping[str, object]) -> RemoteStore:
    """A store with everything from a package.

    Raises `ConfigError` if `identity`, of the run with what is installed here, differs from the controller's.
    """
    own = json.loads(json.dumps(identity))
    if differing := list(differences(package.identity, own)):
        raise ConfigError(
            f"this worker would measure something else: {listed(differing, '{name} ({other} instead of {one})')}; "
            "install the same version here and provide the same files"
        )
    store = RemoteStore.in_memory(identity)
    store.set_secret(package.secret)
    unpack(package.replies, store)
    # The controller has them.
    store.pack()
    return store


def _pack(replies: Iterable[tuple[ChatRequest, ChatReply]], failures: Iterable[tuple[ChatRequest, ChatError]]) -> str:
    """Requests with their replies and failures as ASCII JSON, which can hold any text; each text is in it once."""
    texts: dict[str, int] = {}

    def place(text: str) -> int:
        return texts.setdefault(text, len(texts))

    def row(request: ChatRequest) -> list[JsonValue]:
        form = json.dumps([request.role, request.model, dict(request.params), request.schema])
        messages: list[JsonValue] = [[message.role, place(message.content)] for message in request.messages]
        return [place(form), messages, request.sample, request.unit]

    answered = [
        [
            row(request),
            place(reply.text),
            place(reply.reasoning),
            [reply.finish, reply.model, [*astuple(reply.usage)], reply.seconds, reply.attempts],
        ]
        for request, reply in replies
    ]
    failed = [[row(request), [e.code.value, str(e), e.attempts, e.http_status]] for request, e in failures]
    return json.dumps({"replies": answered, "failures": failed, "texts": list(texts)})


def unpack(packed: str, store: RunStore) -> None:
    """Store what was packed; what is stored already stays as it is. Raises `StoreError`."""
    sent = json.loads(packed)
    texts: Sequence[str] = sent["texts"]

    def request(form: int, messages: list[tuple[MessageRole, int]], sample: int, unit: str) -> ChatRequest:
        role, model, params, schema = json.loads(texts[form])
        said = tuple(Message(speaker, texts[place]) for speaker, place in messages)
        return ChatRequest(role, model, said, params, schema, sample, unit)

    def reply(
        text: int, thought: int, finish: Finish, model: str, usage: Sequence[int], seconds: float, attempts: int
    ) -> ChatReply:
        return ChatReply(texts[text], finish, model, TokenUsage(*usage), seconds, attempts, texts[thought])

    store.keep_all([(request(*row), reply(*places, *fields)) for row, *places, fields in sent["replies"]])
    for row, (code, message, attempts, http_status) in sent["failures"]:
        error = ChatError(ReasonCode(code), message, attempts=attempts, http_status=http_status)
        store.add_failure(request(*row), error)
