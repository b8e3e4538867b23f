"""Upstream Spiral-Bench's result files, read with suspicion and written in their shape.

    {run_id: {file_key: {prompt_key: [conversation, ...]}, "__meta__": {...}, "scoring_summary": [...]}}

Nothing in such a file is believed unchecked: types, sizes and depth are bounded, and every complaint names the key. The
summaries stored in them are of mixed vintage; they are never read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_spiral.chat import Message
from pytest_spiral.errors import DataError
from pytest_spiral.resources import read_text
from pytest_spiral.spiral.consensus import merge_chunks, merge_finals
from pytest_spiral.spiral.evidence import SourceText
from pytest_spiral.spiral.judging import Rejected, Stored, stored_findings
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Finding, Origin, behaviour_name
from pytest_spiral.spiral.simulator import rules_for, simulator_health
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.strict_json import StrictJson
from pytest_spiral.text import whole_characters

__all__ = ["dump_upstream", "load_upstream", "upstream_json", "upstream_key"]

META = "__meta__"
SUMMARY = "scoring_summary"

# Thirty conversations are 4 MB; these bounds leave room for a thousand and none for an attack.
MAX_CONVERSATIONS = 20_000
MAX_MESSAGES = 2_001
MAX_MESSAGE_CHARS = 1_000_000
MAX_CHUNKS = 1_000
MAX_KEYS = 200
MAX_TEXT_CHARS = 2_000_000
MAX_POINTS = 1e9
MAX_ERROR_CHARS = 2_000

_CHUNK = re.compile(r"chunk(\d{1,6})")
# Upstream's chunk 0 is assistant message 1: the reply to the opening is never judged.
_FIRST_TURN = 1


class _At:
    """A value of the file together with the key path that leads to it."""

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def fault(self, message: str) -> DataError:
        return DataError(f"{self.path}: {message}")

    def at(self, key: str | int) -> _At:
        shown = str(key)[:80]
        return _At(self.value[key], f"{self.path}.{shown if shown.isprintable() else ascii(shown)}")

    def object(self, limit: int = MAX_KEYS) -> Mapping[str, Any]:
        if not isinstance(self.value, dict):
            raise self.fault(f"an object is wanted, got {type(self.value).__name__}")
        if len(self.value) > limit:
            raise self.fault(f"{len(self.value):,} keys, the limit is {limit:,}")
        return self.value

    def list(self, limit: int) -> Sequence[_At]:
        if not isinstance(self.value, list):
            raise self.fault(f"a list is wanted, got {type(self.value).__name__}")
        if len(self.value) > limit:
            raise self.fault(f"{len(self.value):,} entries, the limit is {limit:,}")
        return [self.at(index) for index in range(len(self.value))]

    def get(self, key: str) -> _At:
        """A member that may be absent: then None."""
        return _At(self.object().get(key), f"{self.path}.{key}")

    def text(self, limit: int = MAX_TEXT_CHARS) -> str:
        """A string, "" for null; lone surrogates become the replacement character."""
        if self.value is None:
            return ""
        if not isinstance(self.value, str):
            raise self.fault(f"a string is wanted, got {type(self.value).__name__}")
        if len(self.value) > limit:
            raise self.fault(f"{len(self.value):,} characters, the limit is {limit:,}")
        return whole_characters(self.value)

    def number(self, low: float, high: float) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.fault(f"a number is wanted, got {type(self.value).__name__}")
        if not low <= self.value <= high:
            raise self.fault(f"must lie between {low:g} and {high:g}, got {str(self.value)[:40]}")
        return float(self.value)

    def index(self, high: int) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 0 <= self.value <= high:
            raise self.fault(f"a whole number from 0 to {high:,} is wanted, got {str(self.value)[:40]}")
        return self.value


def upstream_key(key: str) -> str:
    """A metric's key as upstream's aggregation sees it: snake case, hyphens kept ("de escalation" is another one)."""
    return key.strip().lower().replace(" ", "_")


def load_upstream(path: Path | str, num_turns: int | None = None) -> tuple[Conversation, ...]:
    """All conversations of an upstream result file, every quote looked up in the reply it is about.

    num_turns: assistant messages of a whole conversation; by default as many as the longest of its run and file has. A
    shorter one was cut short and is `instrument_failed`, though upstream stores it as completed, and so is one whose
    user model collapsed; one that upstream itself calls not completed is `not_run`.
    Raises `DataError` naming file and key path for anything that is not what such a file holds.
    """
    path = Path(path)
    root = _At(_read(path), str(path))
    found: list[Conversation] = []
    for run_id in root.object(MAX_CONVERSATIONS):
        run = root.at(run_id)
        for file_key in run.object(MAX_CONVERSATIONS):
            if file_key in (META, SUMMARY):
                continue
            group = _group(run.at(file_key), run_id, file_key, MAX_CONVERSATIONS - len(found))
            found += _with_status(group, num_turns)
    if not found:
        raise root.fault("no conversation in it; upstream's files map run id, prompt file and prompt id to lists")
    return tuple(found)


def _read(path: Path) -> Any:
    try:
        return StrictJson().loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path}: not usable JSON: {error}") from None


def _group(prompts: _At, run_id: str, file_key: str, room: int) -> list[Conversation]:
    found: list[Conversation] = []
    for prompt_key in prompts.object(MAX_CONVERSATIONS):
        for entry in prompts.at(prompt_key).list(MAX_CONVERSATIONS):
            if len(found) >= room:
                raise prompts.fault(f"more than {MAX_CONVERSATIONS:,} conversations in one file")
            found.append(_conversation(entry, run_id, file_key, prompt_key))
    return found


def _conversation(entry: _At, run_id: str, file_key: str, prompt_key: str) -> Conversation:
    entry.object()
    prompt_id = entry.get("prompt_id").text(1_000) or prompt_key
    transcript = tuple(_message(message) for message in _optional(entry.get("transcript"), MAX_MESSAGES))
    judge = entry.get("judge_model").text(1_000)
    completed = entry.get("completed")
    if completed.value is not None and not isinstance(completed.value, bool):
        raise completed.fault("true or false is wanted")
    errors = _optional(entry.get("errors"), 10_000)
    status: Status = Status.MEASURED
    reason: Reason | None = None
    if errors:
        status, reason = _parse_error(errors[0].value)
    elif completed.value is False:
        status, reason = Status.NOT_RUN, Reason(ReasonCode.CUT_SHORT, "not completed")
    return Conversation(
        prompt_id=prompt_id,
        category=entry.get("category").text(1_000),
        model=entry.get("evaluated_model").text(1_000),
        index=_number_or(entry.get("convo_index")),
        status=status,
        reason=reason,
        prompts=tuple(
            None if prompt.value is None else prompt.text(MAX_MESSAGE_CHARS)
            for prompt in _optional(entry.get("prompts"), MAX_MESSAGES)
        ),
        transcript=transcript,
        injections_log=tuple(note.text() for note in _optional(entry.get("injections_log"), MAX_MESSAGES)),
        judgements=_judgements(entry.get("judgements"), transcript, judge),
        finals=_finals(entry.get("final_judgement"), judge),
        origin=Origin(
            run_id=run_id,
            file_key=file_key,
            prompt_key="" if prompt_key == prompt_id else prompt_key,
            **{
                key: entry.get(key).text()
                for key in (
                    "prompt_file",
                    "instruction_file",
                    "injection_file",
                    "user_model",
                    "user_system_prompt",
                    "evaluated_system_prompt",
                )
            },
        ),
    )


def _optional(value: _At, limit: int) -> Sequence[_At]:
    return () if value.value is None else value.list(limit)


def _number_or(value: _At) -> int:
    return 0 if value.value is None else value.index(999_999)


def _message(entry: _At) -> Message:
    role = entry.get("role")
    if role.value not in ("system", "user", "assistant"):
        raise role.fault(f"system, user or assistant is wanted, got {str(role.value)[:40]!r}")
    return Message(role.value, entry.get("content").text(MAX_MESSAGE_CHARS))


def _reason_text(reason: Reason) -> str:
    """A reason as our files hold it, `code: detail`; an imported error in the words it came in."""
    return reason.detail if reason.code is ReasonCode.IMPORTED_ERROR else str(reason)


def _parse_error(error: Any) -> tuple[Status, Reason | None]:
    """Status and reason from the first error of a file: `state: code: detail` in ours, free text in upstream's.

    Free text leaves the status open, which is `measured` here.
    """
    text = whole_characters(error if isinstance(error, str) else json.dumps(error))[:MAX_ERROR_CHARS]
    state, _, reason = text.partition(": ")
    if state in list(Status) and state != Status.MEASURED:
        return Status(state), Reason.parse(reason) if reason else None
    return Status.MEASURED, Reason(ReasonCode.IMPORTED_ERROR, text)


def _with_status(group: Sequence[Conversation], num_turns: int | None) -> list[Conversation]:
    whole = num_turns if num_turns is not None else max((len(item.replies) for item in group), default=0)
    found = []
    for item in group:
        turns = len(item.replies)
        if item.status is Status.MEASURED and turns < max(whole, 1):
            cut = f"{turns} of {whole} turns"
            detail = f"{cut}; {item.reason.detail}" if item.reason else cut
            item = replace(item, status=Status.INSTRUMENT_FAILED, reason=Reason(ReasonCode.CUT_SHORT, detail))
        elif item.status is Status.MEASURED:
            health = simulator_health(item.transcript, item.prompts, rules_for(item.origin.user_system_prompt))
            collapsed = Status.INSTRUMENT_FAILED if health.collapse else item.status
            reason = Reason(ReasonCode.SIMULATOR_COLLAPSED, health.collapse) if health.collapse else None
            item = replace(item, status=collapsed, reason=reason)
        found.append(item)
    return found


def _judgements(chunks: _At, transcript: Sequence[Message], judge: str) -> tuple[ChunkJudgement, ...]:
    if chunks.value is None:
        return ()
    replies = [message.content for message in transcript if message.role == "assistant"]
    user_texts = _heard(transcript)
    entries: dict[int, _At] = {}
    for key in chunks.object(MAX_CHUNKS):
        match = _CHUNK.fullmatch(key)
        if match is None:
            raise chunks.fault(f"{key[:60]!r} is no chunk name; chunk0, chunk1, ... are wanted")
        if int(match[1]) in entries:
            raise chunks.fault(f"chunk {int(match[1])} is there twice")
        entries[int(match[1])] = chunks.at(key)
    turns = {index: _turns(entry, len(replies)) for index, entry in entries.items()}
    known = {index: named for index, named in turns.items() if named}
    size = max((len(named) for named in known.values()), default=1)
    start = min((named[0] - index * size for index, named in known.items()), default=_FIRST_TURN)
    found = (
        _judgement(
            entries[index], index, turns[index] or _guessed(index, start, size, len(replies)), replies, user_texts
        )
        for index in sorted(entries)
    )
    return tuple(replace(judgement, judge=judge, findings=_named(judgement.findings, judge)) for judgement in found)


def _named(findings: Sequence[Finding], judge: str) -> tuple[Finding, ...]:
    return tuple(replace(finding, judge=judge) for finding in findings) if judge else tuple(findings)


def _heard(transcript: Sequence[Message]) -> list[SourceText]:
    """User messages, each with the number of the reply it precedes."""
    heard, turn = [], 0
    for message in transcript:
        if message.role == "user":
            heard.append(SourceText(turn, message.content))
        turn += message.role == "assistant"
    return heard


def _guessed(index: int, start: int, size: int, of: int) -> tuple[int, ...]:
    """Turns of an error stub, which names none: continued from its neighbours."""
    first = max(0, start + index * size)
    return tuple(turn for turn in range(first, first + size) if turn < of)


def _turns(entry: _At, of: int) -> tuple[int, ...]:
    named = entry.get("assistant_turn_indexes")
    turns = tuple(turn.index(MAX_MESSAGES) for turn in _optional(named, MAX_MESSAGES))
    if any(turn >= of for turn in turns) or list(turns) != sorted(set(turns)):
        raise named.fault(f"rising numbers below {of}, the assistant messages there are, are wanted")
    return turns


def _judgement(
    entry: _At, index: int, turns: tuple[int, ...], replies: Sequence[str], user_texts: Sequence[SourceText]
) -> ChunkJudgement:
    error = entry.get("error")
    metrics = entry.get("metrics")
    if metrics.value is None:
        return ChunkJudgement(
            index, turns, status=Status.INSTRUMENT_FAILED, reason=_lost(error.value, "no metrics stored")
        )
    stated: dict[str, float] = {}
    for key in metrics.object():
        name = upstream_key(whole_characters(key))
        stated[name] = stated.get(name, 0.0) + metrics.at(key).number(0, MAX_POINTS)
    full = entry.get("full_metrics")
    listed: Mapping[str, Any] = {} if full.value is None else full.object()
    stored = stored_findings(
        listed,
        [SourceText(turn, replies[turn]) for turn in turns],
        user_texts=[said for said in user_texts if turns and said.turn <= turns[-1]],
    )
    if isinstance(stored, Rejected):
        raise full.fault(stored.reason.detail)
    chars = entry.get("assistant_length_chars")
    length = None if chars.value is None else chars.number(-MAX_POINTS, MAX_POINTS)
    findings = tuple(
        replace(finding, quote=whole_characters(finding.quote)[:MAX_MESSAGE_CHARS]) for finding in stored.findings
    )
    return ChunkJudgement(
        index=index,
        turns=turns or (0,),
        behaviours=tuple(dict.fromkeys(behaviour_name(key) for key in stated)),
        findings=findings,
        chars=length,
        stated=stated,
        unquoted=_unquoted(stated, stored),
        raw_text=entry.get("raw_text").text(),
    )


def _lost(error: Any, otherwise: str) -> Reason:
    """Why a judgement is missing: `code: detail` in our own files, free text in upstream's."""
    if not isinstance(error, str):
        return Reason(ReasonCode.IMPORTED_ERROR, otherwise)
    return Reason.parse(whole_characters(error)[:MAX_ERROR_CHARS])


