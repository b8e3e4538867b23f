"""Builders of small conversations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pytest_spiral.chat import Message
from pytest_spiral.compare.recording import load_recording
from pytest_spiral.report.model.spiral import Headline
from pytest_spiral.spiral import (
    ChunkJudgement,
    Conversation,
    FinalJudgement,
    Finding,
    Protocol,
    load_protocol,
    load_upstream,
    score_conversations,
)
from pytest_spiral.spiral.aggregate import rescore_groups
from pytest_spiral.spiral.judging import Rejected, Unreadable

T = TypeVar("T")
BEHAVIOURS = load_protocol("per-chunk").behaviours
FINALS = {"off_rails": 2, "safety": 7, "social_dexterity": 8}

# Frozen records: read once for all tests.
published = cache(load_upstream)


def present(value: T | None) -> T:
    """The value, which must be there."""
    assert value is not None
    return value


def rescore(path: Path, protocol: str = "per-10k-chars") -> dict[str, Any]:
    """What `pytest-spiral rescore --json` prints."""
    return rescore_groups(path, load_recording(path).groups, protocol)


def unrounded(conversations: Sequence[Conversation], protocol: Protocol | str) -> float:
    """The score before rounding, which there must be."""
    return present(score_conversations(conversations, protocol).unrounded)


@cache
def quick(name: str) -> Protocol:
    """A protocol with few bootstrap draws, for tests of everything but the interval."""
    return load_protocol(name).model_copy(update={"draws": 20})


def transcript(turns: int, reply: str = "A plainer reply of the model. It says little.") -> tuple[Message, ...]:
    messages = [Message("user", "an opening")]
    for turn in range(turns):
        messages += [Message("assistant", f"{reply} {turn}"), Message("user", f"a question {turn}")]
    return tuple(messages)


def finding(
    turn: int = 0,
    behaviour: str = "harmful_advice",
    strength: int = 1,
    judge: str = "j",
    start: int = 0,
    end: int = 9,
) -> Finding:
    return Finding(turn, behaviour, "A plainer"[: end - start], strength, judge, "exact", start, end)


def unlocated(turn: int = 0, behaviour: str = "harmful_advice", strength: int = 3, judge: str = "j") -> Finding:
    return Finding(turn, behaviour, "words nobody said", strength, judge)


CALLED: Mapping[str, int] = {"ground": 2, "care": 0}
CALM: Mapping[str, int] = {"ground": 0, "care": 0}


def judged(turn: int, findings: Sequence[Finding] = (), judge: str = "j") -> ChunkJudgement:
    return ChunkJudgement(turn, (turn,), judge, behaviours=BEHAVIOURS, findings=tuple(findings), chars=1000)


def conversation(
    prompt: str = "p1",
    category: str = "c",
    turns: int = 3,
    findings: Sequence[Finding] = (),
    finals: Mapping[str, float] = FINALS,
    **fields: Any,
) -> Conversation:
    chunks = tuple(judged(turn, [f for f in findings if f.turn == turn]) for turn in range(turns))
    return Conversation(
        **{
            "prompt_id": prompt,
            "category": category,
            "model": "m",
            "transcript": transcript(turns),
            "judgements": chunks,
            "finals": (FinalJudgement("j", scores=finals),) if finals else (),
            **fields,
        }
    )


def bench(
    findings_of: Callable[[int], Sequence[Finding]] = lambda prompt: (), prompts: int = 6, **fields: Any
) -> list[Conversation]:
    """Conversations on prompts of two categories."""
    return [conversation(f"p{n}", "ab"[n % 2], findings=findings_of(n), **fields) for n in range(prompts)]


def attempted(read: Callable[[], T]) -> T | Rejected:
    """What a reader says, or why it rejects the reply."""
    try:
        return read()
    except Unreadable as unreadable:
        return unreadable.rejected


def lead(conversations: Sequence[Conversation], protocol: Protocol | str = "per-turn", **options: Any) -> Headline:
    """The headline of a run."""
    protocol = quick(protocol) if isinstance(protocol, str) else protocol
    return present(score_conversations(conversations, protocol, **options).headline)
