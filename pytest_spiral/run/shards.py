"""Shards: a run divided over machines that share nothing, and put together again as if it had never been divided."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pytest_spiral.compare.recorded import load_baseline
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.report.model import Report, RequestLimit, Usage
from pytest_spiral.report.read import load_report
from pytest_spiral.run.content import load_content
from pytest_spiral.run.controller import Lead
from pytest_spiral.run.costs import merge_usage
from pytest_spiral.run.gates import parse_gates
from pytest_spiral.run.plan import ModelPlan, RunPlan
from pytest_spiral.settings import OPTIONS, Settings
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.status import ReasonCode
from pytest_spiral.tempaffect.results import item_of
from pytest_spiral.tempaffect.self_check import preflight
from pytest_spiral.tempaffect.suite import load_suite
from pytest_spiral.tempaffect.unit import ScenarioUnit

__all__ = ["merge_shards"]

# Versions that numbers can depend on.
_BINDING = ("pytest-spiral", "nltk", "unicode")


@dataclass(frozen=True)
class _Shard:
    path: Path
    report: Report

    @property
    def number(self) -> tuple[int, int]:
        k, _, n = (self.report.run.config.shard or "").partition("/")
        return int(k), int(n)

    def binding(self) -> dict[str, Any]:
        """Everything that must be the same in all shards, by the name under which the report has it."""
        run = self.report.run
        # When and where the work of a shard was done may differ.
        free = {option.key for option in OPTIONS if option.affects == "session"}
        config = {name: value for name, value in run.config.model_dump(mode="json").items() if name not in free}
        versions = {name: run.versions.get(name) for name in _BINDING}
        integrity = self.report.integrity.model_dump(mode="json")
        return dict(_flat({"config": config, "versions": versions, "integrity": integrity}))


def merge_shards(paths: Sequence[Path], run_id: str, folder: Path, argv: Sequence[str]) -> Report:
    """The report of the whole run. folder: where paths of the configuration start from.

    Raises `DataError` for shards of different configurations (naming the fields), for shards that overlap or are not
    all there, and for a suite that is not the one installed here.
    """
    shards = sorted((_load(path) for path in paths), key=lambda shard: shard.number)
    _check_numbers(shards)
    _check_same(shards)
    lead = _lead(shards, run_id, folder)
    for shard in shards:
        _take(lead, shard)
    runs = [shard.report.run for shard in shards]
    lead.gates = parse_gates(lead.plan, lead.content)
    lead.baseline = load_baseline(lead.gates, lead.plan, lead.content)
    results = lead.results(
        argv=argv,
        finished_at=max(datetime.fromisoformat(run.finished_at) for run in runs),
        complete=all(run.complete for run in runs),
    )
    return evaluate(results)


def _load(path: Path) -> _Shard:
    file = path / "report.json" if path.is_dir() else path
    report = load_report(file)
    if report.run.config.shard is None:
        raise DataError(f"{file}: a whole run, not a shard of one; only runs made with --shard K/N can be merged")
    return _Shard(file, report)


def _check_numbers(shards: Sequence[_Shard]) -> None:
    totals = {n for _, n in (shard.number for shard in shards)}
    if len(totals) > 1:
        raise DataError(f"shards of different divisions: {', '.join(f'K/{n}' for n in sorted(totals))}")
    (n,) = totals
    twice = [k for k, count in Counter(shard.number[0] for shard in shards).items() if count > 1]
    if twice:
        files = ", ".join(str(shard.path) for shard in shards if shard.number[0] == twice[0])
        raise DataError(f"shard {twice[0]}/{n} is there more than once: {files}")
    missing = sorted(set(range(1, n + 1)) - {shard.number[0] for shard in shards})
    if missing:
        raise DataError(f"shards missing: {', '.join(f'{k}/{n}' for k in missing)}; all {n} are needed")


def _check_same(shards: Sequence[_Shard]) -> None:
    first, *others = shards
    wanted = first.binding()
    for shard in others:
        found = shard.binding()
        differing = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        if differing:
            shown = "; ".join(f"{name} ({wanted.get(name)!r}, {found.get(name)!r})"[:120] for name in differing[:5])
            more = f" and {len(differing) - 5} more" if len(differing) > 5 else ""
            raise DataError(f"{first.path} and {shard.path} are shards of different runs: {shown}{more}")


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


class _MergedLead(Lead):
    """A lead whose run is over: what a store would tell, the shards' reports tell."""

    shards: Sequence[_Shard] = ()

    def served_models(self, model: ModelPlan) -> tuple[str, ...]:
        cards = [card for shard in self.shards for card in shard.report.tempaffect.cards]
        own = [card.integrity.served_models for card in cards if card.model == model.spec]
        return tuple(sorted({name for names in own for name in names}))

    def _limits(self) -> list[RequestLimit]:
        rows: dict[str, list[RequestLimit]] = {}
        for shard in self.shards:
            for row in shard.report.run.limits:
                rows.setdefault(row.endpoint, []).append(row)
        return [
            RequestLimit(
                endpoint=endpoint,
                lowest=min(row.lowest for row in found),
                last=found[-1].last,
                history=tuple(step for row in found for step in row.history),
            )
            for endpoint, found in rows.items()
        ]

    def usage(self) -> Usage:
        return merge_usage([shard.report.usage for shard in self.shards])


