"""A client for one fake server, and requests for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Self

import pytest

from pytest_spiral.chat import ChatRequest, Message, Role
from pytest_spiral.errors import ChatError
from pytest_spiral.models.endpoint import Endpoint, RetryPolicy, Secret
from pytest_spiral.models.limiter import Limiter
from pytest_spiral.models.openai_compatible import OpenAICompatible
from tests.fakes.openai_server import FakeOpenAI

Serve = Callable[..., FakeOpenAI]

KEY = "sk-proj-Zq8vR2mXw41LtY7cJd90"
FAST = RetryPolicy(first_wait=0.001, max_wait=0.004)
SCHEMA = {"title": "tempaffect output", "type": "object", "properties": {"a": {"type": "string"}}}


def ask(text: str = "hi", *, role: Role = "evaluated", schema: Any = None, **params: Any) -> ChatRequest:
    return ChatRequest(role, "some/model", (Message("system", "be kind"), Message("user", text)), params, schema)


class Client:
    """A client for one server, and how it went."""

    def __init__(self, url: str, *, retry: RetryPolicy = FAST, limiter: Limiter | None = None, **endpoint: Any) -> None:
        self.slept: list[float] = []
        settings = {"timeout": 20.0, "attempt_timeout": 10.0, "patience": 0.2, **endpoint}
        self.model = OpenAICompatible(
            Endpoint("evaluated", url, Secret(KEY), retry=retry, **settings),
            limiter=limiter,
            rng=random.Random(1),
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(min(seconds, 0.002))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.model.aclose()

    async def fails(self, request: ChatRequest | None = None) -> ChatError:
        with pytest.raises(ChatError) as caught:
            await self.model.complete(request or ask())
        return caught.value
