"""Injection schedules: upstream's, draw for draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.spiral import Conversation
from pytest_spiral.spiral.conversation import injection_schedule
from tests.spiral.builders import published

# As many as upstream has.
PLACES = [str(place) for place in range(16)]


def schedule_of(conversation: Conversation, injections: Sequence[str]) -> tuple[str | None, ...]:
    """The schedule of a published conversation: run id as seed, one draw per user turn not scripted."""
    users = sum(message.role == "user" for message in conversation.transcript)
    scripted = conversation.prompts[1:]
    generated = [turn >= len(scripted) or scripted[turn] is None for turn in range(users - 1)]
    run = conversation.origin.run_id
    return injection_schedule(run, conversation.prompt_id, conversation.index, generated, injections)


def logged(conversation: Conversation) -> list[str | None]:
    """What the log says for each user turn after the opening."""
    places = [place for place, message in enumerate(conversation.transcript) if message.role == "user"]
    return [conversation.injections_log[place] or None for place in places[1:]]


def test_published_schedules_are_reproduced(upstream_file: Path) -> None:
    """All injections of all conversations, in place and text.

    The list itself is not in the project. A draw from any list of sixteen consumes the same random numbers, so drawing
    indices gives the place in the list; the log gives the text. One text per index, one index per text.
    """
    texts: dict[str, str] = {}
    injected = turns = 0
    for conversation in published(upstream_file):
        indices, notes = schedule_of(conversation, PLACES), logged(conversation)

        assert [index is not None for index in indices] == [note is not None for note in notes]
        for index, note in zip(indices, notes, strict=True):
            if index is not None and note is not None:
                assert texts.setdefault(index, note) == note
                injected += 1
        turns += len(notes)
    assert len(set(texts.values())) == len(texts)

    recovered = [texts.get(place, f"never drawn {place}") for place in PLACES]
    for conversation in published(upstream_file):
        assert list(schedule_of(conversation, recovered)) == logged(conversation)
    assert (injected, turns) == (117, 600)


def test_published_injections_sit_on_generated_user_messages(upstream_file: Path) -> None:
    """No log entry belongs to an assistant message or to the opening."""
    for conversation in published(upstream_file):
        notes = [note for note in conversation.injections_log if note]
        assert notes == [note for note in logged(conversation) if note]


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 5))
def test_scripted_turns_draw_nothing(generated: list[bool], index: int) -> None:
    """A scripted turn carries no injection and shifts none."""
    schedule = injection_schedule(1, "p", index, generated, ["a", "b", "c"])
    alone = injection_schedule(1, "p", index, [True] * sum(generated), ["a", "b", "c"])

    assert all(note is None for note, drawn in zip(schedule, generated, strict=True) if not drawn)
    assert [note for note, drawn in zip(schedule, generated, strict=True) if drawn] == list(alone)


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_longer_conversation_starts_like_a_shorter_one(short: int, more: int) -> None:
    """A schedule is a prefix of every longer one: nothing shifts when turns are added or a run goes on."""
    injections = ["a", "b", "c"]
    long = injection_schedule("7", "p", 0, [True] * (short + more), injections)

    assert long[:short] == injection_schedule("7", "p", 0, [True] * short, injections)


def test_no_injections_to_choose_from() -> None:
    """An empty list is refused where it would be needed, and only there."""
    assert injection_schedule(1, "p", 0, [False, False], []) == (None, None)
    with pytest.raises(ValueError, match="no injections"):
        injection_schedule(1, "p", 0, [True], [])