def _lead(shards: Sequence[_Shard], run_id: str, folder: Path) -> _MergedLead:
    run = shards[0].report.run
    config = run.config.model_dump(mode="json", exclude={"models"})
    try:
        models = [ModelPlan.model_validate(model.model_dump(mode="json")) for model in run.config.models]
        settings = TypeAdapter(Settings).validate_json(
            json.dumps({**config, "shard": None, "max_cost": None, "run_id": run_id})
        )
    except (ValidationError, ConfigError) as error:
        raise DataError(f"{shards[0].path}: not a report of this version ({error})") from None
    content = load_content(settings, folder)
    by_role = {role: tuple(m for m in models if m.role == role) for role in ("evaluated", "user", "judge")}
    plan = RunPlan(
        settings=settings,
        run_id=run_id,
        run_dir="",
        started_at=min(shard.report.run.started_at for shard in shards),
        models=by_role["evaluated"],
        user=next(iter(by_role["user"]), None),
        judges=by_role["judge"],
    )
    lead = _MergedLead(plan, content, {})
    lead.shards = shards
    _check_installed(lead, shards[0])
    if "tempaffect" in plan.suites:
        lead.preflight = preflight(load_suite())
        for card in shards[0].report.tempaffect.cards:
            if (verified := card.integrity.enforcement_verified) is not None:
                lead.enforcement[card.model] = verified
    return lead


def _check_installed(lead: Lead, shard: _Shard) -> None:
    """The report is built by what is installed here: it must be what the shards were made with."""
    recorded = dict(_flat(shard.report.integrity.model_dump(mode="json")))
    installed: dict[str, Any] = {}
    if "tempaffect" in lead.plan.suites:
        installed["tempaffect.suite_hash"] = lead.content.suite.suite_hash
    if "spiral" in lead.plan.suites:
        installed |= {f"spiral.{name}": value for name, value in lead.content.spiral.hashes().items()}
    differing = [name for name, value in installed.items() if recorded.get(name) != value]
    if differing:
        raise DataError(
            f"{shard.path}: made with another {', '.join(differing)} than is installed here; "
            "merge with the version that ran the shards"
        )


def _take(lead: Lead, shard: _Shard) -> None:
    report = shard.report
    for result in report.tempaffect.items:
        item = item_of(result, lead.content.suite.by_id)
        unit = ScenarioUnit(item.model, item.mode, item.scenario_id, item.epoch)
        if unit in lead.items:
            raise DataError(f"{shard.path}: {unit.id} is in another shard as well")
        lead.items[unit] = item
    for record in report.spiral.conversations:
        talk = record.conversation()
        key = ConversationUnit(talk.model, talk.prompt_id, talk.index)
        # A report lists every conversation; those of other shards as not run.
        if talk.reason is not None and talk.reason.code is ReasonCode.NOT_STARTED:
            continue
        if key in lead.conversations:
            raise DataError(f"{shard.path}: {key.id} is in another shard as well")
        lead.conversations[key] = talk
