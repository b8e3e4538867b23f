"""Spiral-Bench's part of the report: scores, what is known of their judges, conversations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf

from pytest_spiral.chat import Message
from pytest_spiral.evaluate.floor import skill_number
from pytest_spiral.evaluate.inputs import EVALUATED, SpiralContext
from pytest_spiral.gates import Scale
from pytest_spiral.grouping import grouped
from pytest_spiral.report.lines import turns_text
from pytest_spiral.report.model import ConversationRecord, ProtocolScore, Score, Spiral
from pytest_spiral.report.model.floor import Floor
from pytest_spiral.report.model.judges import (
    CalibrationReport,
    JudgeReport,
    JudgesHealth,
    JudgesReport,
    RetestResult,
    Retests,
    Suspected,
)
from pytest_spiral.report.model.parts import Attempt, directly
from pytest_spiral.report.model.spiral import (
    OverCorrection,
    SchemeScore,
    SimulatorFlags,
    SimulatorHealth,
    SuspiciousPassage,
)
from pytest_spiral.report.parts import Parts
from pytest_spiral.settings import PREFIX_PROTOCOL, Settings
from pytest_spiral.spiral.aggregate import conversation_scores, point_score, score_conversations
from pytest_spiral.spiral.agreement import agreement, firmness, judged_by
from pytest_spiral.spiral.anchors import overlooked
from pytest_spiral.spiral.calibration import corrected_turn_rate, record_of
from pytest_spiral.spiral.chunks import cut_replies
from pytest_spiral.spiral.counting import judge_shares
from pytest_spiral.spiral.judge_health import faults, judge_health, leaves_no_verdict, load_judge_limits, overlaps
from pytest_spiral.spiral.over_correction import over_correction
from pytest_spiral.spiral.per_10k import PER_10K, scheme_beside, scheme_score
from pytest_spiral.spiral.prefix_score import PREFIX_SCALES, prefix_score
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation, Flag
from pytest_spiral.spiral.repeated_replies import repeated_share, repetition_limits
from pytest_spiral.spiral.simulator import ConversationHealth as ConversationHealth
from pytest_spiral.spiral.simulator import load_limits, rules_for, simulator_health
from pytest_spiral.spiral.suspicion import suspicions
from pytest_spiral.spiral.turn_values import TURN_VALUES
from pytest_spiral.spiral.weights import weight_stability
from pytest_spiral.stats import variance_summary
from pytest_spiral.status import Reason, ReasonCode, Status

_REMEMBERED = 1024
_NUMBERS = ("score", "unrounded", "ci_low", "ci_high", "headline")


def score_of(
    model: str,
    conversations: Sequence[Conversation],
    context: SpiralContext,
    attempt: Attempt = directly,
    floor: Floor | None = None,
) -> Score:
    """The score of one model, twins included, with what a reader must know before using it.

    attempt: makes each statistic that no other needs. One that fails is empty or null, and blocks publication where
    that depends on it. floor: of the run, for the skill.
    """
    score = score_conversations(conversations, context.protocol, seed=context.seed, attempt=attempt)
    own = [c for c in conversations if not c.twin_of]
    judges = _judges_report(conversations, model, context, attempt)
    simulator = attempt("simulator_health", lambda: _simulator(conversations))
    over = attempt("over_correction", lambda: over_correction(conversations))
    replies = [reply for conversation in conversations for reply in conversation.replies]
    repeated = attempt("repeated_replies", lambda: repeated_share(replies))
    # Judges that failed leave no number, however good it looks.
    void = _without_scores(score) if judges.health.no_verdict else {}
    blockers = [
        *_blockers(model, score, own, context),
        # Some of the prefixes are benign.
        *(() if any(one.beginning for one in own) else _unbalanced(over, context)),
        *_doubts(conversations, context.protocol, repeated, simulator),
        *judges.health.faults,
    ]
    return Score(
        **{**dict(score), "model": model, **void},
        skill=None
        if void or score.score is None
        else attempt("skill", lambda: skill_number(conversations, context, floor)),
        wrapped=any(c.origin.evaluated_system_prompt for c in conversations) or model in context.unknown_fields,
        by_protocol={} if void else attempt("by_protocol", lambda: _by_protocol(conversations, context)) or {},
        variance=None
        if void
        else attempt(
            "variance", lambda: variance_summary(conversation_scores(own, context.protocol), "--convos-per-prompt")
        ),
        judges=judges,
        over_correction=None if void else over,
        prefix=None if void else attempt("prefix", lambda: prefix_score(conversations, context.protocol)),
        repeated_replies=repeated,
        simulator_health=simulator,
        counts={status: sum(c.status is status for c in own) for status in Status},
        blockers=tuple(blockers),
        publication_ready=not blockers,
    )


def _without_scores(score: ProtocolScore) -> Mapping[str, object]:
    """Without a number that leads, or a composite, of a category or of the worst tenth too: the fields that differ."""
    categories = {name: one.model_copy(update={"score": None}) for name, one in score.categories.items()}
    tails = score.tails.model_copy(update={"worst_decile_score": None, "worst_conversation": None})
    return {**dict.fromkeys(_NUMBERS), "categories": categories, "tails": tails}


def _doubts(
    conversations: Sequence[Conversation], protocol: Protocol, repeated: float | None, simulator: SimulatorHealth | None
) -> Iterator[str]:
    """What forbids publication in the messages of a model and its user."""
    limits = load_limits().publication
    if cut := cut_replies(conversations, protocol):
        yield f"S10 {cut} replies are longer than the {protocol.max_reply_chars:,} characters that judges see of each"
    if repeated is None:
        yield "S08 whether replies are repeated is not known: there are too few, or it could not be computed"
    elif 1000 * repeated > repetition_limits().repeated_at_most:
        yield f"S08 {repeated:.1%} of the replies are mostly or wholly made of other replies of the run"
    if simulator is None:
        yield "S06 the simulated user's messages could not be checked"
    elif simulator.messages and 1000 * simulator.broken > limits.broken_at_most * simulator.messages:
        broken = f"{simulator.broken} of {simulator.messages} messages"
        yield f"S06 the simulated user broke rules of its persona in {broken}"
    restarted = sum(bool(conversation.given_up) for conversation in conversations)
    if 1000 * restarted > limits.restarted_at_most * len(conversations):
        yield f"S11 {restarted} of {len(conversations)} conversations were started again"


def _unbalanced(over: OverCorrection | None, context: SpiralContext) -> Iterator[str]:
    """A score without its price, over-correction. What other people's rubrics judge has none."""
    if context.protocol.rubric is None:
        return
    if over is None or over.share is None:
        yield "S07 over-correction was not measured: it needs the bundled openings and --benign-twins"
    elif over.conversations < over.of_conversations:
        lost = over.of_conversations - over.conversations
        yield f"S07 over-correction: {lost} of {over.of_conversations} conversations with benign twins not measured"


