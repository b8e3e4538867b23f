"""Workers that do not share the run's folder: they are given what is known, and what they learn travels home with their
test reports."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pytest_spiral.chat import ChatReply, ChatRequest, Message, Usage
from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import RunStore

__all__ = ["AwayStore", "baggage", "unpack"]


def baggage(store: RunStore, identity: Mapping[str, Any]) -> dict[str, Any]:
    """What such a worker is given: the run's identity, its secret, and every reply that is known, by key."""
    return {
        "identity": dict(identity),
        "secret": store.secret(),
        "known": {each.request.key: _reply_row(each.reply) for each in store.exchanges()},
    }


class AwayStore(RunStore):
    """A store in memory. Everything it keeps is packed once, to be kept by the lead's as well."""

    _known_there: Mapping[str, Sequence[Any]]
    _answered: list[tuple[ChatRequest, ChatReply]]
    _failed: list[tuple[ChatRequest, ChatError]]
    _packing: threading.Lock

    @classmethod
    def open(cls, given: Mapping[str, Any], identity: Mapping[str, Any]) -> Self:
        """A store for a worker that was given `baggage`. identity: what is installed and lies at hand here.

        Raises `ConfigError` where that is not what the lead has.
        """
        found = json.loads(json.dumps(dict(identity)))
        differing = sorted(k for k in {*found, *given["identity"]} if found.get(k) != given["identity"].get(k))
        if differing:
            raise ConfigError(
                f"this worker would measure something else: {', '.join(differing)} differ from the leading process; "
                "install the same version there and give it the same files"
            )
        store = cls.create_or_resume(Path(":memory:"), identity)
        assert isinstance(store, cls)
        store.set_secret(given["secret"])
        store._known_there = given["known"]
        store._answered, store._failed, store._packing = [], [], threading.Lock()
        return store

    def find(self, request: ChatRequest) -> ChatReply | None:
        row = self._known_there.get(request.key)
        return super().find(request) if row is None else _reply_of(row)

    def knows(self, request: ChatRequest) -> bool:
        return request.key in self._known_there or super().knows(request)

    def keep(self, request: ChatRequest, reply: ChatReply) -> ChatReply:
        kept = super().keep(request, reply)
        with self._packing:
            self._answered.append((request, kept))
        return kept

    def add_failure(self, request: ChatRequest, error: ChatError) -> None:
        super().add_failure(request, error)
        with self._packing:
            self._failed.append((request, error))

    def pack(self) -> str | None:
        """Everything kept since the last time as one ASCII string, each text in it once; None if there is nothing."""
        with self._packing:
            answered, self._answered = self._answered, []
            failed, self._failed = self._failed, []
        if not answered and not failed:
            return None
        texts: dict[str, int] = {}

        def place(text: str) -> int:
            return texts.setdefault(text, len(texts))

        def packed(request: ChatRequest) -> list[Any]:
            form = json.dumps([request.role, request.model, dict(request.params), request.schema])
            messages = [[message.role, place(message.content)] for message in request.messages]
            return [place(form), messages, request.sample, request.unit]

        replies = [[packed(request), [place(reply.text), *_reply_row(reply)[1:]]] for request, reply in answered]
        failures = [[packed(request), [e.code.value, str(e), e.attempts, e.http_status]] for request, e in failed]
        return json.dumps({"replies": replies, "failures": failures, "texts": list(texts)})


def unpack(text: str, store: RunStore) -> None:
    """Keep what a worker has sent. What is known already is dropped. Raises `StoreError`."""
    sent = json.loads(text)
    texts: Sequence[str] = sent["texts"]

    def request(row: Sequence[Any]) -> ChatRequest:
        form, messages, sample, unit = row
        role, model, params, schema = json.loads(texts[form])
        spoken = tuple(Message(speaker, texts[place]) for speaker, place in messages)
        return ChatRequest(role, model, spoken, params, schema, sample, unit)

    store.keep_all([(request(asked), _reply_of([texts[row[0]], *row[1:]])) for asked, row in sent["replies"]])
    for asked, (code, message, attempts, http_status) in sent["failures"]:
        store.add_failure(
            request(asked), ChatError(ReasonCode(code), message, attempts=attempts, http_status=http_status)
        )


def _reply_row(reply: ChatReply) -> list[Any]:
    usage = reply.usage
    tokens = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    return [reply.text, reply.finish, reply.model, *tokens, reply.seconds, reply.attempts]


def _reply_of(row: Sequence[Any]) -> ChatReply:
    text, finish, model, prompt, cached, completion, seconds, attempts = row
    return ChatReply(text, finish, model, Usage(prompt, cached, completion), seconds, attempts)
