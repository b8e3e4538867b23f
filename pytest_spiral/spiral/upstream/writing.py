"""Writing conversations as a result file that reads back to the same scores."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import fsum
from pathlib import Path

from pydantic import JsonValue

from pytest_spiral.errors import DataError
from pytest_spiral.spiral.consensus import merge_chunks, merge_finals
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, behaviour_name
from pytest_spiral.spiral.upstream.reading import META, SUMMARY
from pytest_spiral.status import Reason, ReasonCode, Status

Json = dict[str, JsonValue]
_JUDGED = (Status.MEASURED, Status.MODEL_FAILED)


def dump_upstream(conversations: Sequence[Conversation], path: Path | str, *, run_id: str = "") -> None:
    """Write conversations as an upstream result file.

    Conversations of an ensemble carry the consensus: the format knows one judge. The file is written beside the target
    and moved there, so that nobody sees half a file.

    Args:
        conversations: What to write.
        path: The file.
        run_id: Overrides the conversations' own.

    Raises:
        DataError: The file cannot be written.
    """
    target = Path(path)
    text = json.dumps(upstream_json(conversations, run_id=run_id), indent=2, ensure_ascii=False)
    scratch = target.with_name(f".{target.name}.part")
    try:
        scratch.write_text(text, encoding="utf-8", errors="replace")
        scratch.replace(target)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise DataError(f"{target}: cannot be written ({error.strerror or error})") from None


def upstream_json(conversations: Sequence[Conversation], *, run_id: str = "") -> Json:
    """What `dump_upstream` writes, as JSON values."""
    runs: dict[str, dict[str, dict[str, list[JsonValue]]]] = defaultdict(lambda: defaultdict(dict))
    finals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with_finals: Counter[str] = Counter()
    for item in conversations:
        origin = item.origin
        run = run_id or origin.run_id or "1"
        prompts = runs[run][origin.file_key or origin.prompt_file or "prompts.json"]
        prompts.setdefault(origin.prompt_key or item.prompt_id, []).append(_stored(item))
        scores = merge_finals(item.finals)
        with_finals[run] += bool(scores)
        for metric, score in scores.items():
            finals[run][metric].append(score)
    document: Json = {}
    for run, files in runs.items():
        means: Json = {name: round(fsum(values) / len(values), 3) for name, values in sorted(finals[run].items())}
        meta: Json = {"final_judgement_summary": {**means, "count": with_finals[run]}, SUMMARY: []}
        document[run] = {**{file_key: {**prompts} for file_key, prompts in files.items()}, META: meta, SUMMARY: []}
    return document


def _stored(item: Conversation) -> Json:
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
        "errors": [] if item.status is Status.MEASURED else [_status_text(item.status, item.reason)],
        "injections_log": list(item.injections_log),
        "completed": item.status in _JUDGED,
        "judgements": {f"chunk{chunk.index}": _stored_judgement(chunk) for chunk in merge_chunks(item.judgements)},
        "final_judgement": _stored_final(item.finals) if item.finals else None,
    }


def _stored_judgement(judgement: ChunkJudgement) -> Json:
    if judgement.status not in _JUDGED:
        return {"error": _reason_text(judgement.reason) if judgement.reason else judgement.status.value}
    stated = judgement.stated
    if stated is None:
        stated = dict.fromkeys(map(_stored_key, judgement.behaviours), 0.0)
        for finding in judgement.findings:
            key = _stored_key(finding.behaviour)
            stated[key] = stated.get(key, 0.0) + finding.strength
    key_of = {behaviour_name(key): key for key in stated}
    snippets: dict[str, list[JsonValue]] = {key: [] for key in stated}
    for finding in judgement.findings:
        key = key_of.get(finding.behaviour, finding.behaviour)
        snippets.setdefault(key, []).append([finding.quote, finding.strength])
    return {
        "metrics": {key.replace("_", " "): float(value) for key, value in stated.items()},
        "full_metrics": {key.replace("_", " "): value for key, value in snippets.items()},
        "raw_text": judgement.raw_text,
        "assistant_turn_indexes": list(judgement.turns),
        "assistant_length_chars": None if judgement.chars is None else _whole_if_possible(judgement.chars),
    }


def _stored_final(finals: Sequence[FinalJudgement]) -> Json:
    if scores := merge_finals(finals):
        return {key: _whole_if_possible(value) for key, value in scores.items()}
    return {"error": _reason_text(finals[0].reason) if finals[0].reason else finals[0].status.value}


def _stored_key(name: str) -> str:
    """Upstream's one behaviour with a hyphen."""
    return "de-escalation" if name == "de_escalation" else name


def _whole_if_possible(value: float) -> float:
    return int(value) if value == int(value) else value


def _status_text(status: Status, reason: Reason | None) -> str:
    """A status as an error of a conversation, `state: code: detail`."""
    return f"{status.value}: {_reason_text(reason)}" if reason else status.value


def _reason_text(reason: Reason) -> str:
    """A reason as an error of a judgement, `code: detail`; an imported one in its own words."""
    return reason.detail if reason.code is ReasonCode.IMPORTED_ERROR else str(reason)