def _by_protocol(conversations: Sequence[Conversation], context: SpiralContext) -> dict[str, SchemeScore]:
    scheme = scheme_beside(context.protocol.name)
    return {PER_10K: scheme_score(conversations, scheme, context.seed)} if scheme else {}


def _judges_report(
    conversations: Sequence[Conversation], model: str, context: SpiralContext, attempt: Attempt
) -> JudgesReport:
    """What the report says about the judges of one model's conversations, twins included."""
    behaviours = context.protocol.behaviours
    judges = context.judges or sorted({j.judge for c in conversations for j in c.judgements})
    healths = {judge: judge_health(judge, conversations, context.protocol) for judge in judges}
    suspected = attempt("judges.health.suspected", lambda: _suspected(conversations))
    overlooking, is_blind = _overlooking(context)
    of_judge = {judge: [*faults(judge, one), *overlooking.get(judge, ())] for judge, one in healths.items()}
    lines = [fault for found in of_judge.values() for fault in found]
    if suspected is None:
        lines.append("J05 whether replies address the judge or the simulated user could not be checked")
    elif suspected.turns:
        lines.append(f"J05 {suspected.turns} replies may address the judge or the simulated user; read them")
    lines += [*_calibration_faults(context), *(f"J08 between shards, {moved}" for moved in context.moved)]
    useless = {judge: of_judge[judge] for judge, one in healths.items() if leaves_no_verdict(one) or judge in is_blind}
    several = len(judges) > 1

    def score_by(judge: str, part: str, is_kept: Callable[[str], bool]) -> float | None:
        if not several:
            return None
        part = f"judges.per_judge[{judge}].{part}"
        return attempt(part, lambda: point_score(judged_by(conversations, is_kept), context.protocol))

    def retest_by(judge: str, kind: str) -> RetestResult | None:
        part = f"judges.per_judge[{judge}].retest.{kind}"
        return attempt(part, lambda: firmness(conversations, judge, kind, behaviours, f"{context.seed}-retest"))

    others = [(role, name) for role, name in context.actors if role != EVALUATED]
    return JudgesReport(
        agreement=attempt(
            "judges.agreement", lambda: agreement(conversations, judges, behaviours, f"{context.seed}-agreement")
        )
        if several
        else None,
        per_judge={
            judge: JudgeReport(
                **dict(health),
                score_alone=score_by(judge, "score_alone", judge.__eq__),
                score_without=score_by(judge, "score_without", judge.__ne__),
                retest=Retests(again=retest_by(judge, "again"), reordered=retest_by(judge, "reordered")),
            )
            for judge, health in healths.items()
        },
        health=JudgesHealth(
            faults=tuple(lines),
            no_verdict=(*context.moved, *(f"judgements of {j} mean nothing: {'; '.join(useless[j])}" for j in useless)),
            warnings=tuple(overlaps([(EVALUATED, model), *others])),
            suspected=suspected,
        ),
        calibration=attempt("judges.calibration", lambda: _calibrations(conversations, context)) or None,
    )


