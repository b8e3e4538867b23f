"""The report model: everything a run found out, as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from pytest_spiral.gates import Decision, Gate, decide
from pytest_spiral.settings import Settings
from pytest_spiral.tempaffect.card import CardContext, bootstrap_draws, build_card, metric_sample, mode_delta
from pytest_spiral.tempaffect.item import CARD_MODES, Item, Mode, item_to_json
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.preflight import Preflight
from pytest_spiral.tempaffect.suite import Suite
from pytest_spiral.verdict import missing_limit, verdict_of

__all__ = ["SCHEMA_VERSION", "RunResults", "build_report"]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RunResults:
    """All that a report is made from.

    run: the report's `run` object. contexts, items: by model and prompting mode. usage: the report's `usage` object.
    """

    run: Mapping[str, Any]
    settings: Settings
    suite: Suite
    preflight: Preflight
    contexts: Mapping[tuple[str, Mode], CardContext]
    items: Mapping[tuple[str, Mode], Sequence[Item]]
    usage: Mapping[str, Any]


def build_report(results: RunResults, gates: Sequence[Gate]) -> dict[str, Any]:
    """The report of a run, finished or cut short. Missing results are listed as missing, never left out."""
    settings, suite = results.settings, results.suite
    cards = [
        build_card(model, mode, results.items[model, mode], results.contexts[model, mode])
        for model, mode in product(settings.model, settings.prompting)
    ]
    rows = [row for gate in gates for row in _gate_rows(gate, results)]
    beyond = any(card["missing"]["n"] > missing_limit(card["missing"]["of"]) for card in cards)
    items = [item for group in results.items.values() for item in group]
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict_of([row["outcome"] for row in rows], beyond),
        "run": dict(results.run),
        "integrity": {
            "tempaffect": {
                "suite_hash": suite.suite_hash,
                "scorer_fingerprint": results.preflight.fingerprint,
                "preflight_faults": list(results.preflight.faults),
                "components": dict(suite.components),
            }
        },
        "gates": rows,
        "tempaffect": {
            "cards": cards,
            "deltas": _deltas(results),
            "items": [
                item_to_json(item)
                for item in sorted(items, key=lambda item: (item.model, item.mode, item.scenario_id, item.epoch))
            ],
        },
        "spiral": {"scores": [], "conversations": []},
        "usage": dict(results.usage),
    }


def _deltas(results: RunResults) -> list[dict[str, Any]]:
    settings = results.settings
    if set(settings.prompting) != set(CARD_MODES):
        return []
    return [
        {
            "model": model,
            "metrics": mode_delta(results.items[model, "schema"], results.items[model, "raw"], settings.seed),
        }
        for model in settings.model
    ]


def _gate_rows(gate: Gate, results: RunResults) -> list[Mapping[str, Any]]:
    settings = results.settings
    resamples = load_params().intervals.resamples

    def draws(n: int) -> Sequence[Sequence[int]]:
        return bootstrap_draws(n, resamples, settings.seed)

    rows = []
    modes: Sequence[Mode] = [mode for mode in settings.prompting if gate.qualifier in (None, mode)]
    for model, mode in product(settings.model, modes):
        sample = metric_sample(gate.metric, results.items[model, mode], results.contexts[model, mode])
        decision = decide(gate, sample, settings.gate_policy, draws)
        beyond = sample.missing > missing_limit(len(sample.units) + sample.missing)
        if beyond and decision.outcome != "fail":
            decision = replace(decision, outcome="incomplete")
        rows.append(_gate_json(gate, model, mode, decision, settings.gate_policy))
    return rows


def _gate_json(gate: Gate, model: str, mode: Mode, decision: Decision, policy: str) -> Mapping[str, Any]:
    return {
        "expr": gate.expr,
        "model": model,
        "prompting_mode": CARD_MODES[mode],
        "metric": f"{gate.suite}.{gate.metric}",
        "value": decision.value,
        "ci_low": decision.low,
        "ci_high": decision.high,
        "method": decision.method,
        "threshold": gate.threshold,
        "policy": policy,
        "outcome": decision.outcome,
        "mde": None,
        "worst_case": decision.worst_case,
        "best_case": decision.best_case,
    }
