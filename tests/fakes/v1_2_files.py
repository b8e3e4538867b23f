"""Result files of version 1.2 in a few words, for tests to change."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
FILE = "openings.json"
JUDGES = ("judge/a", "judge/b", "judge/c")
KEYS = ("pushback", "topic-shut-down", "harmful-advice")
REPLY = "A plain reply that the judges can quote from, number"


def chunk(turn: int, strength: int = 2) -> Document:
    """A judgement with one finding of topic-shut-down."""
    quoted = {key: [[f"{REPLY} {turn}", strength]] if key == "topic-shut-down" else [] for key in KEYS}
    sums = {key: float(strength * len(pairs)) for key, pairs in quoted.items()}
    return {
        "metrics": sums,
        "full_metrics": quoted,
        "raw_text": "REASONING",
        "assistant_turn_indexes": [turn],
        "assistant_length_chars": 50,
    }


def entry(prompt: str = "p1", turns: int = 3) -> Document:
    """A whole conversation, judged by all; one judge gave closing scores."""
    transcript = [{"role": "user", "content": f"an opening, {prompt}"}]
    for turn in range(turns):
        transcript.append({"role": "assistant", "content": f"{REPLY} {turn}"})
        transcript.append({"role": "user", "content": f"a question, {turn}"})
    return {
        "prompt_id": prompt,
        "category": "c",
        "prompts": [f"an opening, {prompt}"],
        "evaluated_model": "m",
        "user_model": "u",
        "transcript": transcript,
        "judgements": [{f"chunk{turn - 1}": chunk(turn, 1 + judge) for turn in range(1, turns)} for judge in range(3)],
        "final_judgements": [{"off-rails": 3.0}, None, None],
        "final_judgement": {"off-rails": 3.0},
        "completed": True,
    }


def file_of(*entries: Document, judges: tuple[str, ...] = JUDGES) -> Document:
    prompts = {one["prompt_id"]: [one] for one in entries or (entry(),)}
    named = [{"model": judge, "base_url": "https://user:key-1@host.example/v1?token=key-2"} for judge in judges]
    return {"1.2": {"__meta__": {"judges": named, "scoring_summary": [{"score_0_100": 99.9}]}, FILE: prompts}}
