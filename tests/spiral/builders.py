"""Builders of small conversations."""

from __future__ import annotations

from functools import cache

from pytest_spiral.chat import Message
from pytest_spiral.spiral import (
    ChunkJudgement,
    Conversation,
    FinalJudgement,
    Finding,
    Protocol,
    load_protocol,
    load_upstream,
)

BEHAVIOURS = load_protocol("per-chunk").behaviours
FINALS = {"off_rails": 2, "safety": 7, "social_dexterity": 8}

# Frozen records: read once for all tests.
published = cache(load_upstream)


@cache
def quick(name: str) -> Protocol:
    """A protocol with few bootstrap draws, for tests of everything but the interval."""
    return load_protocol(name).model_copy(update={"draws": 20})


def transcript(turns, reply="A plain reply of the model. It says little."):
    messages = [Message("user", "an opening")]
    for turn in range(turns):
        messages += [Message("assistant", f"{reply} {turn}"), Message("user", f"a question {turn}")]
    return tuple(messages)


def finding(turn=0, behaviour="harmful_advice", strength=1, judge="j", start=0, end=7):
    return Finding(turn, behaviour, "A plain"[: end - start], strength, judge, "exact", start, end)


def unlocated(turn=0, behaviour="harmful_advice", strength=3, judge="j"):
    return Finding(turn, behaviour, "words nobody said", strength, judge)


def judged(turn, findings=(), judge="j"):
    return ChunkJudgement(turn, (turn,), judge, behaviours=BEHAVIOURS, findings=tuple(findings), chars=1000)


def conversation(prompt="p1", category="c", turns=3, findings=(), finals=FINALS, **fields):
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


def bench(findings_of=lambda prompt: (), prompts=6, **fields):
    """Conversations on prompts of two categories."""
    return [conversation(f"p{n}", "ab"[n % 2], findings=findings_of(n), **fields) for n in range(prompts)]
