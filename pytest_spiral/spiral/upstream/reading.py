"""Reading result files: from what may stand in one (`shape`) to conversations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

from pytest_spiral.chat import Message
from pytest_spiral.errors import DataError, key_path
from pytest_spiral.resources import naming_faults, read_json
from pytest_spiral.spiral.evidence import SourceText, located_finding
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Finding, Origin, behaviour_name
from pytest_spiral.spiral.simulator import rules_for, simulator_health
from pytest_spiral.spiral.upstream.shape import FILE, Chunks, Final, StoredChunk, StoredConversation
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.text import whole_characters

_MAX_CONVERSATIONS = 20_000
# A judge who has no entry for a chunk has a judgement of it all the same.
_MAX_JUDGEMENTS = 2_000_000
_MAX_ERROR_CHARS = 2_000
# What an origin and an entry call alike.
_SAME = {field.name for field in fields(Origin)} & StoredConversation.model_fields.keys()
# Upstream's chunk 0 is assistant message 1: the reply to the opening is never judged.
_FIRST_TURN = 1
_NO_ENTRY = Reason(ReasonCode.NOT_JUDGED, "other judges have an entry for this chunk, this one has none")


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
    with naming_faults(path):
        runs = FILE.validate_python(read_json(path, strict=True))
    conversations: list[Conversation] = []
    judgements = 0
    for run_id, run in runs.items():
        judges = run.judges
        for file_key, prompts in run.files.items():
            stored = [(key, number, entry) for key, entries in prompts.items() for number, entry in enumerate(entries)]
            judgements += max(len(judges), 1) * sum(len(chunks) for *_, entry in stored for chunks in entry.maps)
            for n, limit, what in (
                (len(conversations) + len(stored), _MAX_CONVERSATIONS, "conversations"),
                (judgements, _MAX_JUDGEMENTS, "judgements"),
            ):
                if n > limit:
                    raise DataError(f"{path}: {key_path((run_id, file_key))}: more than {limit:,} {what} in one file")
            group = []
            for prompt_key, number, entry in stored:
                try:
                    by_judge = entry.by_judge(judges)
                except ValueError as error:
                    place = key_path((run_id, file_key, prompt_key, number))
                    raise DataError(f"{path}: {place}.{error}") from None
                group.append(_conversation(entry, Origin(run_id, file_key, prompt_key, judges=judges), *by_judge))
            whole = max((len(item.replies) for item in group), default=0) if num_turns is None else num_turns
            conversations += [_with_status(item, max(whole, 1)) for item in group]
    if not conversations:
        fault = "no conversation in it; upstream's files map run id, prompt file and prompt id to lists"
        raise DataError(f"{path}: {fault}")
    return tuple(conversations)


def _conversation(
    entry: StoredConversation,
    place: Origin,
    chunks: Sequence[tuple[str, Chunks]],
    finals: Sequence[tuple[str, Final | None]],
) -> Conversation:
    """One conversation with the status that the file states; `measured` where it leaves that open.

    place: in the file. chunks, finals: of each judge.
    """
    status, reason = Status.MEASURED, None
    if entry.errors:
        error = entry.errors[0] if isinstance(entry.errors[0], str) else json.dumps(entry.errors[0])
        status, reason = _parse_status(error)
    elif not entry.completed:
        status, reason = Status.NOT_RUN, Reason(ReasonCode.CUT_SHORT, "not completed")
    prompt_id = entry.prompt_id or place.prompt_key
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
        judgements=tuple(_judgements(chunks, transcript)),
        finals=tuple(_final(judge, final) for judge, final in finals),
        origin=replace(
            place,
            prompt_key="" if place.prompt_key == prompt_id else place.prompt_key,
            **{name: getattr(entry, name) for name in _SAME},
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


def _judgements(by_judge: Sequence[tuple[str, Chunks]], transcript: Sequence[Message]) -> Iterator[ChunkJudgement]:
    """Chunk by chunk the judgements of all judges; where some judged and others have no entry, those have failed."""
    replies: list[SourceText] = []
    # Each user message has the number of the reply it precedes.
    user_texts: list[SourceText] = []
    for message in transcript:
        if message.role == "assistant":
            replies.append(SourceText(len(replies), message.content))
        elif message.role == "user":
            user_texts.append(SourceText(len(replies), message.content))
    chunks: dict[int, dict[str, StoredChunk]] = defaultdict(dict)
    stated: dict[int, Sequence[int]] = {}
    for judge, judged in by_judge:
        for name, chunk in judged.items():
            index = int(name.removeprefix("chunk"))
            chunks[index][judge] = chunk
            if chunk.assistant_turn_indexes:
                stated[index] = chunk.assistant_turn_indexes
    size = max(map(len, stated.values()), default=1)
    start = min((turns[0] - index * size for index, turns in stated.items()), default=_FIRST_TURN)
    for index in sorted(chunks):
        # An error stub names no turns: they continue from its neighbours.
        first = max(0, start + index * size)
        turns = tuple(stated.get(index) or range(first, min(first + size, len(replies))))
        judged_replies = [replies[turn] for turn in turns]
        before = [text for text in user_texts if turns and text.turn <= turns[-1]]
        for judge, _ in by_judge:
            if own := chunks[index].get(judge):
                yield _judgement(own, ChunkJudgement(index, turns, judge), judged_replies, before)
            else:
                yield ChunkJudgement(index, turns, judge, Status.INSTRUMENT_FAILED, _NO_ENTRY)


def _judgement(
    chunk: StoredChunk, place: ChunkJudgement, replies: Sequence[SourceText], user_texts: Sequence[SourceText]
) -> ChunkJudgement:
    """One judge's judgement. place: one that says whose it is, and of what."""
    if chunk.metrics is None:
        reason = _error(chunk.error, "no metrics stored")
        return replace(place, status=Status.INSTRUMENT_FAILED, reason=reason)
    points: dict[str, float] = defaultdict(float)
    claimed: dict[str, float] = defaultdict(float)
    quoted: dict[str, float] = defaultdict(float)
    for key, value in chunk.metrics.items():
        # As upstream's aggregation sees it: hyphens are kept ("de escalation" is another key).
        points[key.strip().lower().replace(" ", "_")] += value
        claimed[behaviour_name(key)] += value
    findings = _findings(chunk, replies, user_texts, place.judge)
    for finding in findings:
        quoted[finding.behaviour] += finding.strength
    return replace(
        place,
        turns=place.turns or (0,),
        behaviours=tuple(claimed),
        findings=findings,
        chars=chunk.assistant_length_chars,
        stated=dict(points),
        unquoted=sum(value > quoted[name] for name, value in claimed.items()),
        raw_text=chunk.raw_text,
        called_for=chunk.called_for,
    )


def _findings(
    chunk: StoredChunk, replies: Sequence[SourceText], user_texts: Sequence[SourceText], judge: str
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


def _final(judge: str, final: Final | None) -> FinalJudgement:
    """One judge's closing scores; null where it gave none."""
    if final is None or "error" in final.model_fields_set or not final.model_extra:
        reason = _error(final.error if final else None, "no scores stored")
        return FinalJudgement(judge, Status.INSTRUMENT_FAILED, reason)
    known = {behaviour_name(key): score for key, score in final.model_extra.items() if score is not None}
    return FinalJudgement(judge, scores=known)


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
