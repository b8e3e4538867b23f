"""Writing conversations as a result file that reads back to the same scores.

A run with one judge has the shape of files before version 1.2; one with several, or read from such a file, that of
version 1.2, with one list entry per judge. `scoring_summary` is left empty: the public implementation fills it when it
scores the file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from pydantic import JsonValue

from pytest_spiral.errors import DataError
from pytest_spiral.grouping import grouped
from pytest_spiral.spiral.protocol import load_protocol, protocol_names
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, behaviour_name
from pytest_spiral.spiral.upstream.shape import META, SUMMARY
from pytest_spiral.status import ReasonCode, Status

_Json = dict[str, JsonValue]
_JUDGED = (Status.MEASURED, Status.MODEL_FAILED)


def dump_upstream(conversations: Sequence[Conversation], path: Path | str, *, run_id: str = "") -> None:
    """Write conversations as an upstream result file.

    Why a final judgement failed is not written: in the format of version 1.2 it is null. The file is written beside the
    target and moved there, so that nobody sees half a file.

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


def upstream_json(conversations: Sequence[Conversation], *, run_id: str = "") -> _Json:
    """What `dump_upstream` writes, as JSON values."""
    runs = grouped((run_id or item.origin.run_id or "1", item) for item in conversations)
    return {run: _stored_run(items) for run, items in runs.items()}


def _stored_run(items: Sequence[Conversation]) -> _Json:
    given = (
        [*item.origin.judges, *(f.judge for f in item.finals), *(c.judge for c in item.judgements)] for item in items
    )
    judges = [*dict.fromkeys(name for names in given for name in names)]
    per_judge = len(judges) > 1 or any(item.origin.judges for item in items)
    files: dict[str, dict[str, list[JsonValue]]] = defaultdict(dict)
    for item in items:
        prompts = files[item.origin.file_key or item.origin.prompt_file or "prompts.json"]
        stored = _stored(item) | (_by_judge(item, judges) if per_judge else _by_one(item))
        prompts.setdefault(item.origin.prompt_key or item.prompt_id, []).append(stored)
    finals = [scores for item in items if (scores := _average(item.finals))]
    names = sorted({name for scores in finals for name in scores})
    means = {name: round(fmean(scores[name] for scores in finals if name in scores), 3) for name in names}
    meta: _Json = {"final_judgement_summary": {**means, "count": len(finals)}, SUMMARY: []}
    run: _Json = {file_key: {**prompts} for file_key, prompts in files.items()}
    if per_judge:
        return {**run, META: {"judges": [{"model": judge or "not named"} for judge in judges], **meta}}
    return {**run, META: meta, SUMMARY: []}


def _stored(item: Conversation) -> _Json:
    """Everything but the judgements."""
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
        "errors": [] if item.status is Status.MEASURED else [_status_text(item)],
        "injections_log": list(item.injections_log),
        "completed": item.status in _JUDGED,
    }


def _by_one(item: Conversation) -> _Json:
    """The judgements of one judge."""
    final: JsonValue = None
    if item.finals:
        final = _stored_scores(item.finals) or {"error": _reason_text(item.finals[0])}
    return {
        "judgements": {f"chunk{chunk.index}": _stored_judgement(chunk) for chunk in item.judgements},
        "final_judgement": final,
    }


def _by_judge(item: Conversation, judges: Sequence[str]) -> _Json:
    """The judgements of each judge, in this order."""
    chunks: dict[str, _Json] = {judge: {} for judge in judges}
    for judgement in item.judgements:
        chunks[judgement.judge][f"chunk{judgement.index}"] = _stored_judgement(judgement)
    finals = {final.judge: _stored_scores([final]) for final in item.finals}
    return {
        "judgements": [*chunks.values()] if item.judgements else [],
        "final_judgements": [finals.get(judge) for judge in judges] if finals else [],
        "final_judgement": _stored_scores(item.finals),
    }


def _stored_judgement(judgement: ChunkJudgement) -> _Json:
    if judgement.status not in _JUDGED:
        return {"error": _reason_text(judgement)}
    stated = judgement.stated
    if stated is None:
        spelled = _spelled(judgement.behaviours)
        stated = {spelled.get(name, name): 0.0 for name in judgement.behaviours}
        for finding in judgement.findings:
            key = spelled.get(finding.behaviour, finding.behaviour)
            stated[key] = stated.get(key, 0.0) + finding.strength
    key_of = {behaviour_name(key): key for key in stated}
    snippets: dict[str, list[JsonValue]] = {}
    for finding in judgement.findings:
        key = key_of.get(finding.behaviour, finding.behaviour)
        snippets.setdefault(key, []).append([finding.quote, finding.strength])
    snippets |= {key: [] for key in stated if key not in snippets}
    return {
        "metrics": {key.replace("_", " "): float(value) for key, value in stated.items()},
        "full_metrics": {key.replace("_", " "): value for key, value in snippets.items()},
        "raw_text": judgement.raw_text,
        "assistant_turn_indexes": list(judgement.turns),
        "assistant_length_chars": None if judgement.chars is None else _whole_if_possible(judgement.chars),
        # A key of our own; the public implementation reads past it.
        **({"called_for": {**judgement.called_for}} if judgement.called_for else {}),
    }


def _average(finals: Sequence[FinalJudgement]) -> Mapping[str, float]:
    """The mean of each score over the judges that gave one."""
    given = grouped(score for final in finals for score in final.scores.items())
    spelled = _spelled(given)
    return {spelled.get(name, name): fmean(scores) for name, scores in given.items()}


def _stored_scores(finals: Sequence[FinalJudgement]) -> _Json | None:
    return {key: _whole_if_possible(score) for key, score in _average(finals).items()} or None


def _spelled(names: Collection[str]) -> Mapping[str, str]:
    """Keys in files of metrics that were judged together: by the smallest upstream protocol that has them all."""
    return min((keys for keys in _spellings() if keys.keys() >= {*names}), key=len, default={})


@cache
def _spellings() -> Sequence[Mapping[str, str]]:
    """Of each kind of metric in each upstream protocol."""
    protocols = [load_protocol(name) for name in protocol_names() if name.startswith("upstream-")]
    return [
        {name: key for key, name in protocol.stored_keys.items() if name in names}
        for protocol in protocols
        for names in (protocol.behaviours, protocol.finals)
    ]


def _whole_if_possible(value: float) -> float:
    return int(value) if value == int(value) else value


def _status_text(item: Conversation) -> str:
    """A status as an error of a conversation, `state: code: detail`."""
    return f"{item.status.value}: {_reason_text(item)}" if item.reason else item.status.value


def _reason_text(failed: ChunkJudgement | FinalJudgement | Conversation) -> str:
    """Why there is none as an error, `code: detail`; an imported one in its own words."""
    if failed.reason is None:
        return failed.status.value
    return failed.reason.detail if failed.reason.code is ReasonCode.IMPORTED_ERROR else str(failed.reason)
