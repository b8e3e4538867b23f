"""Scoring a finished upstream file again: from path to plain values, ready to print. No network, no model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_spiral.spiral.aggregate import score_conversations
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.upstream import load_upstream

__all__ = ["rescore", "rescore_groups"]


def rescore(path: Path | str, protocol_name: str = "per-10k-chars", seed: int | str = 1) -> dict[str, Any]:
    """Score every run and model of an upstream result file.

    Returns `{path, protocol, protocol_hash, seed, scores: [{run_id, **score}]}`, each score as JSON
    values, in order of run id and model. Raises `ConfigError` for an unknown protocol, `DataError` for a bad file.
    """
    groups: dict[tuple[str, str], list[Conversation]] = defaultdict(list)
    for conversation in load_upstream(path):
        groups[conversation.origin.run_id, conversation.model].append(conversation)
    return rescore_groups(path, groups, protocol_name, seed)


def rescore_groups(
    path: Path | str,
    groups: Mapping[tuple[str, str], Sequence[Conversation]],
    protocol_name: str = "per-10k-chars",
    seed: int | str = 1,
) -> dict[str, Any]:
    """The same for conversations at hand, by run id and model."""
    protocol = load_protocol(protocol_name)
    return {
        "path": str(path),
        "protocol": protocol.name,
        "protocol_hash": protocol.hash,
        "seed": seed,
        "scores": [
            {
                "run_id": run_id,
                **score_conversations(groups[run_id, model], protocol, seed=seed).model_dump(mode="json"),
            }
            for run_id, model in sorted(groups)
        ],
    }
