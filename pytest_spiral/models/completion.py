"""Reading what an OpenAI-compatible endpoint answered: completions and error bodies, whatever shape they have.

Bytes in, records out; no network here. Vendors differ in every field, so each is checked before it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from pydantic_core import from_json

from pytest_spiral.chat import ChatReply, Finish, TokenUsage
from pytest_spiral.models.reasoning import joined, reasoning_of, split_reasoning
from pytest_spiral.resources import data_root
from pytest_spiral.status import ReasonCode
from pytest_spiral.tables import Table, Text, read_table
from pytest_spiral.text import joined_halves

# No context is nearly as long; a larger count is nonsense, and SQLite could not hold one beyond 2**63.
_MAX_TOKENS = 10**9
_MAX_NAME = 200
# Tokens of a chat template that end a reply; a pair of empty tags for thoughts has more.
_OF_TEMPLATE = 3
# Characters of what a message does beside its text.
_MAX_BESIDE = 2_000
_READ = ("text", "output_text", "refusal")
# Keys of error objects whose values are codes.
_CODES = ("code", "type", "param", "status", "reason", "quotaId", "limit_source")


class _FinishReasons(Table):
    finish: Mapping[Finish, tuple[Text, ...]]


@cache
def _finishes() -> Mapping[str, Finish]:
    """Why a reply ended, by what an endpoint calls it."""
    table = read_table(_FinishReasons, data_root() / "finish_reasons.toml")
    return {name: finish for finish, names in table.finish.items() for name in names}


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What an error answer says.

    Attributes:
        message: As received: may hold control characters and keys.
        code: Codes of the error object and of what it holds, in lower case.
        retry_after: Seconds that it asks to wait.
        param: The parameter that it is about.
    """

    message: str
    code: str = ""
    retry_after: float | None = None
    param: str = ""


class UnusableError(Exception):
    """An answer with a success status that holds no complete reply. The message is one clause, as received.

    Attributes:
        error: The error object in it: routers send one when the provider behind them failed.
        status: The HTTP status that the error object names.
    """

    def __init__(
        self, says: str, code: ReasonCode = ReasonCode.BAD_RESPONSE, error: ErrorBody | None = None, status: int = 0
    ) -> None:
        super().__init__(says)
        self.code = code
        self.error = error
        self.status = status


def read_completion(body: bytes, *, split: bool = True) -> ChatReply:
    """The reply in `body`; a refusal's text stands in for missing content. Raises `UnusableError`.

    split: whether tagged thoughts are taken out of the text.
    """
    match _parsed(body):
        # Whatever stands beside an error was cut short by it.
        case {"error": error} if error:
            raise _refused(error)
        case {"choices": [{"error": error}, *_]} if error:
            raise _refused(error)
        case {"choices": [{"message": dict(message), **choice}, *_], **data}:
            pass
        case _:
            # More than is shown: it is cut after keys are taken out, as part of one would not be recognised.
            raise UnusableError(f"no chat completion ({len(body)} bytes: {body[:1000].decode(errors='replace')!r})")

    text, refusal = _content(message.get("content"))
    said, thought = split_reasoning(text) if split else (text, "")
    if isinstance(message.get("refusal"), str):
        refusal = refusal or message["refusal"]
    said = "\n".join(part for part in (said, *_beside(message)) if part) or refusal
    calls = message.get("tool_calls")
    if said.strip() and isinstance(calls, list):
        # A tool call alone is no reply.
        named = (f"[tool call: {json.dumps(each, ensure_ascii=False)[:_MAX_BESIDE]}]" for each in calls)
        said = "\n".join([said, *named])
    model = data.get("model")
    # A name is only shown: what has no UTF-8 form is replaced.
    name = model.encode("utf-8", "replace").decode() if isinstance(model, str) else ""
    return ChatReply(
        text=joined_halves(said),
        finish="refusal" if refusal else _finish(choice.get("finish_reason")),
        model=name[:_MAX_NAME],
        usage=_usage(data.get("usage")),
        reasoning=joined_halves(joined([reasoning_of(message), thought])),
    )


def _finish(reason: object) -> Finish:
    """Why a reply ended. Servers say null, "abort" or a word of their own when they broke off in the middle."""
    finish = _finishes().get(reason.lower()) if isinstance(reason, str) else None
    if finish is None:
        raise UnusableError(f"finish_reason {json.dumps(reason)[:40]}", ReasonCode.UNFINISHED)
    return finish


def _parsed(body: bytes) -> object:
    """The JSON value, None where there is none."""
    with suppress(ValueError):
        return from_json(body)
    # What the faster parser refuses: a byte order mark, lone surrogates, deeper nesting.
    with suppress(ValueError, RecursionError):
        return json.loads(body.decode("utf-8-sig"))
    return None