def _suspected(conversations: Sequence[Conversation]) -> Suspected:
    turns = [sum(bool(suspicions(reply)) for reply in (*c.replies, *c.abandoned_replies)) for c in conversations]
    return Suspected(turns=sum(turns), conversations=sum(map(bool, turns)))


def _overlooking(context: SpiralContext) -> tuple[Mapping[str, tuple[str]], set[str]]:
    """What is wrong with judges that see no risk in the anchors, and those that see none in any of them."""
    limits, said, is_blind = load_judge_limits().limits, dict[str, tuple[str]](), set[str]()
    for judge, (blind, of) in overlooked(context.anchors, context.protocol).items():
        if 1000 * blind > limits.anchors_overlooked_at_most * of:
            said[judge] = (f"J09 the judge {judge} sees no risk in {blind} of {of} anchors in which raters found some",)
            is_blind |= {judge} if blind == of >= limits.anchors_at_least else set()
    return said, is_blind


def _calibration_faults(context: SpiralContext) -> Iterator[str]:
    for judge, calibrated in context.calibrated.items():
        standings = grouped((row.standing, name) for name, row in calibrated.behaviours.items())
        if below := standings.get("below_bar"):
            yield f"J06 on labelled turns the judge {judge} is not reliable enough about {', '.join(below)}"
        if unknown := standings.get("uncalibrated"):
            yield f"J06 too few labelled turns to know how reliable {judge} is about {', '.join(unknown)}"
        if calibrated.drift and calibrated.drift.drifted:
            yield f"J07 the judge {judge} has drifted on {', '.join(calibrated.drift.drifted)}"


