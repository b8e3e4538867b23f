"""Everything an endpoint may do wrong, and what must become of it.

A fault is one of four things to a run. `harmless`: the reply counts as any other. `passing`: the call is made again and
counts when it succeeds; where it never does, the instrument has failed. `final`: no second try can help. `unusable`: a
reply that says nothing; that is a failure of the evaluated model, while a simulated user or a judge is asked once more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_spiral.status import ReasonCode
from tests.fakes.openai_server import Fault, Reply

__all__ = ["CATALOGUE", "COLUMNS", "KEY", "Case", "Column", "Nature"]

# Planted in every request; nothing but the server may ever hold it.
KEY = "sk-test-Zq8vR2mXw41LtY7cJd90Hs3K"

Nature = Literal["harmless", "passing", "final", "unusable"]
Column = Literal["tempaffect", "assistant", "user", "judge"]
COLUMNS: tuple[Column, ...] = ("tempaffect", "assistant", "user", "judge")


@dataclass(frozen=True)
class Case:
    """One fault.

    make: the answer in place of the text that a healthy endpoint would give. nature: what it is to every column,
    `except_for` what it is to some. kind: class of the failed call; None where a reply arrives. reason: why an item of
    TempAffect with such a reply has failed. slow: costs a deadline each time.
    """

    name: str
    make: Callable[[str], Reply | Fault]
    nature: Nature
    kind: ReasonCode | None = None
    reason: str | None = None
    except_for: Mapping[Column, Nature] = field(default_factory=dict)
    slow: bool = False

    def nature_in(self, column: Column) -> Nature:
        return self.except_for.get(column, self.nature)


def _status(code: int, **options: Any) -> Callable[[str], Fault]:
    # A server that echoes the key in its error text, as some do.
    return lambda _: Fault.status_code(code, f"refused: Authorization: Bearer {KEY}, key {KEY}", **options)


def _page(status: int) -> Fault:
    page = f"<!DOCTYPE html><html><head><title>proxy error, key={KEY}</title></head><body>{KEY}</body></html>"
    return Fault.raw(page, status=status, content_type="text/html; charset=utf-8")


def _twice(text: str) -> str:
    """The answer with its first key said twice."""
    try:
        result = json.loads(text)
    except ValueError:
        return text
    name = next(iter(result))
    return f'{{"{name}": {json.dumps(result[name])}, {text.strip()[1:]}'


# Of plain text any string is a good one.
_TEXT: dict[Column, Nature] = {"assistant": "harmless", "user": "harmless"}

CATALOGUE: tuple[Case, ...] = (
    Case("latency", lambda text: Reply(text, seconds=0.2), "harmless"),
    Case("content type text/plain", lambda text: Fault.wrong_content_type(text), "harmless"),
    Case("model name changes", lambda text: Reply(text, model="another-model"), "harmless"),
    Case("usage is nonsense", lambda text: Reply(text, usage={"prompt_tokens": "many"}), "harmless"),
    Case("usage of 2**63 tokens", lambda text: Reply(text, usage={"prompt_tokens": 2**63}), "harmless"),
    Case("model name is half a character", lambda text: Reply(text, model="m\ud83d"), "harmless"),
    Case("think block", lambda text: Reply(f"<think>You are right.</think>{text}"), "harmless"),
    Case("reasoning field", lambda text: Reply(text, reasoning="You are right."), "harmless"),
    Case("429", _status(429), "passing", ReasonCode.RATE_LIMITED),
    Case("429 with Retry-After", _status(429, retry_after=0.02), "passing", ReasonCode.RATE_LIMITED),
    Case("429, Retry-After: 0", _status(429, retry_after=0), "passing", ReasonCode.RATE_LIMITED),
    Case("429, Retry-After: -5", _status(429, retry_after=-5), "passing", ReasonCode.RATE_LIMITED),
    Case(
        "429, Retry-After in the past",
        _status(429, retry_after="Thu, 01 Jan 2015 00:00:00 GMT"),
        "passing",
        ReasonCode.RATE_LIMITED,
    ),
    Case("529", _status(529), "passing", ReasonCode.SERVER_ERROR),
    Case("408", _status(408), "passing", ReasonCode.TIMEOUT),
    Case("500", _status(500), "passing", ReasonCode.SERVER_ERROR),
    Case("502, HTML page", lambda _: _page(502), "passing", ReasonCode.SERVER_ERROR),
    Case("503 with Retry-After", _status(503, retry_after=0.02), "passing", ReasonCode.SERVER_ERROR),
    Case("connection closed, no answer", lambda _: Fault.drop(), "passing", ReasonCode.UNREACHABLE),
    Case("connection reset in the body", lambda _: Fault.reset(), "passing", ReasonCode.BAD_RESPONSE),
    Case("connection refused for a while", lambda _: Fault.refuse(0.01), "passing", ReasonCode.UNREACHABLE),
    Case("slow drip", lambda text: Fault.drip(text), "passing", ReasonCode.TIMEOUT, slow=True),
    Case("hang", lambda _: Fault.hang(), "passing", ReasonCode.TIMEOUT, slow=True),
    Case("broken chunks", lambda _: Fault.broken_chunks(), "passing", ReasonCode.BAD_RESPONSE),
    Case("body shorter than declared", lambda text: Fault.cut_short(text), "passing", ReasonCode.BAD_RESPONSE),
    Case("corrupt gzip", lambda text: Fault.corrupt_gzip(text), "passing", ReasonCode.BAD_RESPONSE),
    Case("not HTTP", lambda _: Fault.not_http(), "passing", ReasonCode.BAD_RESPONSE),
    Case("JSON of another shape", lambda _: Fault.raw('{"reply": "ok"}'), "passing", ReasonCode.BAD_RESPONSE),
    Case("half JSON", lambda _: Fault.broken_json(), "passing", ReasonCode.BAD_RESPONSE),
    Case("not UTF-8", lambda _: Fault.raw(b'{"choices": "\xff\xfe"}'), "passing", ReasonCode.BAD_RESPONSE),
    Case("empty body", lambda _: Fault.raw(b""), "passing", ReasonCode.BAD_RESPONSE),
    Case("HTML page with 200", lambda _: _page(200), "passing", ReasonCode.BAD_RESPONSE),
    Case("empty choices", lambda _: Fault.empty_choices(), "passing", ReasonCode.BAD_RESPONSE),
    Case("deep nesting", lambda _: Fault.raw(b"[" * 100_000), "passing", ReasonCode.BAD_RESPONSE),
    Case("body of 10 MB", lambda _: Fault.huge(10_000_000), "passing", ReasonCode.BAD_RESPONSE),
    Case("error object with 200", lambda _: Fault.error_in_200(502, f"key {KEY}"), "passing", ReasonCode.SERVER_ERROR),
    Case(
        "error 502 beside choices",
        lambda text: Fault.error_beside_choices(502, text),
        "passing",
        ReasonCode.SERVER_ERROR,
    ),
    Case(
        "error beside choices", lambda text: Fault.error_beside_choices(None, text), "passing", ReasonCode.BAD_RESPONSE
    ),
    Case("finish_reason: null", lambda text: Reply(text[:12], finish=None), "passing", ReasonCode.UNFINISHED),
    Case("finish_reason: abort", lambda text: Reply(text[:12], finish="abort"), "passing", ReasonCode.UNFINISHED),
    Case("finish_reason unknown", lambda text: Reply(text, finish="odd"), "passing", ReasonCode.UNFINISHED),
    Case("400", _status(400), "final", ReasonCode.BAD_REQUEST),
    Case("401", _status(401, error_code="invalid_api_key"), "final", ReasonCode.AUTH),
    Case("402", _status(402), "final", ReasonCode.QUOTA),
    Case("404", _status(404), "final", ReasonCode.BAD_REQUEST),
    Case("429 out of credit", _status(429, error_code="insufficient_quota"), "final", ReasonCode.QUOTA),
    Case(
        "redirect",
        lambda _: Fault("answer", 307, headers={"Location": "http://192.0.2.1/v1"}),
        "final",
        ReasonCode.BAD_REQUEST,
    ),
    Case("content: null", lambda _: Reply(None), "unusable", reason="empty_output"),
    Case("content filter", lambda _: Reply.filtered(), "unusable", reason="content_filter"),
    Case("cut at a token limit of the user's", lambda text: Reply.cut(text[:12]), "unusable", reason="truncated"),
    Case("cut in a think block", lambda _: Reply.cut("<think>You are"), "unusable", reason="truncated"),
    Case("tool call", lambda _: Reply.tool_call(), "unusable", reason="tool_call"),
    Case("refusal", lambda _: Reply.refused(), "unusable", reason="refusal", except_for={"assistant": "harmless"}),
    Case("schema ignored", lambda _: Reply.schema_ignored(), "unusable", reason="not_json", except_for=_TEXT),
    Case("key said twice", lambda text: Reply(_twice(text)), "unusable", reason="duplicate_key", except_for=_TEXT),
    Case(
        "escape sequences",
        lambda _: Reply("\x1b]0;x\x07\x1b[2J\ud83d"),
        "unusable",
        reason="not_json",
        except_for=_TEXT,
    ),
)