def _unquoted(stated: Mapping[str, float], stored: Stored) -> int:
    """How many behaviours claim more points than their quotes carry."""
    quoted: dict[str, float] = {}
    for finding in stored.findings:
        quoted[finding.behaviour] = quoted.get(finding.behaviour, 0.0) + finding.strength
    claimed: dict[str, float] = {}
    for key, points in stated.items():
        claimed[behaviour_name(key)] = claimed.get(behaviour_name(key), 0.0) + points
    return sum(points > quoted.get(name, 0.0) for name, points in claimed.items())


def _finals(final: _At, judge: str) -> tuple[FinalJudgement, ...]:
    if final.value is None:
        return ()
    keys = final.object()
    if "error" in keys or not keys:
        reason = _lost(final.value.get("error"), "no scores stored")
        return (FinalJudgement(judge, status=Status.INSTRUMENT_FAILED, reason=reason),)
    scores = {upstream_key(key): final.at(key).number(0, 10) for key in keys if final.value[key] is not None}
    return (FinalJudgement(judge, scores=scores),)


def dump_upstream(
    conversations: Sequence[Conversation],
    path: Path | str,
    *,
    run_id: str = "",
    summary: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write conversations as an upstream result file, which `load_upstream` reads back to the same scores.

    run_id: overrides the conversations' own. summary: rows for `scoring_summary`. Conversations of an ensemble carry
    the consensus: the format knows one judge. Written beside the target and moved there, so that no half
    file is ever seen.
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
    conversations: Sequence[Conversation], *, run_id: str = "", summary: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """What `dump_upstream` writes."""
    root: dict[str, Any] = {}
    for item in conversations:
        run = root.setdefault(run_id or item.origin.run_id or "1", {})
        group = run.setdefault(item.origin.file_key or item.origin.prompt_file or "prompts.json", {})
        group.setdefault(item.origin.prompt_key or item.prompt_id, []).append(_conversation_json(item))
    for run in root.values():
        run[META] = {"final_judgement_summary": _final_summary(run), "scoring_summary": list(summary)}
        run[SUMMARY] = list(summary)
    return root


def _final_summary(run: Mapping[str, Any]) -> dict[str, Any]:
    finals = [
        entry["final_judgement"]
        for group in run.values()
        for entries in group.values()
        for entry in entries
        if entry["final_judgement"] and "error" not in entry["final_judgement"]
    ]
    keys = sorted({key for final in finals for key in final})
    means = {}
    for key in keys:
        values = [final[key] for final in finals if key in final]
        means[key] = round(math.fsum(values) / len(values), 3)
    return {**means, "count": len(finals)}


def _conversation_json(item: Conversation) -> dict[str, Any]:
    broken = item.status not in (Status.MEASURED, Status.MODEL_FAILED)
    return {
        "prompt_id": item.prompt_id,
        "category": item.category,
        "prompts": list(item.prompts),
        "prompt_file": item.origin.prompt_file,
        "instruction_file": item.origin.instruction_file,
        "injection_file": item.origin.injection_file,
        "convo_index": item.index,
        "user_model": item.origin.user_model,
        "evaluated_model": item.model,
        "user_system_prompt": item.origin.user_system_prompt,
        "evaluated_system_prompt": item.origin.evaluated_system_prompt,
        "transcript": [{"role": message.role, "content": message.content} for message in item.transcript],
        "errors": []
        if item.status is Status.MEASURED
        else [f"{item.status.value}: {_reason_text(item.reason) if item.reason else ''}"],
        "injections_log": list(item.injections_log),
        "completed": not broken,
        "judgements": {
            f"chunk{judgement.index}": _judgement_json(judgement) for judgement in merge_chunks(item.judgements)
        },
        "final_judgement": _final_json(item.finals),
    }


def _errors_json(item: Conversation) -> list[str]:
    """The state as an error of the format, `state: code: detail`; empty for a measured conversation."""
    if item.status is Status.MEASURED:
        return []
    return [f"{item.status.value}: {_reason_text(item.reason)}" if item.reason else item.status.value]


def _judgement_json(judgement: ChunkJudgement) -> dict[str, Any]:
    if judgement.status not in (Status.MEASURED, Status.MODEL_FAILED):
        return {"error": _reason_text(judgement.reason) if judgement.reason else judgement.status.value}
    stated = judgement.stated
    if stated is None:
        stated = dict.fromkeys((_stored_name(name) for name in judgement.behaviours), 0.0)
        for finding in judgement.findings:
            key = _stored_name(finding.behaviour)
            stated[key] = stated.get(key, 0.0) + finding.strength
    spelled = {behaviour_name(key): key for key in stated}
    lists: dict[str, list[list[str | int]]] = {key: [] for key in stated}
    for finding in judgement.findings:
        key = spelled.get(finding.behaviour, finding.behaviour)
        lists.setdefault(key, []).append([finding.quote, finding.strength])
    chars = judgement.chars
    return {
        "metrics": {_spaced(key): float(value) for key, value in stated.items()},
        "full_metrics": {_spaced(key): value for key, value in lists.items()},
        "raw_text": judgement.raw_text,
        "assistant_turn_indexes": list(judgement.turns),
        "assistant_length_chars": int(chars) if chars is not None and chars == int(chars) else chars,
    }


def _stored_name(name: str) -> str:
    """Upstream's one hyphenated behaviour."""
    return "de-escalation" if name == "de_escalation" else name


def _spaced(key: str) -> str:
    return key.replace("_", " ")


def _final_json(finals: Sequence[FinalJudgement]) -> dict[str, Any] | None:
    if not finals:
        return None
    scores = merge_finals(finals)
    if not scores:
        return {"error": _reason_text(finals[0].reason) if finals[0].reason else finals[0].status.value}
    return {key: int(value) if value == int(value) else value for key, value in scores.items()}
