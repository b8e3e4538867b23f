"""The report model: everything a run found out, as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_spiral.compare.pairing import RecordedRun
from pytest_spiral.evaluate.gates import CasedScores, card_rows, spiral_rows
from pytest_spiral.evaluate.profile import profile
from pytest_spiral.evaluate.spiral import SpiralContext, conversation_json, score_json
from pytest_spiral.evaluate.verdict import missing_limit, verdict_of
from pytest_spiral.gates import Gate
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card import Card, CardContext, build_card, mode_delta
from pytest_spiral.tempaffect.records import CARD_MODES, Item, Mode
from pytest_spiral.tempaffect.results import item_to_json
from pytest_spiral.tempaffect.self_check import Preflight
from pytest_spiral.tempaffect.suite import Suite

__all__ = ["SCHEMA_VERSION", "RunResults", "build_imported", "build_report"]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RunResults:
    """All that a report is made from.

    run: the report's `run` object. contexts, items: TempAffect's, by model and prompting mode. conversations: by model.
    suite, preflight, spiral_context: None where the suite did not run. usage: the report's `usage` object.
    baseline: what gates that name a baseline are held against.
    """

    run: Mapping[str, Any]
    settings: Settings
    suite: Suite | None
    preflight: Preflight | None
    contexts: Mapping[tuple[str, Mode], CardContext]
    items: Mapping[tuple[str, Mode], Sequence[Item]]
    spiral_context: SpiralContext | None
    spiral_hashes: Mapping[str, str | None]
    conversations: Mapping[str, Sequence[Conversation]]
    usage: Mapping[str, Any]
    baseline: RecordedRun | None = None


def build_report(results: RunResults, gates: Sequence[Gate]) -> dict[str, Any]:
    """The report of a run, finished or cut short. Missing results are listed as missing, never left out."""
    cards = [build_card(*key, items, results.contexts[key]) for key, items in results.items.items()]
    scores = [
        score_json(model, conversations, results.spiral_context)
        for model, conversations in results.conversations.items()
        if results.spiral_context is not None
    ]
    rows = list(_gate_rows(gates, results, scores))
    items = [item for group in results.items.values() for item in group]
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict_of([row["outcome"] for row in rows], _beyond_limit(cards, scores)),
        "run": dict(results.run),
        "integrity": _integrity(results),
        "gates": rows,
        "tempaffect": {
            "cards": cards,
            "deltas": _deltas(results),
            "items": [item_to_json(item) for item in _by_id(items)],
            "scenarios": _scenarios(results.suite, items),
        },
        "spiral": {
            "scores": scores,
            "conversations": [conversation_json(c) for group in results.conversations.values() for c in group],
        },
        "profile": _profiles(results),
        "usage": dict(results.usage),
    }


def _profiles(results: RunResults) -> dict[str, Any]:
    """How the models write, as far as they were measured."""
    return {
        "tempaffect": [
            {
                "model": model,
                "prompting_mode": CARD_MODES[mode],
                **profile([[i.score.answer.reply] for i in _by_id(items) if i.score and i.score.answer]),
            }
            for (model, mode), items in results.items.items()
        ],
        "spiral": _talk_profiles(results.conversations),
    }


def _talk_profiles(groups: Mapping[str, Sequence[Conversation]]) -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            **profile([_replies(talk) for talk in talks if talk.status is Status.MEASURED], by_turn=True),
        }
        for model, talks in groups.items()
    ]


def _by_id(items: Sequence[Item]) -> list[Item]:
    return sorted(items, key=lambda item: (item.model, item.mode, item.scenario_id, item.epoch))


def _replies(talk: Conversation) -> list[str]:
    return [message.content for message in talk.transcript if message.role == "assistant"]


def build_imported(
    name: str, groups: Mapping[str, Sequence[Conversation]], protocol: Protocol, seed: int, versions: Mapping[str, str]
) -> dict[str, Any]:
    """A report of conversations that somebody else recorded, scored as they stand. groups: by model."""
    judges = {model: sorted({j.judge for talk in talks for j in talk.judgements}) for model, talks in groups.items()}
    scores = [
        score_json(
            model, talks, SpiralContext(protocol, seed, (), (), judges[model], "imported: how it was made is not known")
        )
        for model, talks in groups.items()
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict_of([], _beyond_limit([], scores)),
        "run": {
            "id": name,
            "started_at": "",
            "finished_at": "",
            "complete": True,
            "argv": [],
            "config": {},
            "versions": dict(versions),
            "seed": seed,
        },
        "integrity": {},
        "gates": [],
        "tempaffect": {"cards": [], "deltas": [], "items": [], "scenarios": {}},
        "spiral": {
            "scores": scores,
            "conversations": [conversation_json(t) for talks in groups.values() for t in talks],
        },
        "profile": {"tempaffect": [], "spiral": _talk_profiles(groups)},
        "usage": {"by_role": {}},
    }


def _beyond_limit(cards: Sequence[Card], scores: Sequence[Mapping[str, Any]]) -> bool:
    """Whether so much is missing anywhere that there is no verdict."""
    lost = any(card["missing"]["n"] > missing_limit(card["missing"]["of"]) for card in cards)
    return lost or any(map(_lacks_too_much, scores))


def _lacks_too_much(score: Mapping[str, Any]) -> bool:
    """Conversations, or judgements of those that were held; or judges that are none."""
    if score["judges"]["health"]["no_verdict"]:
        return True
    missing, counts = score["missing"], score["counts"]
    # A protocol may count what is not measured; a verdict does not.
    unmeasured = sum(n for status, n in counts.items() if status != Status.MEASURED)
    lost = [(unmeasured, sum(counts.values()))]
    lost += [(missing[what], missing[f"of_{what}"]) for what in ("conversations", "chunks", "finals")]
    return any(n > missing_limit(wanted) for n, wanted in lost)


def _integrity(results: RunResults) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if results.suite is not None and results.preflight is not None:
        found["tempaffect"] = {
            "suite_hash": results.suite.suite_hash,
            "scorer_fingerprint": results.preflight.fingerprint,
            "preflight_faults": list(results.preflight.faults),
            "components": dict(results.suite.components),
        }
    if results.spiral_hashes:
        found["spiral"] = dict(results.spiral_hashes)
    return found


def _scenarios(suite: Suite | None, items: Sequence[Item]) -> dict[str, Any]:
    """The scenarios asked, with their keys, so that whoever reads the report can follow every point."""
    asked = sorted({item.scenario_id for item in items})
    return {name: suite[name].model_dump(mode="json", exclude={"meta"}) for name in asked} if suite else {}


def _deltas(results: RunResults) -> list[dict[str, Any]]:
    seed = results.settings.seed
    models = [model for model, mode in results.items if mode == "schema" and (model, "raw") in results.items]
    return [
        {"model": model, "metrics": mode_delta(results.items[model, "schema"], results.items[model, "raw"], seed)}
        for model in models
    ]


def _gate_rows(
    gates: Sequence[Gate], results: RunResults, scores: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    settings, context = results.settings, results.spiral_context
    cased = {model: CasedScores(talks, context) for model, talks in results.conversations.items()} if context else {}
    beyond = {score["model"]: _lacks_too_much(score) for score in scores}
    for gate in gates:
        if gate.suite == "spiral":
            yield from spiral_rows(gate, cased, beyond, settings.gate_policy, results.baseline)
        else:
            yield from card_rows(
                gate, results.items, results.contexts, settings.gate_policy, settings.seed, results.baseline
            )
