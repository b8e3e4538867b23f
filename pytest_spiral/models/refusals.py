"""What an endpoint refuses about a request, from the error that it answers with.

Providers name the parameter in a field, or only in a sentence. What is not understood is None; the sentence is shown.
"""

from __future__ import annotations

import re
from functools import cache

from pytest_spiral.chat import TOKEN_LIMITS, ChatRequest, token_limit
from pytest_spiral.errors import RefusedRequest
from pytest_spiral.models.completion import ErrorBody
from pytest_spiral.resources import data_root
from pytest_spiral.tables import Table, Text, read_table

# A limit below this is no limit on a reply but some other number in the sentence.
_LEAST_TOKENS = 64


class _Wordings(Table):
    """`refusals.toml`, which says what each list is."""

    schemas: tuple[Text, ...]
    model: tuple[Text, ...]
    context: tuple[Text, ...]
    efforts: tuple[Text, ...]


@cache
def _wordings() -> _Wordings:
    return read_table(_Wordings, data_root() / "refusals.toml")


def refuses_schemas(text: str) -> bool:
    """Whether an error's codes and message, in lower case, say that strict JSON schemas are not supported."""
    return any(mark in text for mark in _wordings().schemas)


def read_refusal(status: int | None, error: ErrorBody, request: ChatRequest) -> RefusedRequest | None:
    """What is refused about `request`, None where the error does not tell."""
    if status not in (400, 403, 404, 405, 422):
        return None
    text = f"{error.code} {error.message}".lower()
    named = _named(text, error.param, request)
    if request.schema is not None and (named == "response_format" or refuses_schemas(text)):
        return RefusedRequest("response_format")
    if named in TOKEN_LIMITS:
        return _limit(text, named, request)
    if named == "reasoning_effort":
        others = [effort for effort in _wordings().efforts if effort != request.params[named]]
        return RefusedRequest(named, allowed=tuple(e for e in others if re.search(rf"['\"`]{e}['\"`]", text)))
    if named is not None:
        return RefusedRequest(named)
    # The messages are short: what does not fit is the reply.
    if any(mark in text for mark in _wordings().context) and (limit := token_limit(request.params)):
        return _limit(text, limit.name, request)
    unknown = status in (404, 405) or any(re.search(says, text, re.DOTALL) for says in _wordings().model)
    return RefusedRequest("model") if unknown else None


def _named(text: str, param: str, request: ChatRequest) -> str | None:
    """The parameter of the request that an error is about: the one in its field, or the first in its sentence."""
    known = [*request.params, *(["response_format"] if request.schema is not None else [])]
    # A field may hold a path, as `response_format.json_schema`.
    if (name := param.split(".")[0]) in known:
        return name
    places = {name: found.start() for name in known if (found := re.search(rf"\b{re.escape(name.lower())}\b", text))}
    return min(places, key=lambda name: places[name], default=None)


def _limit(text: str, name: str, request: ChatRequest) -> RefusedRequest:
    """Another name, or a lower value: the largest number in the sentence that is lower."""
    other = next(each for each in TOKEN_LIMITS if each != name)
    limit = token_limit(request.params)
    assert limit is not None
    numbers = [int(digits.replace(",", "")) for digits in re.findall(r"\b\d{1,3}(?:,\d{3})+\b|\b\d{1,9}\b", text)]
    lower = [number for number in numbers if _LEAST_TOKENS <= number < limit.value]
    if not lower:
        return RefusedRequest(name, instead=other)
    # The context holds the messages as well, and conversations grow.
    return RefusedRequest(name, most=max(lower) // (2 if "context" in text else 1))