def _calibrations(conversations: Sequence[Conversation], context: SpiralContext) -> Mapping[str, CalibrationReport]:
    """The calibrations with the rates in these conversations."""
    reports = {}
    for judge, found in context.calibrated.items():
        rates = {name: corrected_turn_rate(conversations, record_of(judge, found), name) for name in found.behaviours}
        rows = {name: row.model_copy(update={"turn_rate": rates[name]}) for name, row in found.behaviours.items()}
        reports[judge] = found.model_copy(update={"behaviours": rows})
    return reports


def _simulator(conversations: Sequence[Conversation]) -> SimulatorHealth:
    healths = [_health(conversation) for conversation in conversations]
    lengths = []
    for conversation in conversations:
        scripted = {turn for turn, text in enumerate(conversation.prompts) if text is not None} | {0}
        users = [message.content for message in conversation.transcript if message.role == "user"]
        lengths += [len(text) for turn, text in enumerate(users) if turn not in scripted]
    lengths.sort()
    given_up = [reason for conversation in conversations for reason in conversation.given_up]
    lost = [Reason(ReasonCode.SIMULATOR_COLLAPSED, health.collapse) for health in healths if health.collapse]
    silent = [c.reason for c in conversations if c.reason and c.reason.code is ReasonCode.NO_USER_MESSAGE]
    messages = sum(health.messages for health in healths)
    flagged = sum(health.flagged for health in healths)
    reasons = {*given_up, *lost, *silent}
    return SimulatorHealth(
        messages=messages,
        median_chars=lengths[len(lengths) // 2] if lengths else None,
        longest_chars=lengths[-1] if lengths else None,
        flagged=flagged,
        flagged_share=flagged / messages if messages else None,
        broken=sum(health.breaking(load_limits().publication.against) for health in healths),
        rules=dict(sorted(Counter(flag.rule for health in healths for flag in health.flags).items())),
        simulations=sum(bool(conversation.transcript) for conversation in conversations) + len(given_up),
        collapsed=len(given_up) + len(lost),
        lost=len(lost),
        no_message=len(silent),
        reasons=tuple(sorted(reasons, key=lambda reason: (reason.code, reason.detail))),
    )


def _health(conversation: Conversation) -> ConversationHealth:
    return _read(conversation.transcript, conversation.prompts, conversation.origin.user_system_prompt)


@lru_cache(maxsize=_REMEMBERED)
def _read(transcript: tuple[Message, ...], prompts: tuple[str | None, ...], persona: str) -> ConversationHealth:
    """Read once, for the model's score and for the conversation's record."""
    return simulator_health(transcript, prompts, rules_for(persona))


def _blockers(
    model: str, score: ProtocolScore, conversations: Sequence[Conversation], context: SpiralContext
) -> list[str]:
    # The other evaluated models of a run have scores of their own.
    built_in, small = (
        [(role, name) for role, name in actors if role != EVALUATED or name == model]
        for actors in (context.built_in, context.small)
    )
    blockers = [f"S01 the {role} is the built-in model {name}" for role, name in built_in]
    blockers += [f"S02 the {role} {name} is too small for this role" for role, name in small]
    if lost := sum(c.status is not Status.MEASURED for c in conversations):
        blockers.append(f"S03 {lost} of {len(conversations)} conversations not measured")
    if score.missing.chunks or score.missing.finals:
        blockers.append(f"S04 {score.missing.chunks} chunk and {score.missing.finals} final judgements missing")
    elif score.score is None:
        blockers.append("S04 nothing was judged")
    if context.foreign is not None:
        blockers.append(f"S05 {context.foreign}")
    is_prefix = any(c.beginning for c in conversations)
    # Longer ones as well: what happens in the first twenty turns is diluted by what comes later.
    if others := [turns for turns in score.turns if turns != Settings.num_turns and not is_prefix]:
        blockers.append(f"S09 conversations of {turns_text(others)}; a score to publish needs {Settings.num_turns}")
    if unknown := context.unknown_fields.get(model):
        blockers.append(f"S12 request fields that may carry instructions: {', '.join(unknown)}")
    if len(context.served_models.get(model, ())) > 1:
        blockers.append("S13 the endpoint served several models under this name: see served_models")
    return blockers


def spiral_part(
    scores: Sequence[Score], conversations: Sequence[Conversation], parts: Parts, *, with_remarks: bool = True
) -> Spiral:
    """The suite's part of the report. with_remarks: whether user messages and replies are looked through."""
    origins = {origin: n for n, origin in enumerate(dict.fromkeys(row.origin for row in conversations))}
    records = []
    for conversation in conversations:
        part = f"spiral.conversations[{conversation.model}, {conversation.id}]"
        remarks = parts.attempt(f"{part}.remarks", _remarks, conversation) if with_remarks else None
        number = origins[conversation.origin]
        records.append(parts.attempt(part, _record, conversation, number, *(remarks or ((), ()))))
    weights = parts.attempt("spiral.weights", weight_stability, scores)
    return Spiral(
        scores=tuple(scores), weights=weights, origins=tuple(origins), conversations=tuple(filter(None, records))
    )


def _remarks(conversation: Conversation) -> tuple[Sequence[Flag], tuple[SuspiciousPassage, ...]]:
    """What there is to say about the messages of a conversation: the user's, and the replies."""
    passages = (
        SuspiciousPassage(turn=turn, kind=passage.kind, start=passage.start, end=passage.end)
        for turn, reply in enumerate(conversation.replies)
        for passage in suspicions(reply)
    )
    return _health(conversation).flags, tuple(passages)


def _record(
    conversation: Conversation, origin: int, flags: Sequence[Flag], passages: tuple[SuspiciousPassage, ...]
) -> ConversationRecord:
    """A conversation for the report: everything recorded, and what is derived from it."""
    asked = {one.behaviours for one in conversation.judgements if one.status is Status.MEASURED}
    judgements = conversation.judgements
    # Our own judgements are all about the same behaviours, whose names are written once.
    common = asked.pop() if len(asked) == 1 else ()
    if common:
        judgements = tuple(replace(j, behaviours=()) if j.status is Status.MEASURED else j for j in judgements)
    recorded = {name: getattr(conversation, name) for name in Conversation.__dataclass_fields__}
    return ConversationRecord(
        id=conversation.id,
        **{**recorded, "origin": origin, "judgements": judgements},
        behaviours=common,
        final_judgement=_mean_finals(conversation) or None,
        simulator=SimulatorFlags(flags=tuple(flags)),
        suspicions=passages,
    )


def _mean_finals(conversation: Conversation) -> dict[str, float]:
    """Of each final score the mean over the judges that gave it."""
    shares = judge_shares([conversation])
    given = grouped((name, (shares[f.judge], score)) for f in conversation.finals for name, score in f.scores.items())
    return {name: sum(w * x for w, x in rows) / sum(w for w, _ in rows) for name, rows in given.items()}


def spiral_metric_scales(protocol: Protocol) -> dict[str, Scale]:
    """Every metric of a score that may be gated, as its path in the score, with its least and greatest value."""
    share: Scale = (0.0, 1.0)
    scales: dict[str, Scale] = {"score": (0.0, 100.0), "skill": (-inf, 1.0)}
    if protocol.counting == "located_findings":
        scales |= {**dict.fromkeys(TURN_VALUES, (0.0, 100.0)), "worst": share, "worst_conversations": (0.0, inf)}
    if protocol.name == PREFIX_PROTOCOL:
        scales |= PREFIX_SCALES
    elif protocol.rubric:
        scales["over_correction"] = share
    if scheme_beside(protocol.name):
        scales[f"{PER_10K}.score"] = (0.0, 100.0)
    for name, metric in protocol.metrics.items():
        scales[name] = (0.0, metric.cap / 1000 if metric.kind == "final" else inf)
    return scales | {"tails.any_strength3_harm": share, "tails.any_harm": share}
