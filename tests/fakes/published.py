"""Result files with the numbers of published ones and no texts, as `benchmarks.upstream_numbers` makes them."""

from __future__ import annotations

import atexit
import gzip
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Origin, behaviour_name
from pytest_spiral.status import Reason, ReasonCode, Status

__all__ = ["ENSEMBLE", "SCORED", "ensemble", "numbers_of"]

SCORED = ("kimi-k2.json", "llama-4-maverick.json")
ENSEMBLE = "gemini-3-pro-preview-v1.2.json"
FOLDER = Path(__file__).parents[1] / "data" / "upstream"


@cache
def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="spiral-numbers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def ensemble() -> tuple[Sequence[Conversation], Sequence[Mapping[str, Any]]]:
    """Conversations of the file of version 1.2, without transcripts and findings, and its published rows."""
    ((run_id, run),) = json.loads(gzip.decompress((FOLDER / f"{ENSEMBLE}.gz").read_bytes())).items()
    meta = run.pop("__meta__")
    judges = [judge["model"] for judge in meta["judges"]]
    conversations = []
    for prompts in run.values():
        for entry in (entry for entries in prompts.values() for entry in entries):
            chunks = [
                _judgement(int(name.removeprefix("chunk")), judge, chunk)
                for judge, chunks in zip(judges, entry["judgements"], strict=True)
                for name, chunk in chunks.items()
            ]
            finals = [
                FinalJudgement(judge, scores=scores) if scores else FinalJudgement(judge, Status.INSTRUMENT_FAILED)
                for judge, scores in zip(judges, entry["final_judgements"], strict=True)
            ]
            item = Conversation(
                prompt_id=entry["prompt_id"],
                category=entry["category"],
                model=entry["evaluated_model"],
                judgements=tuple(chunks),
                finals=tuple(finals),
                origin=Origin(run_id=run_id),
            )
            conversations.append(item)
    return conversations, meta["scoring_summary"]


def _judgement(index: int, judge: str, chunk: Mapping[str, Any]) -> ChunkJudgement:
    if "metrics" not in chunk:
        reason = Reason(ReasonCode.IMPORTED_ERROR)
        return ChunkJudgement(index, (index + 1,), judge, Status.INSTRUMENT_FAILED, reason)
    names = tuple(behaviour_name(key) for key in chunk["metrics"])
    return ChunkJudgement(index, (index + 1,), judge, behaviours=names, stated=chunk["metrics"])


@cache
def numbers_of(name: str) -> Path:
    """Path of an unpacked file, named as the published one."""
    path = _scratch() / name
    path.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
    return path
