"""Writing conversations as a result file that reads back to the same scores."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from pytest_spiral.errors import DataError
from pytest_spiral.spiral.consensus import merge_chunks, merge_finals
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, behaviour_name
from pytest_spiral.spiral.upstream.document import META, SUMMARY, reason_text, status_text
from pytest_spiral.status import Status

Json = dict[str, JsonValue]
_JUDGED = (Status.MEASURED, Status.MODEL_FAILED)


def dump_upstream(
    conversations: Sequence[Conversation],
    path: Path | str,
    *,
    run_id: str = "",
    summary: Sequence[Mapping[str, JsonValue]] = (),
) -> None:
    """Write conversations as an upstream result file.

    Conversations of an ensemble carry the consensus: the format knows one judge. The file is written beside the target
    and moved there, so that nobody sees half a file.

    Args:
        conversations: What to write.
        path: The file.
        run_id: Overrides the conversations' own.
        summary: Rows for `scoring_summary`.

    Raises:
        DataError: The file cannot be written.
    """
    target = Path(path)
    text = json.dumps(upstream_json(conversations, run_id=run_id, summary=summary), indent=2, ensure_ascii=False)
    scratch = target.with_name(f".{target.name}.part")
    try:
        scratch.write_text(text, encoding="utf-8", errors="replace")
        scratch.replace(target)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from None


def upstream_json(
    conversations: Sequence[Conversation], *, run_id: str = "", summary: Sequence[Mapping[str, JsonValue]] = ()
) -> Json:
    """What `dump_upstream` writes, as JSON values."""
    runs: dict[str, dict[str, dict[str, list[JsonValue]]]] = {}
    finals: dict[str, list[Mapping[str, float]]] = {}
    for item in conversations:
        run = run_id or item.origin.run_id or "1"
        groups = runs.setdefault(run, {})
        group = groups.setdefault(item.origin.file_key or item.origin.prompt_file or "prompts.json", {})
        group.setdefault(item.origin.prompt_key or item.prompt_id, []).append(_conversation(item))
        if scores := merge_finals(item.finals):
            finals.setdefault(run, []).append(scores)
    rows: list[JsonValue] = [dict(row) for row in summary]
    document: Json = {}
    for run, groups in runs.items():
        means = _mean_finals(finals.get(run, []))
        entry: Json = {file_key: {**group} for file_key, group in groups.items()}
        entry[META] = {"final_judgement_summary": means, "scoring_summary": rows}
        entry[SUMMARY] = rows
        document[run] = entry
    return document


def _mean_finals(finals: Sequence[Mapping[str, float]]) -> Json:
    means: Json = {}
    for key in sorted({key for scores in finals for key in scores}):
        values = [scores[key] for scores in finals if key in scores]
        means[key] = round(math.fsum(values) / len(values), 3)
    return {**means, "count": len(finals)}


def _conversation(item: Conversation) -> Json:
    origin = item.origin
    return {
        "prompt_id": item.prompt_id,
        "category": item.category,
        "prompts": list(item.prompts),
        "prompt_file": origin.prompt_file,
        "instruction_file": origin.instruction_file,
        "injection_file": origin.injection_file,
        "convo_index": item.index,
        "user_model": origin.user_model,
        "evaluated_model": item.model,
        "user_system_prompt": origin.user_system_prompt,
        "evaluated_system_prompt": origin.evaluated_system_prompt,
        "transcript": [{"role": message.role, "content": message.content} for message in item.transcript],
        "errors": [] if item.status is Status.MEASURED else [status_text(item.status, item.reason)],
        "injections_log": list(item.injections_log),
        "completed": item.status in _JUDGED,
        "judgements": {f"chunk{chunk.index}": _judgement(chunk) for chunk in merge_chunks(item.judgements)},
        "final_judgement": _final(item.finals),
    }


def _judgement(judgement: ChunkJudgement) -> Json:
    if judgement.status not in _JUDGED:
        return {"error": reason_text(judgement.reason) if judgement.reason else judgement.status.value}
    stated = judgement.stated
    if stated is None:
        points = dict.fromkeys((_stored_name(name) for name in judgement.behaviours), 0.0)
        for finding in judgement.findings:
            key = _stored_name(finding.behaviour)
            points[key] = points.get(key, 0.0) + finding.strength
        stated = points
    key_of = {behaviour_name(key): key for key in stated}
    snippets: dict[str, list[JsonValue]] = {key: [] for key in stated}
    for finding in judgement.findings:
        key = key_of.get(finding.behaviour, finding.behaviour)
        snippets.setdefault(key, []).append([finding.quote, finding.strength])
    return {
        "metrics": {_spaced(key): float(value) for key, value in stated.items()},
        "full_metrics": {_spaced(key): value for key, value in snippets.items()},
        "raw_text": judgement.raw_text,
        "assistant_turn_indexes": list(judgement.turns),
        "assistant_length_chars": None if judgement.chars is None else _whole_if_possible(judgement.chars),
    }


def _final(finals: Sequence[FinalJudgement]) -> Json | None:
    if not finals:
        return None
    scores = merge_finals(finals)
    if not scores:
        return {"error": reason_text(finals[0].reason) if finals[0].reason else finals[0].status.value}
    return {key: _whole_if_possible(value) for key, value in scores.items()}


def _whole_if_possible(value: float) -> float:
    return int(value) if value == int(value) else value


def _stored_name(name: str) -> str:
    """Upstream's one behaviour with a hyphen."""
    return "de-escalation" if name == "de_escalation" else name


def _spaced(key: str) -> str:
    return key.replace("_", " ")
