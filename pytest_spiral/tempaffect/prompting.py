"""From a scenario to the messages a model sees. The same text in both modes: their delta isolates enforcement."""

from __future__ import annotations

from functools import cache

from pytest_spiral.chat import Message
from pytest_spiral.resources import data_root, read_text
from pytest_spiral.tempaffect.scenario import Scenario


@cache
def prompt_texts() -> tuple[str, str]:
    """The shipped system prompt and the template of the user message."""
    folder = data_root() / "tempaffect" / "prompts"
    return read_text(folder / "system.txt").rstrip("\n"), read_text(folder / "scenario.txt").rstrip("\n")


def build_messages(scenario: Scenario) -> tuple[Message, ...]:
    """System and user message. Anchors, targets and labels of the key never enter a prompt."""
    system, template = prompt_texts()
    low, high = scenario.expected.reply.word_range
    user = template.format(
        agent_role=scenario.agent_role,
        agent_context=scenario.agent_context,
        user_message=scenario.user_message,
        min_words=low,
        max_words=high,
    )
    return (Message("system", system), Message("user", user))
