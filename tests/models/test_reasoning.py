"""Telling what a model said from what it thought."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.chat import TokenUsage
from pytest_spiral.models.completion import read_completion
from pytest_spiral.models.reasoning import split_reasoning
from pytest_spiral.store import RunStore, StoredChat
from tests.fakes.openai_server import Reply
from tests.models.client import Client, Serve, ask


@pytest.mark.parametrize(
    ("text", "said", "thought"),
    [
        ("Just an answer.", "Just an answer.", ""),
        ("<think>Hm.</think>Yes.", "Yes.", "Hm."),
        ("\n<THINKING>Hm.\n</thinking >\n\nYes.", "Yes.", "Hm."),
        ("<reasoning>Hm.</reasoning>\nYes.", "Yes.", "Hm."),
        ("<think></think>\n\nYes.", "Yes.", ""),
        ("<think>Hm.</think></think>Yes.", "Yes.", "Hm."),
        ("<think>One.</think>\n<think>Two.</think>Yes.", "Yes.", "One.\n\nTwo."),
        ("<think>One.</think>Yes.\n<think>Two.</think>And no.", "Yes.\nAnd no.", "One.\n\nTwo."),
        (
            "<think>They want <reasoning> tags</reasoning>.</think>Yes.",
            "Yes.",
            "They want <reasoning> tags</reasoning>.",
        ),
        # Cut in the middle of a thought.
        ("<think>Hm, and then", "", "Hm, and then"),
        # The chat template opened the tag in the prompt.
        ("Okay, they ask.\n</think>\n\nYes.", "Yes.", "Okay, they ask."),
        ("Hm.</think>{}", "{}", "Hm."),
        # Mentioned, not used.
        ("Put it into <think> and </think>.", "Put it into <think> and </think>.", ""),
        ("Write `</think>` at its end.", "Write `</think>` at its end.", ""),
        ("First.\n<reasoning>\nis the tag.", "First.\n<reasoning>\nis the tag.", ""),
        ("First.\n<think> is the tag.", "First.\n<think> is the tag.", ""),
        ('{"reply": "a <think>b</think> c"}', '{"reply": "a <think>b</think> c"}', ""),
    ],
)
def test_tags_tell_thoughts_from_speech(text: str, said: str, thought: str) -> None:
    """Blocks at the beginning or on a line of their own, closed, open or opened by the template; no mere mention."""
    assert split_reasoning(text) == (said, thought)


@pytest.mark.parametrize(
    "unit", ["<think>", "</think>", "<think>\n", "\n<think>a</think>", "`</think>", "<think ", "<"]
)
def test_splitting_takes_linear_time(unit: str) -> None:
    """Ten times the text takes about ten times as long."""

    def seconds(count: int) -> float:
        text = unit * count
        started = time.process_time()
        split_reasoning(text)
        return time.process_time() - started

    short = max(min(seconds(4_000) for _ in range(3)), 1e-3)

    assert min(seconds(40_000) for _ in range(3)) < 40 * short


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Yes.", "reasoning_content": "Hm."},
        {"content": "Yes.", "reasoning": "Hm."},
        {"content": "Yes.", "reasoning": "Hm.", "reasoning_content": "Hm."},
        {"content": "Yes.", "reasoning_content": None, "thinking": "Hm."},
        {"content": "Yes.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, "Yes."]},
        {"content": [{"type": "reasoning", "text": "Hm."}, {"type": "text", "text": "Yes."}]},
        {"content": "<think>Hm.</think>Yes."},
    ],
    ids=lambda message: "-".join(message) if isinstance(message["content"], str) else message["content"][0]["type"],
)
def test_fields_and_parts_of_reasoning_are_no_speech(message: dict[str, Any]) -> None:
    """In the places where vendors put it."""
    completion = read_completion(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())

    assert (completion.text, completion.reasoning) == ("Yes.", "Hm.")


def test_a_character_that_parts_of_reasoning_divide_is_one_character() -> None:
    """As in the text of the reply."""
    message = {"content": "Yes.", "reasoning_content": ["I \ud83d", "\ude00 it \ud83d"]}
    completion = read_completion(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())

    assert completion.reasoning == "I \U0001f600 it \ud83d"


@pytest.mark.parametrize("deep", [[], {}, 7, [[[[[[[["x"]]]]]]]], {"text": {"text": 3}}])
def test_odd_reasoning_fields_are_no_reasoning(deep: Any) -> None:
    """Neither an error nor a text."""
    message = {"content": "Yes.", "reasoning": deep}
    completion = read_completion(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())

    assert (completion.text, completion.reasoning) == ("Yes.", "")


@pytest.mark.asyncio
async def test_reasoning_is_stored_beside_the_reply_and_counted(serve: Serve, tmp_path: Path) -> None:
    """It survives a resume word for word, and the accounts say how much of it there was."""
    store = RunStore.create_or_resume(tmp_path / "run.sqlite", {})
    usage = {"prompt_tokens": 3, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}
    thoughtful = Reply("<think>Hm \ud83d.</think>Yes.", usage=usage)
    server = serve(lambda body, n: thoughtful if n == 0 else "No.")
    async with Client(server.base_url) as client:
        chat = StoredChat(client.model, store)
        reply = await chat.complete(ask())
        await chat.complete(ask("again"))

    stored = store.find(ask())
    assert stored is not None
    for each in (reply, stored):
        assert (each.text, each.reasoning, each.usage) == ("Yes.", "Hm \ud83d.", TokenUsage(3, 0, 9, 7))
    (row,) = store.usage()
    assert (row.requests, row.reasoning_tokens, row.with_reasoning) == (2, 7, 1)
    store.close()
