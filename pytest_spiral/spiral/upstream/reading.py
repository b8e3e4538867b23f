"""Reading result files with suspicion: types, sizes and depth are limited, and every complaint names the key.

The summaries stored in such files were made by different versions; they are never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pytest_spiral.chat import Message
from pytest_spiral.spiral.evidence import SourceText, located_finding
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Finding, Origin, behaviour_name
from pytest_spiral.spiral.simulator import rules_for, simulator_health
from pytest_spiral.spiral.upstream.document import META, SUMMARY, Node, parse_reason, parse_status, read_document
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.text import whole_characters

# Thirty conversations are 4 MB; these limits leave room for a thousand and none for an attack.
MAX_CONVERSATIONS = 20_000
MAX_MESSAGES = 2_001
MAX_MESSAGE_CHARS = 1_000_000
MAX_CHUNKS = 1_000
MAX_ERRORS = 10_000
MAX_NAME_CHARS = 1_000
MAX_POINTS = 1e9
MAX_FINDINGS = 1_200
MAX_QUOTE_CHARS = 10_000

_CHUNK_NAME = re.compile(r"chunk(\d{1,6})")
_ROLES: Mapping[object, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
}
# Upstream's chunk 0 is assistant message 1: the reply to the opening is never judged.
_FIRST_TURN = 1


def upstream_key(key: str) -> str:
    """A metric's key as upstream's aggregation sees it: snake case, hyphens kept ("de escalation" is another one)."""
    return key.strip().lower().replace(" ", "_")


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
    root = read_document(Path(path))
    conversations: list[Conversation] = []
    for run_id, run in root.members(MAX_CONVERSATIONS).items():
        for file_key, prompts in run.members(MAX_CONVERSATIONS).items():
            if file_key in (META, SUMMARY):
                continue
            room = MAX_CONVERSATIONS - len(conversations)
            group = [_conversation(entry, run_id, file_key, prompt) for prompt, entry in _entries(prompts, room)]
            whole = num_turns if num_turns is not None else max((len(item.replies) for item in group), default=0)
            conversations += [_with_status(item, max(whole, 1)) for item in group]
    if not conversations:
        raise root.fault("no conversation in it; upstream's files map run id, prompt file and prompt id to lists")
    return tuple(conversations)


def _entries(prompts: Node, room: int) -> Iterator[tuple[str, Node]]:
    """Conversations of one prompt file with the key of their prompt."""
    for prompt_key, node in prompts.members(MAX_CONVERSATIONS).items():
        if node.is_null:
            raise node.fault("expected a list, got null")
        for entry in node.entries(MAX_CONVERSATIONS):
            if room <= 0:
                raise prompts.fault(f"more than {MAX_CONVERSATIONS:,} conversations in one file")
            room -= 1
            yield prompt_key, entry


def _conversation(entry: Node, run_id: str, file_key: str, prompt_key: str) -> Conversation:
    entry.members()
    prompt_id = entry.get("prompt_id").text(MAX_NAME_CHARS) or prompt_key
    transcript = tuple(_message(message) for message in entry.get("transcript").entries(MAX_MESSAGES))
    judge = entry.get("judge_model").text(MAX_NAME_CHARS)
    index = entry.get("convo_index")
    status, reason = _stated_status(entry)
    return Conversation(
        prompt_id=prompt_id,
        category=entry.get("category").text(MAX_NAME_CHARS),
        model=entry.get("evaluated_model").text(MAX_NAME_CHARS),
        index=0 if index.is_null else index.index(999_999),
        status=status,
        reason=reason,
        prompts=tuple(
            None if prompt.is_null else prompt.text(MAX_MESSAGE_CHARS)
            for prompt in entry.get("prompts").entries(MAX_MESSAGES)
        ),
        transcript=transcript,
        injections_log=tuple(note.text() for note in entry.get("injections_log").entries(MAX_MESSAGES)),
        judgements=_judgements(entry.get("judgements"), transcript, judge),
        finals=_finals(entry.get("final_judgement"), judge),
        origin=Origin(
            run_id=run_id,
            file_key=file_key,
            prompt_key="" if prompt_key == prompt_id else prompt_key,
            prompt_file=entry.get("prompt_file").text(),
            instruction_file=entry.get("instruction_file").text(),
            injection_file=entry.get("injection_file").text(),
            user_model=entry.get("user_model").text(),
            user_system_prompt=entry.get("user_system_prompt").text(),
            evaluated_system_prompt=entry.get("evaluated_system_prompt").text(),
        ),
    )


def _message(entry: Node) -> Message:
    role = entry.get("role")
    if not isinstance(role.value, str) or role.value not in _ROLES:
        raise role.fault(f"expected system, user or assistant, got {str(role.value)[:40]!r}")
    return Message(_ROLES[role.value], entry.get("content").text(MAX_MESSAGE_CHARS))


def _stated_status(entry: Node) -> tuple[Status, Reason | None]:
    """What the file says; `measured` where it leaves the status open."""
    completed = entry.get("completed").flag()
    errors = entry.get("errors").entries(MAX_ERRORS)
    if errors:
        first = errors[0].value
        return parse_status(first if isinstance(first, str) else json.dumps(first))
    if completed is False:
        return Status.NOT_RUN, Reason(ReasonCode.CUT_SHORT, "not completed")
    return Status.MEASURED, None


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
        collapse = simulator_health(conversation.transcript, conversation.prompts, rules).collapse
        reason = Reason(ReasonCode.SIMULATOR_COLLAPSED, collapse) if collapse else None
    status = Status.INSTRUMENT_FAILED if reason else Status.MEASURED
    return replace(conversation, status=status, reason=reason)


def _judgements(chunks: Node, transcript: Sequence[Message], judge: str) -> tuple[ChunkJudgement, ...]:
    if chunks.is_null:
        return ()
    replies = [message.content for message in transcript if message.role == "assistant"]
    user_texts = _user_texts(transcript)
    entries = _by_index(chunks)
    stated = {index: _stated_turns(entry, len(replies)) for index, entry in entries.items()}
    known = {index: turns for index, turns in stated.items() if turns}
    size = max((len(turns) for turns in known.values()), default=1)
    start = min((turns[0] - index * size for index, turns in known.items()), default=_FIRST_TURN)
    judgements = []
    for index, entry in sorted(entries.items()):
        # An error stub names no turns: they continue from its neighbours.
        first = max(0, start + index * size)
        turns = stated[index] or tuple(turn for turn in range(first, first + size) if turn < len(replies))
        judgements.append(_judgement(entry, index, turns, replies, user_texts, judge))
    return tuple(judgements)


def _by_index(chunks: Node) -> dict[int, Node]:
    entries: dict[int, Node] = {}
    for name, entry in chunks.members(MAX_CHUNKS).items():
        match = _CHUNK_NAME.fullmatch(name)
        if match is None:
            raise chunks.fault(f"expected chunk0, chunk1, ..., got {name[:60]!r}")
        if int(match[1]) in entries:
            raise chunks.fault(f"chunk {int(match[1])} occurs twice")
        entries[int(match[1])] = entry
    return entries


def _user_texts(transcript: Sequence[Message]) -> list[SourceText]:
    """User messages, each with the number of the reply it precedes."""
    texts, turn = [], 0
    for message in transcript:
        if message.role == "user":
            texts.append(SourceText(turn, message.content))
        turn += message.role == "assistant"
    return texts


def _stated_turns(entry: Node, replies: int) -> tuple[int, ...]:
    named = entry.get("assistant_turn_indexes")
    turns = tuple(turn.index(MAX_MESSAGES) for turn in named.entries(MAX_MESSAGES))
    if any(turn >= replies for turn in turns) or list(turns) != sorted(set(turns)):
        raise named.fault(f"expected increasing numbers below {replies}, the number of assistant messages")
    return turns


def _judgement(
    entry: Node,
    index: int,
    turns: tuple[int, ...],
    replies: Sequence[str],
    user_texts: Sequence[SourceText],
    judge: str,
) -> ChunkJudgement:
    metrics = entry.get("metrics")
    if metrics.is_null:
        reason = _error(entry, "no metrics stored")
        return ChunkJudgement(index, turns, judge, Status.INSTRUMENT_FAILED, reason)
    stated: dict[str, float] = {}
    for key, points in metrics.members().items():
        name = upstream_key(whole_characters(key))
        stated[name] = stated.get(name, 0.0) + points.number(0, MAX_POINTS)
    judged = [SourceText(turn, replies[turn]) for turn in turns]
    before = [text for text in user_texts if turns and text.turn <= turns[-1]]
    findings = stored_findings(entry.get("full_metrics"), judged, before, judge)
    chars = entry.get("assistant_length_chars")
    return ChunkJudgement(
        index=index,
        turns=turns or (0,),
        judge=judge,
        behaviours=tuple(dict.fromkeys(behaviour_name(key) for key in stated)),
        findings=findings,
        chars=None if chars.is_null else chars.number(-MAX_POINTS, MAX_POINTS),
        stated=stated,
        unquoted=_unquoted(stated, findings),
        raw_text=entry.get("raw_text").text(),
    )


def stored_findings(
    full_metrics: Node, replies: Sequence[SourceText], user_texts: Sequence[SourceText], judge: str
) -> tuple[Finding, ...]:
    """Read `full_metrics`: per behaviour a list of `[snippet, strength]` or `{snippet, strength}`.

    Lenient as the public implementation: strengths are rounded and clamped to 1..3, empty snippets dropped. A bare
    number is a claim without quotes. Without replies no quote is located.
    """
    findings: list[Finding] = []
    for key, node in ({} if full_metrics.is_null else full_metrics.members()).items():
        behaviour = behaviour_name(key)
        if isinstance(node.value, (int, float)):
            node.number(-MAX_POINTS, MAX_POINTS)
            continue
        if node.is_null:
            raise node.fault("expected a list, got null")
        for entry in node.entries(MAX_FINDINGS - len(findings)):
            quote, strength = _quote_and_strength(entry)
            if quote.strip() and replies:
                findings.append(located_finding(behaviour, quote, strength, judge, replies, user_texts))
            elif quote.strip():
                findings.append(Finding(0, behaviour, quote, strength, judge))
    return tuple(findings)


def _quote_and_strength(entry: Node) -> tuple[str, int]:
    if isinstance(entry.value, list) and len(entry.value) == 2:
        quote, strength = entry.entries(2)
    elif isinstance(entry.value, dict):
        quote, strength = entry.get("snippet"), entry.get("strength")
    else:
        raise entry.fault("expected a pair of snippet and strength")
    points = 1.0 if strength.is_null else strength.number(-MAX_POINTS, MAX_POINTS)
    return quote.text(MAX_QUOTE_CHARS), int(min(3, max(1, round(points))))


def _error(entry: Node, default: str) -> Reason:
    error = entry.get("error").value
    return parse_reason(error) if isinstance(error, str) else Reason(ReasonCode.IMPORTED_ERROR, default)


def _unquoted(stated: Mapping[str, float], findings: Sequence[Finding]) -> int:
    """How many behaviours claim more points than their quotes carry."""
    quoted: dict[str, float] = {}
    for finding in findings:
        quoted[finding.behaviour] = quoted.get(finding.behaviour, 0.0) + finding.strength
    claimed: dict[str, float] = {}
    for key, points in stated.items():
        claimed[behaviour_name(key)] = claimed.get(behaviour_name(key), 0.0) + points
    return sum(points > quoted.get(name, 0.0) for name, points in claimed.items())


def _finals(final: Node, judge: str) -> tuple[FinalJudgement, ...]:
    if final.is_null:
        return ()
    members = final.members()
    if "error" in members or not members:
        return (FinalJudgement(judge, Status.INSTRUMENT_FAILED, _error(final, "no scores stored")),)
    scores = {upstream_key(key): score.number(0, 10) for key, score in members.items() if not score.is_null}
    return (FinalJudgement(judge, scores=scores),)
