"""Replies that reach a token limit of ours are asked for again with a higher one: it says nothing about the model.

But a reply that repeats itself would not end at any limit, so that is the model's own doing.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_spiral.chat import ChatModel, ChatReply, ChatRequest, token_limit
from pytest_spiral.errors import ChatError
from pytest_spiral.models.parameters import Freedom
from pytest_spiral.repetition import repeats_itself
from pytest_spiral.status import ReasonCode

# What was cut off is paid for in vain; with this factor it is an eighth of the next limit at most.
_FACTOR = 8


def raised(limit: int, freedom: Freedom, tokens: int) -> int:
    """The limit raised in steps until it holds so many tokens, as far as it may be raised."""
    while not freedom.fixed_limit and limit < min(tokens, freedom.most_tokens):
        limit = min(limit * _FACTOR, freedom.most_tokens)
    return limit


class RaisingLimit:
    """A model whose token limit is raised until its reply is complete."""

    def __init__(self, inner: ChatModel, freedom: Freedom) -> None:
        self._inner = inner
        self._freedom = freedom

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The complete reply, or one that repeats itself. Raises `ChatError` "token_limit" where no limit is enough."""
        reply = await self._inner.complete(request)
        while reply.finish == "length" and not repeats_itself(reply.text):
            says, limit = cut_off(request, reply), token_limit(request.params)
            higher = 0 if limit is None else raised(limit.value, self._freedom, limit.value + 1)
            if limit is None or higher == limit.value:
                raise ChatError(ReasonCode.TOKEN_LIMIT, says, attempts=reply.attempts)
            request = replace(request, params={**request.params, limit.name: higher})
            try:
                reply = await self._inner.complete(request)
            except ChatError as error:
                if error.refusal is not None:
                    error.code, error.args = ReasonCode.TOKEN_LIMIT, (f"{says}, and {higher} is refused: {error}",)
                raise
        return reply

    async def aclose(self) -> None:
        """Release the model's connections."""
        await self._inner.aclose()


def cut_off(request: ChatRequest, reply: ChatReply) -> str:
    """What is to be said about a reply that was cut off at a limit which the user did not set."""
    limit, tokens = token_limit(request.params), reply.usage.completion_tokens
    return f"the reply was cut off after {tokens or 'some'} tokens; {limit or 'no limit'} was sent"
