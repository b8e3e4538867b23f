"""The judges' health: did every judge judge every turn once, readably, and quote words of the reply?

A judge that cannot be read leaves gaps, which are missing and never zero. This is about the ones that can be read and
still are none: silent over whole conversations, quoting what nobody said, giving everybody the same. Such a judge stops
publication, and where its numbers mean nothing, the verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations

from pytest_spiral.report.model.judges import JudgedTurns, JudgeHealth
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.chunks import chunk_transcript
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import ReasonCode, Status
from pytest_spiral.tables import PerMille, Positive, Table, read_table


class _Limits(Table):
    silent_after: Positive
    unlocated_at_most: PerMille
    unlocated_no_verdict: PerMille
    findings_at_least: Positive
    constant_after: Positive
    anchors_overlooked_at_most: PerMille
    anchors_at_least: Positive


class _Judges(Table):
    refused: tuple[ReasonCode, ...]
    unreadable: tuple[ReasonCode, ...]
    limits: _Limits
    families: dict[str, tuple[str, ...]]


@cache
def load_judge_limits() -> _Judges:
    """Limits and families, as `judges.toml` has them."""
    return read_table(_Judges, data_root() / "spiral" / "judges.toml")


def faults(judge: str, health: JudgeHealth) -> Iterator[str]:
    """Why no score with this judge should be published."""
    limits = load_judge_limits().limits
    if health.silent:
        yield f"J01 the judge {judge} found nothing in any of {health.chunks} chunks"
    if _is_unlocated_beyond(health, limits.unlocated_at_most):
        yield f"J02 the judge {judge} quotes words that nobody said in {health.unlocated} of {health.findings} findings"
    if health.constant:
        yield f"J03 the judge {judge} gave all {health.finals} conversations the same closing scores"
    if odd := health.ledger.more_than_once + health.ledger.unexpected:
        yield f"J04 the judge {judge} judged {odd} turns twice or without being asked"


def leaves_no_verdict(health: JudgeHealth) -> bool:
    """Whether numbers from this judge mean nothing."""
    return health.silent or _is_unlocated_beyond(health, load_judge_limits().limits.unlocated_no_verdict)


def _is_unlocated_beyond(health: JudgeHealth, limit: int) -> bool:
    enough = health.findings >= load_judge_limits().limits.findings_at_least
    return enough and 1000 * health.unlocated > limit * health.findings


def judge_health(judge: str, conversations: Sequence[Conversation], protocol: Protocol) -> JudgeHealth:
    """What can be said about one judge, named as its judgements name it."""
    shipped = load_judge_limits()
    limits = shipped.limits
    own = [j for conversation in conversations for j in conversation.judgements if j.judge == judge]
    readable = [j for j in own if j.status is Status.MEASURED]
    findings = [finding for j in readable for finding in j.findings]
    finals = [
        final
        for conversation in conversations
        for final in conversation.finals
        if final.judge == judge and final.status is Status.MEASURED
    ]
    codes = [j.reason.code if j.reason else None for j in own if j.status is not Status.MEASURED]
    repairs = Counter(repair for j in readable for repair in j.repairs)
    repairs.update(repair for final in finals for repair in final.repairs)
    refused, unreadable = (sum(code in kind for code in codes) for kind in (shipped.refused, shipped.unreadable))
    return JudgeHealth(
        chunks=len(own),
        refused=refused,
        unreadable=unreadable,
        unanswered=len(codes) - refused - unreadable,
        empty=sum(not j.findings and not any((j.stated or {}).values()) for j in readable),
        findings=len(findings),
        unlocated=sum(finding.evidence == "unlocated" for finding in findings),
        of_user=sum(finding.evidence == "unlocated" and finding.in_user_text for finding in findings),
        echoes=sum(finding.evidence != "unlocated" and finding.in_user_text for finding in findings),
        finals=len(finals),
        repairs=dict(sorted(repairs.items())),
        silent=not findings and len(readable) >= limits.silent_after,
        constant=len(finals) >= limits.constant_after and len({tuple(sorted(f.scores.items())) for f in finals}) == 1,
        ledger=_ledger(judge, conversations, protocol),
    )


def _ledger(judge: str, conversations: Sequence[Conversation], protocol: Protocol) -> JudgedTurns:
    counts: Counter[str] = Counter()
    for conversation in conversations:
        if conversation.status is not Status.MEASURED:
            continue
        expected = {turn for chunk in chunk_transcript(conversation.transcript, protocol) for turn in chunk.turns}
        judged = Counter(turn for j in conversation.judgements if j.judge == judge for turn in j.turns)
        counts["turns"] += len(expected)
        counts["once"] += sum(judged[turn] == 1 for turn in expected)
        counts["never"] += sum(not judged[turn] for turn in expected)
        counts["more_than_once"] += sum(judged[turn] > 1 for turn in expected)
        counts["unexpected"] += len(set(judged) - expected)
    return JudgedTurns(**{name: counts[name] for name in JudgedTurns.model_fields})


def family_of(model: str) -> str | None:
    """The family of a model by its name, None where it is not known.

    >>> family_of("moonshotai/kimi-k2"), family_of("openrouter/openai/gpt-5"), family_of("my-model")
    ('moonshot', 'openai', None)
    """
    parts = [part.lower() for part in model.split("/")]
    if parts[0] == "dry":
        return None
    for part in reversed(parts):
        for family, beginnings in load_judge_limits().families.items():
            if part.startswith(beginnings):
                return family
    return None


def overlaps(actors: Sequence[tuple[str, str]]) -> list[str]:
    """Warnings about actors, each a role and a model, of which two are of one family or the same."""
    warnings = []
    for (role, model), (other_role, other) in combinations(actors, 2):
        if role == other_role:
            continue
        family = family_of(model)
        if model == other:
            warnings.append(f"the {other_role} is the {role}, {model}")
        elif family is not None and family == family_of(other):
            warnings.append(f"the {other_role} {other} is of the {role}'s family, {family}")
    return warnings
