"""From the results of a run to its report: the only place that scores, decides gates and gives the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_spiral.evaluate.gates import SpiralGates, card_rows
from pytest_spiral.evaluate.inputs import RunResults, SpiralContext
from pytest_spiral.evaluate.profile import spiral_profile, tempaffect_profile
from pytest_spiral.evaluate.spiral import score_of, spiral_part
from pytest_spiral.evaluate.verdict import is_beyond_limit, verdict_of
from pytest_spiral.report.model import (
    GateRow,
    Integrity,
    Profiles,
    Report,
    Run,
    RunConfig,
    Score,
    TempAffect,
    Usage,
)
from pytest_spiral.report.model.run import TempAffectIntegrity
from pytest_spiral.report.model.tempaffect import ModeDelta
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card import build_card
from pytest_spiral.tempaffect.card_metrics import mode_delta
from pytest_spiral.tempaffect.records import CARD_MODES, Item


def evaluate(run: RunResults) -> Report:
    """The report of a run, finished or cut short."""
    cards = tuple(
        build_card(model, mode, items, run.contexts[model, mode]) for (model, mode), items in run.items.items()
    )
    spiral = run.spiral
    scores = tuple(score_of(model, group, spiral) for model, group in run.conversations.items() if spiral)
    incomplete = {score.model: has_no_verdict(score) for score in scores}
    spiral_gates = SpiralGates(run, spiral, incomplete) if spiral else None
    gates: list[GateRow] = []
    for gate in run.gates:
        if gate.suite == "tempaffect":
            gates += card_rows(gate, run)
        elif spiral_gates:
            gates += spiral_gates.rows(gate)
    lost = any(is_beyond_limit(card.missing.n, card.missing.of) for card in cards)
    items = _in_order([item for group in run.items.values() for item in group])
    asked = sorted({item.id for item in items})
    suite = run.suite
    scenarios = suite.by_id if suite else {}
    return Report(
        verdict=verdict_of([row.outcome for row in gates], lost or any(incomplete.values())),
        run=run.run,
        integrity=Integrity(tempaffect=_tempaffect_integrity(run), spiral=run.spiral_integrity),
        gates=tuple(gates),
        tempaffect=TempAffect(
            cards=cards,
            deltas=tuple(
                ModeDelta(model=model, metrics=mode_delta(group, run.items[model, "raw"], scenarios, run.run.seed))
                for (model, mode), group in run.items.items()
                if mode == "schema" and (model, "raw") in run.items
            ),
            items=tuple(items),
            # The scenarios asked, so that a reader can follow every point.
            scenarios={name: suite[name].model_copy(update={"meta": None}) for name in asked} if suite else {},
        ),
        spiral=spiral_part(scores, [c for group in run.conversations.values() for c in group]),
        profile=_profiles(run),
        usage=run.usage,
    )


def evaluate_imported(
    name: str, groups: Mapping[str, Sequence[Conversation]], protocol: Protocol, seed: int, versions: Mapping[str, str]
) -> Report:
    """The report of conversations recorded elsewhere, scored as they stand.

    Args:
        name: Id of the run.
        groups: Conversations by model.
        protocol: How they are scored.
        seed: Of the bootstrap.
        versions: Of the packages in use.
    """
    run = Run(
        id=name, started_at="", finished_at="", complete=True, argv=(), config=RunConfig(), versions=versions, seed=seed
    )
    context = SpiralContext(protocol, seed, foreign="imported: how it was made is not known")
    return evaluate(RunResults(run, Usage(), spiral=context, conversations=groups))


def has_no_verdict(score: Score) -> bool:
    """Whether a score has no verdict: too many conversations or judgements are missing, or the judges failed."""
    if score.judges.health.no_verdict:
        return True
    missing = score.missing
    # A protocol may count what was not measured; a verdict does not.
    unmeasured = sum(n for status, n in score.counts.items() if status is not Status.MEASURED)
    return any(
        is_beyond_limit(n, of)
        for n, of in (
            (unmeasured, sum(score.counts.values())),
            (missing.conversations, missing.of_conversations),
            (missing.chunks, missing.of_chunks),
            (missing.finals, missing.of_finals),
        )
    )


def _tempaffect_integrity(run: RunResults) -> TempAffectIntegrity | None:
    if run.suite is None or run.preflight is None:
        return None
    return TempAffectIntegrity(
        suite_hash=run.suite.suite_hash,
        scorer_fingerprint=run.preflight.fingerprint,
        preflight_faults=tuple(run.preflight.faults),
        components=run.suite.components,
    )


def _in_order(items: Sequence[Item]) -> list[Item]:
    return sorted(items, key=lambda item: (item.model, item.mode, item.id, item.epoch))


def _profiles(run: RunResults) -> Profiles:
    return Profiles(
        tempaffect=tuple(
            tempaffect_profile(model, CARD_MODES[mode], [item.answer.reply for item in _in_order(items) if item.answer])
            for (model, mode), items in run.items.items()
        ),
        spiral=tuple(
            spiral_profile(model, [c.replies for c in conversations if c.status is Status.MEASURED])
            for model, conversations in run.conversations.items()
        ),
    )