def _beside(message: Mapping[object, object]) -> Iterator[str]:
    """What the message says beside its text, in brackets: nobody asked for it, and whoever judges has to see it."""
    audio = message.get("audio")
    if isinstance(audio, dict) and isinstance(audio.get("transcript"), str):
        yield f"[spoken: {audio['transcript'][:_MAX_BESIDE]}]"
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        kind = str(part.get("type")) if isinstance(part, dict) else "text"
        if kind not in _READ and not any(word in kind for word in ("reason", "think", "thought")):
            yield f"[{json.dumps(part, ensure_ascii=False)[:_MAX_BESIDE]}]"


def _content(content: object) -> tuple[str, str]:
    """Text and refusal of a message's content: a string, null, or a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise UnusableError(f"a message whose content is {json.dumps(content)[:40]}")
    texts: list[str] = []
    refusals: list[str] = []
    for part in content:
        match part:
            # Reasoning parts carry "text" as well: only parts that call themselves text count.
            case str(text) | {"type": "text" | "output_text", "text": str(text)}:
                texts.append(text)
            case {"type": "refusal", "refusal": str(text)}:
                refusals.append(text)
    return "".join(texts), "".join(refusals)


def _usage(usage: object) -> TokenUsage:
    if not isinstance(usage, dict):
        return TokenUsage()
    prompt = _count(usage, "prompt_tokens")
    details = usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else 0
    cached = cached or _count(usage, "prompt_cache_hit_tokens") or _count(usage, "cached_tokens")
    details = usage.get("completion_tokens_details")
    reasoning = _count(details, "reasoning_tokens") if isinstance(details, dict) else 0
    completion = _count(usage, "completion_tokens")
    # Some count thoughts in the total only, and charge for them all the same.
    hidden = max(0, _count(usage, "total_tokens") - prompt - completion) if prompt else 0
    thoughts = hidden if hidden > _OF_TEMPLATE else 0
    return TokenUsage(prompt, min(cached, prompt), completion + hidden, max(reasoning, thoughts))


def _count(fields: Mapping[object, object], key: str) -> int:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 < value <= _MAX_TOKENS else 0


def _refused(error: object) -> UnusableError:
    code = error.get("code") if isinstance(error, dict) else None
    status = int(code) if isinstance(code, int | str) and re.fullmatch("[45][0-9][0-9]", str(code)) else 0
    found = _error_in(error, json.dumps(error))
    return UnusableError(f"an error in it ({found.message})", error=found, status=status)


def read_error(body: bytes) -> ErrorBody:
    """What an error body says, "" where it says nothing readable."""
    text = body.decode("utf-8", errors="replace")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        if title := re.search(r"<title[^>]{0,200}>([^<]{1,200})", text, re.IGNORECASE):
            return ErrorBody(f"HTML page {title[1].strip()!r}")
        return ErrorBody("HTML page" if text.lstrip()[:9].lower().startswith(("<!doctype", "<html")) else text)
    if isinstance(data, list) and data:
        # Gemini's OpenAI-compatible route wraps the object.
        data = data[0]
    return _error_in(data.get("error", data) if isinstance(data, dict) else data, text)


def _error_in(error: object, text: str) -> ErrorBody:
    """What an error object says. text: stands in for a message."""
    if isinstance(error, str):
        return ErrorBody(error)
    if not isinstance(error, dict):
        return ErrorBody(text if error is not None else "")
    # OpenRouter's "metadata" says what the provider behind it said, Google's "details" and Azure's "innererror" why.
    parts = [error, error.get("metadata"), error.get("innererror"), *_objects(error.get("details"))]
    parts += [each for part in _objects(error.get("details")) for each in _objects(part.get("violations"))]
    objects = _objects(parts)
    code = " ".join(str(part[key]).lower() for part in objects for key in _CODES if isinstance(part.get(key), str))
    waits = (re.fullmatch(r"(\d{1,6}(?:\.\d+)?)s", str(part.get("retryDelay"))) for part in objects)
    wait = next((float(match[1]) for match in waits if match), None)
    says = (error.get(key) for key in ("message", "detail", "msg", "title"))
    said = next((value for value in says if (value.strip() if isinstance(value, str) else value)), text)
    message = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    raw = next((part["raw"] for part in objects if isinstance(part.get("raw"), str)), "")
    param = error["param"] if isinstance(error.get("param"), str) else ""
    return ErrorBody(f"{message}: {raw}" if raw else message, code, wait, param)


def _objects(values: object) -> list[dict[str, object]]:
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []
