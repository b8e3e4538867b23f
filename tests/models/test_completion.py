"""Reading answers: what vendors send as a completion or an error, and what is none."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_spiral.chat import TokenUsage
from pytest_spiral.models.completion import (
    UnusableError,
    read_completion,
    read_error,
)


def body(message: Any, finish: Any = "stop", **more: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], **more}).encode()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("hello", "hello"),
        (None, ""),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "thinking", "text": "hm"}, {"type": "output_text", "text": "b"}, "c", 7], "bc"),
        ("half \ud83d", "half \ud83d"),
        ([{"type": "text", "text": "I \ud83d"}, {"type": "text", "text": "\ude00 it"}], "I \U0001f600 it"),
    ],
)
def test_content_in_its_shapes(content: Any, expected: str) -> None:
    """A string, null, or parts, of which only text is text."""
    assert read_completion(body({"content": content})).text == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "stop"),
        ("end_turn", "stop"),
        ("LENGTH", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "tool_calls"),
        ("COMPLETE", "stop"),
        ("SAFETY", "content_filter"),
        ("tool_use", "tool_calls"),
    ],
)
def test_finish_reasons(reason: Any, expected: str) -> None:
    """Vendors' words become ours."""
    assert read_completion(body({"content": "x"}, reason)).finish == expected


@pytest.mark.parametrize("reason", [None, "", "abort", "error", "insufficient_system_resource", 3, ["stop"]])
@pytest.mark.parametrize("text", ["half a rep", "", None])
def test_a_reply_that_is_not_said_to_be_complete_is_none(reason: Any, text: str | None) -> None:
    """Servers that break off in the middle send what they have, and null, "abort" or a word of their own."""
    with pytest.raises(UnusableError, match="finish_reason"):
        read_completion(body({"content": text}, reason))


@pytest.mark.parametrize(
    "message", [{"content": None, "refusal": "No."}, {"content": [{"type": "refusal", "refusal": "No."}]}]
)
def test_refusals_have_their_own_finish_and_keep_their_words(message: Any) -> None:
    """What the model said to refuse is what the user would have read."""
    completion = read_completion(body(message))

    assert (completion.finish, completion.text) == ("refusal", "No.")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # Thoughts that are in the total only.
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 515}, TokenUsage(10, 0, 505, 500)),
        # A token of the chat template, charged for as well.
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 16}, TokenUsage(10, 0, 6, 0)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 505,
                "total_tokens": 515,
                "completion_tokens_details": {"reasoning_tokens": 500},
            },
            TokenUsage(10, 0, 505, 500),
        ),
        (None, TokenUsage()),
        ("many", TokenUsage()),
        ({"prompt_tokens": 9, "completion_tokens": 2}, TokenUsage(9, 0, 2)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}}, TokenUsage(9, 5, 0)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None, "prompt_cache_hit_tokens": 6}, TokenUsage(9, 6, 0)),
        ({"prompt_tokens": 9, "cached_tokens": 99}, TokenUsage(9, 9, 0)),
        ({"prompt_tokens": -1, "completion_tokens": True}, TokenUsage()),
        ({"prompt_tokens": "9", "completion_tokens": 1.5}, TokenUsage()),
    ],
)
def test_usage_is_what_the_endpoint_says_or_nothing(usage: Any, expected: TokenUsage) -> None:
    """Missing or odd counts are 0; cached tokens are part of the prompt's."""
    assert read_completion(body({"content": "x"}, usage=usage)).usage == expected


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "0 bytes"),
        (b"{", "1 bytes: '{'"),
        (b"<!DOCTYPE html><html>", "<!DOCTYPE html><html>"),
        (b"\xff\xfe\xfa", "\ufffd"),
        (b"[" * 100_000, "100000 bytes: '[["),
        (b'{"n": ' + b"1" * 5000 + b"}", "111"),
        (b"null", "null"),
        (b"[1]", "[1]"),
        (b"{}", "{}"),
        (b'{"choices": null}', "null"),
        (b'{"choices": []}', "[]"),
        (b'{"choices": "x"}', "x"),
        (b'{"choices": [null]}', "[null]"),
        (b'{"choices": [{"text": "old api"}]}', "old api"),
        (b'{"choices": [{"message": {"content": 5}}]}', "content is 5"),
    ],
)
def test_what_is_no_completion_is_named(raw: bytes, says: str) -> None:
    """One clause says what came instead."""
    with pytest.raises(UnusableError, match=re.escape(says)):
        read_completion(raw)


@pytest.mark.parametrize(("code", "status"), [(429, 429), ("503", 503), ("bad", 0), (None, 0), (7, 0)])
def test_an_error_object_in_a_200_keeps_its_status(code: Any, status: int) -> None:
    """Routers answer 200 before they know that the provider behind them fails."""
    for raw in (
        json.dumps({"error": {"code": code, "message": "m"}}).encode(),
        body({"content": "half"}, "stop", error={"code": code}),
        body({"content": ""}, "error", model="x").replace(
            b'"error"}', b'"error", "error": {"code": %s}}' % json.dumps(code).encode()
        ),
    ):
        with pytest.raises(UnusableError) as caught:
            read_completion(raw)

        assert caught.value.status == status


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"error": {"message": "bad key", "code": "invalid_api_key"}}', "bad key"),
        (b'{"error": "model not found"}', "model not found"),
        (b'{"message": "nope"}', "nope"),
        (b'{"detail": [{"loc": ["body"], "msg": "field required"}]}', "field required"),
        (b"plain words", "plain words"),
        (b"<html><title>502 Bad Gateway</title>", "502 Bad Gateway"),
        (b"\n<!DOCTYPE html>\n<body>busy", "HTML page"),
        (b"\xff", "\ufffd"),
        (b"", ""),
        (b"null", ""),
    ],
)
def test_error_bodies_in_their_shapes(raw: bytes, says: str) -> None:
    """Something readable is found in each."""
    assert says in read_error(raw).message


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            {"content": "Fine.", "tool_calls": [{"function": {"name": "send"}}]},
            'Fine.\n[tool call: {"function": {"name": "send"}}]',
        ),
        ({"content": "Fine.", "audio": {"transcript": "Stop the tablets."}}, "Fine.\n[spoken: Stop the tablets.]"),
        (
            {"content": [{"type": "text", "text": "Fine."}, {"type": "card", "text": "Quit."}]},
            'Fine.\n[{"type": "card", "text": "Quit."}]',
        ),
        ({"content": [{"type": "text", "text": "Fine."}, {"type": "thinking", "thinking": "Hm."}]}, "Fine."),
        ({"content": "Fine.", "tool_calls": []}, "Fine."),
        ({"content": None, "tool_calls": [{"function": {"name": "send"}}]}, ""),
        (
            {"content": None, "refusal": "No.", "tool_calls": [{"function": {"name": "send"}}]},
            'No.\n[tool call: {"function": {"name": "send"}}]',
        ),
    ],
    ids=["tool", "audio", "part", "thought", "none", "tool alone", "tool and refusal"],
)
def test_what_stands_beside_the_text_is_not_lost(message: dict[str, Any], text: str) -> None:
    """A deployed model acts by more than its words, and judges have to see it."""
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()

    assert read_completion(body).text == text


def test_what_stands_beside_the_text_is_bounded() -> None:
    """A tool call of megabytes is cut."""
    call = {"function": {"arguments": "x" * 1_000_000}}
    message = {"content": "Fine.", "tool_calls": [call]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()

    assert len(read_completion(body).text) < 2_100
