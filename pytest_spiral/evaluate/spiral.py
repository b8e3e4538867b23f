"""The Spiral-Bench part of the report: scores and conversations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import inf
from typing import Any

from pytest_spiral.chat import Message
from pytest_spiral.evaluate.judges import JudgeCalibration, judges_json
from pytest_spiral.gates import Scale
from pytest_spiral.spiral.aggregate import conversation_scores, score_conversations
from pytest_spiral.spiral.calibration import Calibration
from pytest_spiral.spiral.consensus import merge_finals
from pytest_spiral.spiral.over_correction import over_correction
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation, conversation_from_json, conversation_to_json
from pytest_spiral.spiral.score import Score, score_to_json
from pytest_spiral.spiral.simulator import (
    RuleSet,
    SimulatorHealth,
    load_limits,
    rules_for,
    simulator_health,
)
from pytest_spiral.spiral.suspicion import suspicions
from pytest_spiral.stats import variance_json
from pytest_spiral.status import Reason, ReasonCode, Status

__all__ = [
    "SpiralContext",
    "conversation_from_report",
    "conversation_json",
    "score_json",
    "spiral_metric_scales",
]

_REMEMBERED = 1024
# What a reader finds in one place and the record holds in several.
_DERIVED = ("id", "findings", "final_judgement", "simulator", "suspicions")


@dataclass(frozen=True, slots=True)
class SpiralContext:
    """What a score says about the circumstances of its run.

    foreign: why the conversations are not those of the shipped suite, None where they are.
    actors: role and name of everybody at the table. calibrated: what a calibration in this run found.
    stand_ins: role and name of every built-in actor. small: role and name of every model too small to be what it plays.
    """

    protocol: Protocol
    seed: int
    stand_ins: Sequence[tuple[str, str]]
    small: Sequence[tuple[str, str]]
    judges: Sequence[str]
    foreign: str | None
    actors: Sequence[tuple[str, str]] = ()
    calibrated: JudgeCalibration | None = None

    @property
    def calibration(self) -> Calibration | None:
        """What is known of the judges, for gates on single behaviours."""
        return self.calibrated.run.record if self.calibrated else None


def score_json(model: str, conversations: Sequence[Conversation], context: SpiralContext) -> dict[str, Any]:
    """The score of a model, as it stands in the report. Never a number where nothing was measured."""
    score = score_conversations(conversations, context.protocol, seed=context.seed)
    found = score_to_json(score)
    health = _simulator(conversations)
    own = [talk for talk in conversations if not talk.twin_of]
    actors = [(role, name) for role, name in context.actors if role != "evaluated model"]
    judges = judges_json(
        conversations,
        context.judges,
        [("evaluated model", model), *actors],
        context.protocol,
        context.seed,
        context.calibrated,
    )
    blockers = [
        *_blockers(model, score, own, context),
        *_simulator_blockers(health),
        *judges["health"]["faults"],
    ]
    if judges["health"]["no_verdict"]:
        # What such a judge leaves is no composite, however good it looks.
        found |= dict.fromkeys(("score", "unrounded", "ci_low", "ci_high"))
    return {
        **found,
        "model": model,
        "variance": variance_json(conversation_scores(own, context.protocol), "--convos-per-prompt"),
        "judges": judges,
        "over_correction": over_correction(conversations, context.seed),
        "simulator_health": health,
        "counts": count_by_status(own),
        "blockers": blockers,
        "publication_ready": not blockers,
    }


def _simulator(conversations: Sequence[Conversation]) -> dict[str, Any]:
    """How the user model played: lengths of its messages in characters, remarks on them by rule, messages that count
    against publication (`broken`), simulations that collapsed, conversations lost to a collapse or for want of a
    message."""
    healths = [_health(conversation) for conversation in conversations]
    lengths = sorted(length for conversation in conversations for length in _generated(conversation))
    given_up = [reason.detail for conversation in conversations for reason in conversation.given_up]
    lost = [health.collapse for health in healths if health.collapse]
    mute = [
        conversation.reason.detail
        for conversation in conversations
        if conversation.reason and conversation.reason.code is ReasonCode.NO_USER_MESSAGE
    ]
    messages = sum(health.messages for health in healths)
    flagged = sum(health.flagged for health in healths)
    held = sum(bool(conversation.transcript) for conversation in conversations)
    return {
        "messages": messages,
        "median_chars": lengths[len(lengths) // 2] if lengths else None,
        "longest_chars": lengths[-1] if lengths else None,
        "flagged": flagged,
        "flagged_share": flagged / messages if messages else None,
        "broken": sum(health.breaking(load_limits().publication.against) for health in healths),
        "rules": dict(sorted(Counter(flag.rule for health in healths for flag in health.flags).items())),
        "simulations": held + len(given_up),
        "collapsed": len(given_up) + len(lost),
        "lost": len(lost),
        "no_message": len(mute),
        "reasons": sorted({*given_up, *lost, *mute}),
    }


def _health(conversation: Conversation) -> SimulatorHealth:
    rules = rules_for(conversation.origin.user_system_prompt)
    return _read(conversation.transcript, conversation.prompts, rules)


@lru_cache(maxsize=_REMEMBERED)
def _read(transcript: tuple[Message, ...], prompts: tuple[str | None, ...], rules: RuleSet) -> SimulatorHealth:
    """What there is to say about a seeker, for its model's score and for its conversation."""
    return simulator_health(transcript, prompts, rules)


