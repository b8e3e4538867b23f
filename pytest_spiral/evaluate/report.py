"""From the results of a run to its report: the only place that scores, decides gates and gives the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from pytest_spiral.compare.changes import changed_conversations, changed_items
from pytest_spiral.compare.recording import Recording, counterpart, differing
from pytest_spiral.errors import DataError
from pytest_spiral.evaluate.corrected import is_corrected, with_labels
from pytest_spiral.evaluate.floor import floor_of
from pytest_spiral.evaluate.gates import SpiralGates, card_row, gate_row, prepare_card
from pytest_spiral.evaluate.inputs import RunResults, SpiralContext
from pytest_spiral.evaluate.profile import spiral_profile, tempaffect_profile
from pytest_spiral.evaluate.reply_judges import reply_judges
from pytest_spiral.evaluate.spiral import score_of, spiral_part
from pytest_spiral.evaluate.verdict import has_no_verdict, is_incomplete, verdict_of
from pytest_spiral.gates import PART_FAILED
from pytest_spiral.report.model import (
    Card,
    FailedPart,
    GateRow,
    Integrity,
    Profiles,
    Report,
    Run,
    RunConfig,
    Score,
    Spiral,
    TempAffect,
    Usage,
)
from pytest_spiral.report.model.comparison import ItemChanges
from pytest_spiral.report.model.floor import Floor
from pytest_spiral.report.model.parts import PartCode
from pytest_spiral.report.model.run import TempAffectIntegrity
from pytest_spiral.report.model.tempaffect import ModeDelta
from pytest_spiral.report.parts import Parts
from pytest_spiral.spiral.anchors import not_the_same
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card import build_card
from pytest_spiral.tempaffect.card_metrics import bootstrap_draws, mode_delta
from pytest_spiral.tempaffect.records import CARD_MODES, Mode

Cards = Mapping[tuple[str, Mode], Card]
_NO_STATISTICS = FailedPart(
    part="statistics",
    code=PartCode.NOT_EVALUATED,
    detail="the run ended while they were computed; resume it, or run `pytest-spiral report` on its directory",
)


def without_statistics(run: RunResults) -> Report:
    """The report of what was measured, without anything that is computed from it: written before the evaluation."""
    parts = Parts()
    report = _measured(run, spiral_part((), _conversations(run), parts, with_remarks=False))
    return report.model_copy(update={"failed_parts": (_NO_STATISTICS, *parts.failed)})


def evaluate(run: RunResults) -> Report:
    """The report of a run, finished or cut short. A part that cannot be made is named in it and costs no other."""
    parts = Parts()
    cards = {}
    for key, items in run.items.items():
        part = f"tempaffect.cards[{_named(*key)}]"
        if card := parts.attempt(part, build_card, *key, items, run.contexts[key], parts.below(part)):
            cards[key] = card
    scores = {}
    floor = parts.attempt("spiral.floor", floor_of, run)
    if run.spiral:
        for model, conversations in run.conversations.items():
            part = f"spiral.scores[{model}]"
            if score := parts.attempt(part, score_of, model, conversations, run.spiral, parts.below(part), floor):
                scores[model] = score
    gates = _gates(run, cards, scores, parts, floor)
    deltas, profile = _deltas(run, parts), _profiles(run, parts)
    # Of a large suite they take 80 MB, which rendering needs.
    bootstrap_draws.cache_clear()
    report = _measured(run, spiral_part(tuple(scores.values()), _conversations(run), parts))
    changes = parts.attempt("changes", _changes, run, report)
    judged = parts.attempt("reply_judges", reply_judges, report.tempaffect.items)
    lost = is_incomplete(cards.values(), scores.values())
    computed = {
        "verdict": verdict_of([row.outcome for row in gates], lost or bool(parts.failed)),
        "gates": tuple(gates),
        "changes": changes or (),
        "spiral": report.spiral.model_copy(update={"floor": floor}),
        "tempaffect": report.tempaffect.model_copy(update={"cards": tuple(cards.values()), "deltas": deltas}),
        "profile": profile,
        "reply_judges": judged,
        "failed_parts": tuple(parts.failed),
    }
    report = Report(**{**dict(report), **computed})
    if not run.labels:
        return report
    corrected = [gate for gate in run.gates if is_corrected(gate)]
    found = parts.attempt("corrected", with_labels, report, run.labels, corrected, run.policy)
    return found or report.model_copy(update={"failed_parts": tuple(parts.failed), "verdict": "incomplete"})


def _measured(run: RunResults, spiral: Spiral) -> Report:
    """What was measured, without statistics of TempAffect, profiles and gates."""
    items = sorted(
        (item for group in run.items.values() for item in group),
        key=lambda item: (item.model, item.mode, item.id, item.epoch),
    )
    asked = sorted({item.id for item in items})
    suite, tempaffect = run.suite, None
    if suite is not None and run.self_check is not None:
        tempaffect = TempAffectIntegrity(
            suite_hash=suite.suite_hash,
            scorer_fingerprint=run.self_check.fingerprint,
            preflight_faults=tuple(run.self_check.faults),
            components=suite.components,
            system_prompt_hash=next((context.system_prompt_hash for context in run.contexts.values()), None),
        )
    return Report(
        verdict="incomplete",
        run=run.run,
        integrity=Integrity(tempaffect=tempaffect, spiral=run.spiral_integrity),
        gates=(),
        tempaffect=TempAffect(
            items=tuple(items),
            # The scenarios asked, so that a reader can follow every point.
            scenarios={name: suite[name].model_copy(update={"meta": None}) for name in asked} if suite else {},
        ),
        spiral=spiral.model_copy(update={"anchors": run.spiral.anchors}) if run.spiral else spiral,
        profile=Profiles(),
        usage=run.usage,
    )


def _gates(
    run: RunResults, cards: Cards, scores: Mapping[str, Score], parts: Parts, floor: Floor | None
) -> list[GateRow]:
    """Every gate on every card or model that it speaks about."""
    prepared = cache(partial(prepare_card, run))
    incomplete = {name: has_no_verdict(score) for name, score in scores.items()}
    useless = {name: score.judges.health.no_verdict for name, score in scores.items()}
    spiral = SpiralGates(run, run.spiral, incomplete, floor, useless) if run.spiral else None
    rows = []
    for gate in (gate for gate in run.gates if not is_corrected(gate)):
        if gate.suite == "tempaffect":
            for key in run.items:
                if gate.qualifier in (None, key[1]):
                    part = f"gates[{gate.expr}, {_named(*key)}]"
                    row = parts.attempt(part, card_row, gate, run, prepared, *key) if key in cards else None
                    rows.append(row or gate_row(gate, key[0], CARD_MODES[key[1]], PART_FAILED, run.policy))
        elif spiral:
            for model in run.conversations:
                part = f"gates[{gate.expr}, {model}]"
                row = parts.attempt(part, spiral.row, gate, model) if model in scores else None
                rows.append(row or gate_row(gate, model, None, PART_FAILED, run.policy))
    return rows


def _changes(run: RunResults, report: Report) -> tuple[ItemChanges, ...]:
    """What newly fails and newly passes against the baseline, in suites that both ran under the same circumstances."""
    if (baseline := run.baseline) is None:
        return ()
    held = [one for group in run.conversations.values() for one in group]
    own = Recording("this run", Path(), "", tuple(held), report)
    common = own.identity.keys() & baseline.identity.keys()
    same = {suite for suite in common if not differing(suite, baseline.identity[suite], own.identity[suite])}
    if not_the_same(baseline.anchors, own.anchors):
        same.discard("spiral")
    changes = []
    for (model, mode), items in run.items.items():
        if "tempaffect" in same and (against := _counterpart(model, baseline, "tempaffect")):
            sides = baseline.items.get((against, mode), ()), items
            scenarios = run.suite.by_id if run.suite else {}
            changes.append(changed_items(baseline.id, (against, model), mode, sides, scenarios))
    for model, conversations in run.conversations.items():
        if "spiral" in same and run.spiral and (against := _counterpart(model, baseline, "spiral")):
            talks = baseline.by_model[against], conversations
            changes.append(changed_conversations(baseline.id, (against, model), talks, run.spiral.protocol))
    return tuple(change for change in changes if change.n)


def _counterpart(model: str, baseline: Recording, suite: str) -> str | None:
    """The model to compare with; None where it is not known, which is an error only where a gate asks for it."""
    with suppress(DataError):
        return counterpart(model, baseline, suite)
    return None


def _deltas(run: RunResults, parts: Parts) -> tuple[ModeDelta, ...]:
    scenarios = run.suite.by_id if run.suite else {}
    deltas = []
    for (model, mode), group in run.items.items():
        if mode == "schema" and (model, "raw") in run.items:
            part, raw = f"tempaffect.deltas[{model}]", run.items[model, "raw"]
            metrics = parts.attempt(part, mode_delta, group, raw, scenarios, run.run.seed)
            deltas += [] if metrics is None else [ModeDelta(model=model, metrics=metrics)]
    return tuple(deltas)


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


def _named(model: str, mode: Mode) -> str:
    return f"{model}, {CARD_MODES[mode]}"


def _conversations(run: RunResults) -> list[Conversation]:
    groups = (*run.conversations.values(), *run.stand_ins.values())
    return [conversation for group in groups for conversation in group]


def _profiles(run: RunResults, parts: Parts) -> Profiles:
    tempaffect, spiral = [], []
    for (model, mode), items in run.items.items():
        ordered = sorted(items, key=lambda item: (item.id, item.epoch))
        replies = [item.answer.reply for item in ordered if item.answer]
        part = f"profile.tempaffect[{_named(model, mode)}]"
        tempaffect.append(parts.attempt(part, tempaffect_profile, model, CARD_MODES[mode], replies))
    for model, conversations in run.conversations.items():
        units = [c.replies for c in conversations if c.status is Status.MEASURED and not c.twin_of]
        spiral.append(parts.attempt(f"profile.spiral[{model}]", spiral_profile, model, units))
    return Profiles(tempaffect=tuple(filter(None, tempaffect)), spiral=tuple(filter(None, spiral)))
