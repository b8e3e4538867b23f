"""A chat model whose replies are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from pytest_spiral.chat import ChatModel, ChatReply, ChatRequest
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.store.run_store import RunStore

# A reply that is about to be stored, and what whoever waits for that is told.
_Arrival = tuple[ChatRequest, ChatReply, asyncio.Future[ChatReply]]


class StoredChat:
    """Answers from the store where it can; otherwise asks the model and stores the reply."""

    def __init__(self, inner: ChatModel, store: RunStore) -> None:
        self._inner = inner
        self._store = store
        # Several units that ask the same thing at the same time share one request: the later ones wait for the first.
        # An entry vanishes with the last of them.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._arrived: list[_Arrival] = []

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
                return await self._kept(request, reply)
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

    async def _kept(self, request: ChatRequest, reply: ChatReply) -> ChatReply:
        """Store a reply, in one commit with all that arrive in this iteration of the loop: half of the work is commits.

        Stored also where nobody waits for it any more.
        """
        loop = asyncio.get_running_loop()
        if not self._arrived:
            loop.call_soon(self._commit)
        kept: asyncio.Future[ChatReply] = loop.create_future()
        self._arrived.append((request, reply, kept))
        return await kept

    def _commit(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._keep(arrived)

    def _keep(self, arrived: Sequence[_Arrival]) -> None:
        try:
            replies = self._store.keep_all([(request, reply) for request, reply, _ in arrived])
        except (ChatError, StoreError) as error:
            if isinstance(error, ChatError) and len(arrived) > 1:
                # One of them cannot be stored; the others can.
                for arrival in arrived:
                    self._keep([arrival])
                return
            for _, _, kept in arrived:
                if not kept.done():
                    kept.set_exception(error)
            return
        for (_, _, kept), reply in zip(arrived, replies, strict=True):
            if not kept.done():
                kept.set_result(reply)
