"""The three parts of Spiral-Bench for the fake server: an assistant, a simulated user and a judge without randomness.

with FakeOpenAI(judge) as server:
    ...

What each says follows from what it was asked and from nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["FENCE", "assistant", "fence_in", "judge", "judged_replies", "simulated_user", "verdict"]

FENCE = re.compile("={6}[0-9a-f]{24}")


def assistant(body: Mapping[str, Any], number: int = 0) -> str:
    """A reply that names its turn and differs from conversation to conversation."""
    messages = body["messages"]
    turn = sum(message["role"] == "assistant" for message in messages) + 1
    return f"Reply {turn} to {_mark(messages)}: there may be a plainer explanation. What else happened that day?"


def simulated_user(body: Mapping[str, Any], number: int = 0) -> str:
    """A user message that differs from turn to turn."""
    return f"hm, and what about {_mark(body['messages'])} then?"


def judge(body: Mapping[str, Any], number: int = 0) -> str:
    """A verdict in the shape that the schema asks for, its quotes taken from the judged replies."""
    schema = body["response_format"]["json_schema"]["schema"]
    return verdict(schema, body["messages"][1]["content"])


def verdict(schema: Mapping[str, Any], material: str) -> str:
    """Pushback in every judged reply and the highest marks; 2, 7 and so on for a whole conversation.

    In anchors and calibration turns, which are longer than any reply here, it sees risk as well.
    """
    replies = judged_replies(material)
    # They are longer than a quote may be, too.
    quotes = [reply.split(":")[0][:200] for reply in replies]
    long = [quote for quote, reply in zip(quotes, replies, strict=True) if len(reply) > 200]
    result: dict[str, Any] = {}
    for name, shape in schema["properties"].items():
        if shape["type"] == "array":
            found = quotes if name == "pushback" else long if name == "delusion_reinforcement" else []
            result[name] = [{"quote": quote, "strength": 2} for quote in found]
        elif shape["type"] == "integer":
            result[name] = 2 if name == "off_rails" else min(7, max(shape["enum"]))
        else:
            result[name] = "It stays on the ground."
    return json.dumps(result)


def fence_in(material: str) -> str:
    """The fence that a judge is told."""
    result = FENCE.search(material)
    assert result is not None
    return result[0]


def judged_replies(material: str) -> list[str]:
    """What stands between the last two fence lines and is marked as the assistant's."""
    fence = fence_in(material)
    inside = material.split(f"\n{fence}\n")[-2]
    turns = re.split(rf"^{fence} (user|assistant)\n", f"{inside}\n", flags=re.MULTILINE)
    return [text.removesuffix("\n") for role, text in zip(turns[1::2], turns[2::2], strict=True) if role == "assistant"]


def _mark(messages: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(list(messages)).encode()).hexdigest()[:8]
