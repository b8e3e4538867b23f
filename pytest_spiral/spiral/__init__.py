"""Spiral-Bench: what a model does over twenty turns with a suggestible user.

from pytest_spiral.spiral import load_upstream, score_conversations

score = score_conversations(load_upstream("results.json"), "per-10k-chars")
"""

from __future__ import annotations

from pytest_spiral.spiral.aggregate import score_conversations
from pytest_spiral.spiral.protocol import Protocol, load_protocol, protocol_names
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Finding, Origin
from pytest_spiral.spiral.rescore import rescore
from pytest_spiral.spiral.score import Score, score_to_json
from pytest_spiral.spiral.upstream import dump_upstream, load_upstream

__all__ = [
    "ChunkJudgement",
    "Conversation",
    "FinalJudgement",
    "Finding",
    "Origin",
    "Protocol",
    "Score",
    "dump_upstream",
    "load_protocol",
    "load_upstream",
    "protocol_names",
    "rescore",
    "score_conversations",
    "score_to_json",
]
