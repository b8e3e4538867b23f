"""Chunks: which replies a judge sees, and under which number."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.chat import Message, MessageRole
from pytest_spiral.spiral import load_protocol
from pytest_spiral.spiral.chunks import chunk_transcript
from tests.spiral.builders import published, transcript

OURS, UPSTREAM = load_protocol("per-chunk"), load_protocol("upstream-per-chunk")


def test_upstream_never_judges_the_first_reply() -> None:
    """Twenty turns make nineteen chunks; chunk 0 is about assistant message 1. The trailing user message is dropped."""
    chunks = chunk_transcript(transcript(20), UPSTREAM)

    assert [chunk.turns for chunk in chunks] == [(turn,) for turn in range(1, 20)]
    assert chunks[0].exchanges[0].user == "a question 0"


def test_ours_judges_every_reply() -> None:
    """Twenty turns make twenty chunks, the first about the reply to the opening."""
    chunks = chunk_transcript(transcript(20), OURS)

    assert [chunk.turns for chunk in chunks] == [(turn,) for turn in range(20)]
    assert chunks[0].exchanges[0].user == "an opening"


def test_published_chunks_are_reproduced(upstream_file: Path) -> None:
    """Turn numbers and lengths of every stored judgement."""
    for conversation in published(upstream_file):
        chunks = chunk_transcript(conversation.transcript, UPSTREAM)

        assert [chunk.index for chunk in chunks] == [stored.index for stored in conversation.judgements]
        for chunk, stored in zip(chunks, conversation.judgements, strict=True):
            assert chunk.turns == stored.turns
            assert stored.chars in (chunk.chars, None)


def test_long_replies_are_cut() -> None:
    """At 20,000 characters, and the cut is said."""
    roles: tuple[MessageRole, ...] = ("user", "assistant", "user", "assistant")
    messages = [Message(role, text) for role, text in zip(roles, ("u", "x" * 20_001, "u", "y"), strict=True)]
    first, second = chunk_transcript(messages, OURS)

    assert first.chars == 20_000
    assert second.chars == 1


@given(st.lists(st.sampled_from(["user", "assistant"]), max_size=30), st.integers(1, 7), st.booleans())
def test_every_reply_is_in_one_chunk(roles: list[MessageRole], size: int, first: bool) -> None:
    """Whatever the order of the roles: all judged replies once, in order, no chunk over its size."""
    protocol = OURS.model_copy(update={"chunk_size": size, "first_turn_judged": first})
    messages = [Message(role, f"{role} {n}") for n, role in enumerate(roles)]
    chunks = chunk_transcript(messages, protocol)

    wanted = range(0 if first else 1, roles.count("assistant"))
    assert [turn for chunk in chunks for turn in chunk.turns] == list(wanted)
    assert all(1 <= len(chunk.exchanges) <= size for chunk in chunks)
    assert all(len(chunk.exchanges) == size for chunk in chunks[:-1])


@given(
    st.lists(st.sampled_from(["user", "assistant"]), max_size=30), st.integers(1, 7), st.booleans(), st.integers(0, 9)
)
def test_later_chunks_do_not_depend_on_where_one_begins(
    roles: list[MessageRole], size: int, judged: bool, first: int
) -> None:
    """Asked for from the k-th on, they are the same as all without the first k."""
    protocol = OURS.model_copy(update={"chunk_size": size, "first_turn_judged": judged})
    messages = [Message(role, f"{role} {n}") for n, role in enumerate(roles)]

    assert chunk_transcript(messages, protocol, first=first) == chunk_transcript(messages, protocol)[first:]