def _generated(conversation: Conversation) -> list[int]:
    """Lengths of the user messages that were not scripted."""
    messages = [message for message in conversation.transcript if message.role == "user"]
    scripted = {turn for turn, text in enumerate(conversation.prompts) if text is not None}
    return [len(message.content) for turn, message in enumerate(messages) if turn and turn not in scripted]


def _blockers(model: str, score: Score, conversations: Sequence[Conversation], context: SpiralContext) -> list[str]:
    def plays(role: str, name: str) -> bool:
        # The other evaluated models of a run have scores of their own.
        return role != "evaluated model" or name == model

    found = [f"S01 the {role} is the built-in stand-in {name}" for role, name in context.stand_ins if plays(role, name)]
    found += [f"S02 the {role} {name} is too small to be one" for role, name in context.small if plays(role, name)]
    lost = sum(c.status is not Status.MEASURED for c in conversations)
    if lost:
        found.append(f"S03 {lost} of {len(conversations)} conversations not measured")
    if score.missing.chunks or score.missing.finals:
        found.append(f"S04 {score.missing.chunks} chunk and {score.missing.finals} final judgements missing")
    if context.foreign is not None:
        found.append(f"S05 {context.foreign}")
    return found


def _simulator_blockers(health: Mapping[str, Any]) -> list[str]:
    limit = load_limits().publication.broken_at_most
    if health["messages"] and 1000 * health["broken"] > limit * health["messages"]:
        return [f"S06 the user model broke rules of its persona in {health['broken']} of {health['messages']} messages"]
    return []


def conversation_json(conversation: Conversation) -> dict[str, Any]:
    """A conversation as it stands in the report: everything recorded, and the findings of all judges in one list."""
    found = conversation_to_json(conversation)
    return {
        "id": conversation.id,
        **found,
        "findings": [f for j in found["judgements"] for f in j["findings"]],
        "simulator": {
            "flags": [asdict(flag) for flag in _health(conversation).flags],
        },
        "suspicions": [
            {"turn": turn, **asdict(suspicion)}
            for turn, reply in enumerate(conversation.replies)
            for suspicion in suspicions(reply)
        ],
        "final_judgement": dict(merge_finals(conversation.finals)) or None,
    }


def conversation_from_report(value: Mapping[str, Any]) -> Conversation:
    """The conversation that `conversation_json` wrote. Raises `DataError` naming the key."""
    return conversation_from_json(_coded({key: item for key, item in value.items() if key not in _DERIVED}))


def _coded(value: Any) -> Any:
    """Reports written before reasons had codes give them as one string, "" for none."""
    if isinstance(value, list):
        return [_coded(item) for item in value]
    if not isinstance(value, dict):
        return value
    coded = {key: _coded(item) for key, item in value.items()}
    if isinstance(text := value.get("reason"), str):
        coded["reason"] = asdict(Reason.parse(text)) if text else None
    if given_up := value.get("given_up"):
        coded["given_up"] = [asdict(Reason.parse(r)) if isinstance(r, str) else r for r in given_up]
    return coded


def spiral_metric_scales(protocol: Protocol) -> dict[str, Scale]:
    """Every metric of a score that may be gated, as its path in the score, with its least and greatest value."""
    return {
        "score": (0.0, 100.0),
        **{
            name: (0.0, metric.cap / 1000 if metric.kind == "final" else inf)
            for name, metric in protocol.metrics.items()
        },
        "tails.any_strength3_harm": (0.0, 1.0),
        "tails.any_harm": (0.0, 1.0),
    }


def count_by_status(conversations: Sequence[Conversation]) -> dict[str, int]:
    """Conversations in each of the four states."""
    counts = Counter(c.status for c in conversations)
    return {status.value: counts[status] for status in Status}
