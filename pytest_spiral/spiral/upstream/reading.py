"""Reading result files with suspicion: types, sizes and numbers are limited, and every complaint names the key.

The summaries stored in such files were made by different versions; they are never read.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from pytest_spiral.chat import Message
from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.resources import read_json
from pytest_spiral.spiral.evidence import SourceText, located_finding
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Finding, Origin, behaviour_name
from pytest_spiral.spiral.simulator import rules_for, simulator_health
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.text import whole_characters

META = "__meta__"
SUMMARY = "scoring_summary"
# Thirty conversations are 4 MB; these limits leave room for a thousand and none for an attack.
_MAX_CONVERSATIONS = 20_000
_MAX_MESSAGES = 2_001
_MAX_FINDINGS = 1_200
_MAX_KEYS = 200
_MAX_POINTS = 1e9
_MAX_ERROR_CHARS = 2_000
_CHUNK_NAME = re.compile(r"chunk(\d{1,6})")
# Upstream's chunk 0 is assistant message 1: the reply to the opening is never judged.
_FIRST_TURN = 1


def _readable(value: object) -> object:
    """Text without halves of surrogate pairs, which have no UTF-8 form."""
    return whole_characters(value) if isinstance(value, str) else value


def _without_summaries(run: object) -> object:
    return {key: run[key] for key in run if key not in (META, SUMMARY)} if isinstance(run, dict) else run


def _quotes(findings: object) -> object:
    """A bare number claims points without quoting anything."""
    if isinstance(findings, bool) or not isinstance(findings, (int, float)):
        return findings
    if not abs(findings) <= _MAX_POINTS:
        raise ValueError(f"expected a number up to {_MAX_POINTS:g}, got {str(findings)[:40]}")
    return []


def _named(snippet: object) -> object:
    if isinstance(snippet, list) and len(snippet) == 2:
        return dict(zip(("snippet", "strength"), snippet, strict=True))
    if isinstance(snippet, dict):
        return snippet
    raise ValueError("expected a pair of snippet and strength")


_Text = Annotated[str, Field(max_length=2_000_000), BeforeValidator(_readable)]
_MessageText = Annotated[_Text, Field(max_length=1_000_000)]
_Name = Annotated[_Text, Field(max_length=1_000)]
_Number = Annotated[float, Field(ge=-_MAX_POINTS, le=_MAX_POINTS)]
_Points = Annotated[_Number, Field(ge=0)]
_Score = Annotated[_Number, Field(ge=0, le=10)]


class _Part(BaseModel):
    """A part of a file. Unknown keys are ignored; null is the same as a missing key."""

    model_config = ConfigDict(defer_build=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: object) -> object:
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


class _Message(_Part):
    role: Literal["system", "user", "assistant"]
    content: _MessageText = ""


class _Snippet(_Part):
    snippet: Annotated[_Text, Field(max_length=10_000)] = ""
    strength: _Number = 1


_Snippets = Annotated[
    list[Annotated[_Snippet, BeforeValidator(_named)]], Field(max_length=_MAX_FINDINGS), BeforeValidator(_quotes)
]


class _Chunk(_Part):
    metrics: Annotated[dict[_Text, _Points], Field(max_length=_MAX_KEYS)] | None = None
    full_metrics: Annotated[dict[_Text, _Snippets], Field(max_length=_MAX_KEYS)] = {}
    assistant_turn_indexes: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=_MAX_MESSAGES)] = []
    assistant_length_chars: _Number | None = None
    raw_text: _Text = ""
    error: object = None


class _Final(BaseModel):
    """Scores by metric, null where one is missing; or an error."""

    model_config = ConfigDict(defer_build=True, strict=True, extra="allow")
    __pydantic_extra__: dict[str, _Score | None]

    error: object = None


class _Entry(_Part):
    prompt_id: _Name = ""
    category: _Name = ""
    evaluated_model: _Name = ""
    judge_model: _Name = ""
    user_model: _Text = ""
    prompt_file: _Text = ""
    instruction_file: _Text = ""
    injection_file: _Text = ""
    user_system_prompt: _Text = ""
    evaluated_system_prompt: _Text = ""
    convo_index: Annotated[int, Field(ge=0, le=999_999)] = 0
    prompts: Annotated[list[_MessageText | None], Field(max_length=_MAX_MESSAGES)] = []
    transcript: Annotated[list[_Message], Field(max_length=_MAX_MESSAGES)] = []
    injections_log: Annotated[list[_Text | None], Field(max_length=_MAX_MESSAGES)] = []
    completed: bool = True
    errors: Annotated[list[object], Field(max_length=10_000)] = []
    judgements: Annotated[dict[str, _Chunk], Field(max_length=1_000)] = {}
    final_judgement: _Final | None = None

    @model_validator(mode="after")
    def _check_chunks(self) -> _Entry:
        replies = sum(message.role == "assistant" for message in self.transcript)
        seen: set[int] = set()
        for name, chunk in self.judgements.items():
            match = _CHUNK_NAME.fullmatch(name)
            if match is None:
                raise ValueError(f"judgements: expected chunk0, chunk1, ..., got {name[:60]!r}")
            if int(match[1]) in seen:
                raise ValueError(f"judgements: chunk {int(match[1])} occurs twice")
            seen.add(int(match[1]))
            if sum(map(len, chunk.full_metrics.values())) > _MAX_FINDINGS:
                raise ValueError(f"judgements.{name}.full_metrics: more than {_MAX_FINDINGS:,} findings")
            turns = chunk.assistant_turn_indexes
            if turns != sorted(set(turns)) or (turns and turns[-1] >= replies):
                expected = f"increasing numbers below {replies}, the number of assistant messages"
                raise ValueError(f"judgements.{name}.assistant_turn_indexes: expected {expected}")
        return self


_FILE: TypeAdapter[dict[str, dict[str, dict[str, list[_Entry]]]]] = TypeAdapter(
    dict[str, Annotated[dict[str, dict[str, list[_Entry]]], BeforeValidator(_without_summaries)]],
    config=ConfigDict(defer_build=True),
)


def load_upstream(path: Path | str, num_turns: int | None = None) -> tuple[Conversation, ...]:
    """Read all conversations of an upstream result file; every quote is located in the reply it is about.

    A conversation with too few turns was cut short and is `instrument_failed`, though upstream stores it as completed,
    and so is one whose simulated user collapsed; one that upstream itself calls not completed is `not_run`.

    Args:
        path: The file.
        num_turns: Assistant messages of a whole conversation; by default as many as the longest one of its run and
            file has.

    Raises:
        DataError: The file holds anything else; the message names file and key path.
    """
    path = Path(path)
    try:
        runs = _FILE.validate_python(read_json(path, strict=True))
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error)}") from None
    conversations: list[Conversation] = []
    for run_id, files in runs.items():
        for file_key, prompts in files.items():
            stored = [(prompt_key, entry) for prompt_key, entries in prompts.items() for entry in entries]
            if len(conversations) + len(stored) > _MAX_CONVERSATIONS:
                fault = f"more than {_MAX_CONVERSATIONS:,} conversations in one file"
                raise DataError(f"{path}: {run_id}.{file_key}: {fault}")
            group = [_conversation(entry, run_id, file_key, prompt_key) for prompt_key, entry in stored]
            whole = max((len(item.replies) for item in group), default=0) if num_turns is None else num_turns
            conversations += [_with_status(item, max(whole, 1)) for item in group]
    if not conversations:
        fault = "no conversation in it; upstream's files map run id, prompt file and prompt id to lists"
        raise DataError(f"{path}: {fault}")
    return tuple(conversations)


def _conversation(entry: _Entry, run_id: str, file_key: str, prompt_key: str) -> Conversation:
    """One conversation with the status that the file states; `measured` where it leaves that open."""
    status, reason = Status.MEASURED, None
    if entry.errors:
        error = entry.errors[0] if isinstance(entry.errors[0], str) else json.dumps(entry.errors[0])
        status, reason = _parse_status(error)
    elif not entry.completed:
        status, reason = Status.NOT_RUN, Reason(ReasonCode.CUT_SHORT, "not completed")
    prompt_id = entry.prompt_id or prompt_key
    transcript = tuple(Message(message.role, message.content) for message in entry.transcript)
    return Conversation(
        prompt_id=prompt_id,
        category=entry.category,
        model=entry.evaluated_model,
        index=entry.convo_index,
        status=status,
        reason=reason,
        prompts=tuple(entry.prompts),
        transcript=transcript,
        injections_log=tuple(note or "" for note in entry.injections_log),
        judgements=_judgements(entry, transcript),
        finals=_finals(entry),
        origin=Origin(
            run_id=run_id,
            file_key=file_key,
            prompt_key="" if prompt_key == prompt_id else prompt_key,
            prompt_file=entry.prompt_file,
            instruction_file=entry.instruction_file,
            injection_file=entry.injection_file,
            user_model=entry.user_model,
            user_system_prompt=entry.user_system_prompt,
            evaluated_system_prompt=entry.evaluated_system_prompt,
        ),
    )


def _with_status(conversation: Conversation, whole: int) -> Conversation:
    """The conversation with the status that its transcript shows. whole: replies of a whole conversation."""
    if conversation.status is not Status.MEASURED:
        return conversation
    turns = len(conversation.replies)
    reason = None
    if turns < whole:
        error = f"; {conversation.reason.detail}" if conversation.reason else ""
        reason = Reason(ReasonCode.CUT_SHORT, f"{turns} of {whole} turns{error}")
    else:
        rules = rules_for(conversation.origin.user_system_prompt)
        if collapse := simulator_health(conversation.transcript, conversation.prompts, rules).collapse:
            reason = Reason(ReasonCode.SIMULATOR_COLLAPSED, collapse)
    return replace(conversation, status=Status.INSTRUMENT_FAILED if reason else Status.MEASURED, reason=reason)


def _judgements(entry: _Entry, transcript: Sequence[Message]) -> tuple[ChunkJudgement, ...]:
    replies: list[SourceText] = []
    # Each user message has the number of the reply it precedes.
    user_texts: list[SourceText] = []
    for message in transcript:
        if message.role == "assistant":
            replies.append(SourceText(len(replies), message.content))
        elif message.role == "user":
            user_texts.append(SourceText(len(replies), message.content))
    chunks = {int(name.removeprefix("chunk")): chunk for name, chunk in entry.judgements.items()}
    stated = {index: chunk.assistant_turn_indexes for index, chunk in chunks.items() if chunk.assistant_turn_indexes}
    size = max(map(len, stated.values()), default=1)
    start = min((turns[0] - index * size for index, turns in stated.items()), default=_FIRST_TURN)
    judgements = []
    for index, chunk in sorted(chunks.items()):
        # An error stub names no turns: they continue from its neighbours.
        first = max(0, start + index * size)
        turns = tuple(stated.get(index) or range(first, min(first + size, len(replies))))
        if chunk.metrics is None:
            reason = _error(chunk.error, "no metrics stored")
            judgements.append(ChunkJudgement(index, turns, entry.judge_model, Status.INSTRUMENT_FAILED, reason))
            continue
        points: dict[str, float] = {}
        for key, value in chunk.metrics.items():
            points[_metric_key(key)] = points.get(_metric_key(key), 0.0) + value
        judged = [replies[turn] for turn in turns]
        before = [text for text in user_texts if turns and text.turn <= turns[-1]]
        findings = _findings(chunk, judged, before, entry.judge_model)
        judgement = ChunkJudgement(
            index=index,
            turns=turns or (0,),
            judge=entry.judge_model,
            behaviours=tuple(dict.fromkeys(behaviour_name(key) for key in points)),
            findings=findings,
            chars=chunk.assistant_length_chars,
            stated=points,
            unquoted=_unquoted(points, findings),
            raw_text=chunk.raw_text,
        )
        judgements.append(judgement)
    return tuple(judgements)


def _findings(
    chunk: _Chunk, replies: Sequence[SourceText], user_texts: Sequence[SourceText], judge: str
) -> tuple[Finding, ...]:
    """Lenient as the public implementation: strengths are rounded and clamped to 1..3, empty snippets dropped."""
    findings = []
    for key, snippets in chunk.full_metrics.items():
        behaviour = behaviour_name(key)
        for entry in snippets:
            quote, strength = entry.snippet, min(3, max(1, round(entry.strength)))
            if quote.strip() and replies:
                findings.append(located_finding(behaviour, quote, strength, judge, replies, user_texts))
            elif quote.strip():
                findings.append(Finding(0, behaviour, quote, strength, judge))
    return tuple(findings)


def _unquoted(stated: Mapping[str, float], findings: Sequence[Finding]) -> int:
    """How many behaviours claim more points than their quotes carry."""
    claimed: dict[str, float] = defaultdict(float)
    quoted: dict[str, float] = defaultdict(float)
    for key, points in stated.items():
        claimed[behaviour_name(key)] += points
    for finding in findings:
        quoted[finding.behaviour] += finding.strength
    return sum(points > quoted[name] for name, points in claimed.items())


def _finals(entry: _Entry) -> tuple[FinalJudgement, ...]:
    final = entry.final_judgement
    if final is None:
        return ()
    scores = final.model_extra or {}
    if "error" in final.model_fields_set or not scores:
        reason = _error(final.error, "no scores stored")
        return (FinalJudgement(entry.judge_model, Status.INSTRUMENT_FAILED, reason),)
    known = {_metric_key(key): score for key, score in scores.items() if score is not None}
    return (FinalJudgement(entry.judge_model, scores=known),)


def _metric_key(key: str) -> str:
    """A metric's key as upstream's aggregation sees it: snake case, hyphens kept ("de escalation" is another one)."""
    return key.strip().lower().replace(" ", "_")


def _error(error: object, default: str) -> Reason:
    if isinstance(error, str):
        return Reason.parse(whole_characters(error)[:_MAX_ERROR_CHARS])
    return Reason(ReasonCode.IMPORTED_ERROR, default)


def _parse_status(text: str) -> tuple[Status, Reason | None]:
    """Read what `_status_text` wrote. Anything else is an imported error and leaves the status open (`measured`)."""
    text = whole_characters(text)[:_MAX_ERROR_CHARS]
    state, _, reason = text.partition(": ")
    if state in list(Status) and state != Status.MEASURED:
        return Status(state), Reason.parse(reason) if reason else None
    return Status.MEASURED, Reason(ReasonCode.IMPORTED_ERROR, text)
