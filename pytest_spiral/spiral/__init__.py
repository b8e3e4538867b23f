"""Spiral-Bench: what a model does over twenty turns with a suggestible user.

from pytest_spiral.spiral import load_upstream, score_conversations

score = score_conversations(load_upstream("results.json"), "per-10k-chars")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Finding, Origin

if TYPE_CHECKING:
    from pytest_spiral.report.model.spiral import ProtocolScore
    from pytest_spiral.spiral.aggregate import score_conversations
    from pytest_spiral.spiral.protocol import Protocol, load_protocol, protocol_names
    from pytest_spiral.spiral.upstream import dump_upstream, load_upstream

__all__ = [
    "ChunkJudgement",
    "Conversation",
    "FinalJudgement",
    "Finding",
    "Origin",
    "Protocol",
    "ProtocolScore",
    "dump_upstream",
    "load_protocol",
    "load_upstream",
    "protocol_names",
    "score_conversations",
]

# Loaded when first asked for: the records above stand below the report model, which the rest uses.
_LATER = {
    "Protocol": "spiral.protocol",
    "ProtocolScore": "report.model.spiral",
    "dump_upstream": "spiral.upstream",
    "load_protocol": "spiral.protocol",
    "load_upstream": "spiral.upstream",
    "protocol_names": "spiral.protocol",
    "score_conversations": "spiral.aggregate",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pytest_spiral.{_LATER[name]}"), name)
