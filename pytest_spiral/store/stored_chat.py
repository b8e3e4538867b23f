"""A chat model whose replies are stored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from weakref import WeakValueDictionary

from pytest_spiral.chat import ChatModel, ChatReply, ChatRequest
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.store.run_store import RunStore


class StoredChat:
    """Answers from the store where it can; otherwise asks the model and stores the reply."""

    def __init__(self, inner: ChatModel, store: RunStore) -> None:
        self._inner = inner
        self._store = store
        # Several units that ask the same thing at the same time share one request: the later ones wait for the first.
        # An entry vanishes with the last of them.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The stored reply, or a new one that is stored when this returns. Raises `ChatError` and `StoreError`."""
        lock = self._locks.setdefault(request.key, asyncio.Lock())
        async with lock:
            stored = self._store.find(request)
            if stored is not None:
                return replace(stored, stored=True)
            # A reply that cannot be stored is not asked for: it would have to be paid for again.
            self._store.check()
            try:
                reply = await self._inner.complete(request)
            except ChatError as error:
                self._store.add_failure(request, error)
                raise
            try:
                return self._store.keep(request, reply)
            except ChatError as error:
                # The requests were made all the same.
                error.attempts = reply.attempts
                raise
            except StoreError:
                # Ends the calls that have passed the check above and wait for their turn.
                await self._inner.aclose()
                raise

    async def aclose(self) -> None:
        """Release the model's connections."""
        await self._inner.aclose()
