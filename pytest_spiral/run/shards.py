"""Results read back from reports: merging the shards of a divided run, and evaluating a run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from pytest_spiral.chat import TOKEN_LIMITS
from pytest_spiral.differences import differences, listed
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.evaluate.inputs import RunResults
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.grouping import grouped
from pytest_spiral.report.model import Report, RequestLimit
from pytest_spiral.report.model.judges import CalibrationReport
from pytest_spiral.report.read import load_report
from pytest_spiral.run.baseline import load_gates
from pytest_spiral.run.content import Content
from pytest_spiral.run.costs import merge_usage
from pytest_spiral.run.plan import ModelPlan, RunPlan
from pytest_spiral.run.results import Measurements, Traffic, calibrations_of, run_results
from pytest_spiral.settings import OPTIONS, Settings
from pytest_spiral.spiral.anchors import not_the_same
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import ReasonCode
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.self_check import check_scorer
from pytest_spiral.tempaffect.suite import load_suite

# Versions that numbers can depend on.
_VERSIONS = ("pytest-spiral", "nltk", "unicode")
# What of a model's plan depends on where and when it is reached.
_SESSION = ("endpoint", "concurrency", "patience", "timeouts", "price", "reasoning_tokens")


@dataclass(frozen=True)
class _Shard:
    path: Path
    report: Report

    @property
    def number(self) -> tuple[int, int]:
        if self.report.run.config.shard is None:
            raise DataError(f"{self.path}: a whole run, not a shard; only runs made with --shard K/N can be merged")
        k, _, n = self.report.run.config.shard.partition("/")
        return int(k), int(n)

    def terms(self) -> dict[str, JsonValue]:
        """Everything that must be the same in all shards."""
        run = self.report.run
        # When and where the work of a shard was done may differ.
        free = {option.key for option in OPTIONS if option.affects == "session"}
        config = run.config.model_dump(mode="json", exclude=free)
        for model in config["models"]:
            for name in _SESSION:
                model.pop(name, None)
            for sent in model["negotiated"].values():
                # Raised as far as the first replies of each shard needed it.
                sent.update(dict.fromkeys(TOKEN_LIMITS))
        versions: dict[str, JsonValue] = {name: run.versions.get(name) for name in _VERSIONS}
        integrity = self.report.integrity.model_dump(mode="json")
        return {"config": config, "versions": versions, "integrity": integrity}


def merge_shards(paths: Sequence[Path], run_dir: Path, folder: Path, argv: Sequence[str]) -> Report:
    """The report of the whole run from those of its shards, to be written to `run_dir`.

    Raises `DataError` for shards of different configurations (the message names the fields), that overlap or are
    incomplete, or of another suite than the installed one.
    """
    shards = sorted((_Shard(file, load_report(file)) for file in paths), key=lambda shard: shard.number)
    _check_same(shards)
    return evaluate(_results(shards, run_dir, folder, argv))


def evaluate_again(path: Path, folder: Path) -> Report:
    """The report of a run, computed again from its measurements as the report holds them.

    Raises:
        DataError: It cannot be computed from them alone, or by the installed version.
    """
    report = load_report(path)
    if report.run.config.model_dump().get("calibrate"):
        raise DataError(f"{path}: the judges were calibrated in this run; resume it with --run-id {report.run.id}")
    results = _results([_Shard(path, report)], path.parent, folder, report.run.argv)
    return evaluate(replace(results, run=report.run, usage=report.usage))


def _results(shards: Sequence[_Shard], run_dir: Path, folder: Path, argv: Sequence[str]) -> RunResults:
    plan, content = _plan(shards, run_dir, folder)
    _check_installed(plan, content, shards[0])
    runs = [shard.report.run for shard in shards]
    return run_results(
        plan,
        content,
        _measurements(plan, shards),
        _merged_traffic(shards, plan),
        load_gates(plan, content),
        argv=argv,
        finished_at=max(datetime.fromisoformat(run.finished_at) for run in runs),
        complete=all(run.complete for run in runs),
    )


def _check_same(shards: Sequence[_Shard]) -> None:
    """Every shard of one division is there once, and all are of the same run."""
    totals = {n for _, n in (shard.number for shard in shards)}
    if len(totals) > 1:
        raise DataError(f"shards of different divisions: {', '.join(f'K/{n}' for n in sorted(totals))}")
    (n,) = totals
    numbers = [k for k, _ in (shard.number for shard in shards)]
    for k in numbers:
        if numbers.count(k) > 1:
            files = ", ".join(str(shard.path) for shard in shards if shard.number[0] == k)
            raise DataError(f"shard {k}/{n} is there more than once: {files}")
    if missing := [k for k in range(1, n + 1) if k not in numbers]:
        raise DataError(f"shards missing: {', '.join(f'{k}/{n}' for k in missing)}; all {n} are needed")
    first, *others = shards
    expected = first.terms()
    for shard in others:
        if differing := list(differences(expected, shard.terms())):
            shown = listed(differing, "{name} ({one} and {other})")
            raise DataError(f"{first.path} and {shard.path} are shards of different runs: {shown}")


def _merged_traffic(shards: Sequence[_Shard], plan: RunPlan) -> Traffic:
    served: dict[str, set[str]] = {model.spec: set() for model in plan.models}
    limits: dict[str, RequestLimit] = {}
    for shard in shards:
        for model, names in shard.report.run.served_models.items():
            served[model].update(names)
        for row in shard.report.run.limits:
            known = limits.get(row.endpoint, row.model_copy(update={"history": ()}))
            both = {"lowest": min(known.lowest, row.lowest), "history": (*known.history, *row.history)}
            limits[row.endpoint] = row.model_copy(update=both)
    merged = {spec: tuple(sorted(served_by)) for spec, served_by in served.items()}
    return Traffic(merged, tuple(limits.values()), merge_usage([shard.report.usage for shard in shards]))


def _plan(shards: Sequence[_Shard], run_dir: Path, folder: Path) -> tuple[RunPlan, Content]:
    run = shards[0].report.run
    config = run.config.model_dump(mode="json", exclude={"models"})
    try:
        models = tuple(ModelPlan.model_validate(model.model_dump(mode="json")) for model in run.config.models)
        own = {**config, "shard": None, "max_cost": None, "run_id": run_dir.name, "report_dir": str(run_dir.parent)}
        settings = TypeAdapter(Settings).validate_json(json.dumps(own))
    except (ValidationError, ConfigError) as error:
        raise DataError(f"{shards[0].path}: not a report of this version ({error})") from None
    started_at = min(shard.report.run.started_at for shard in shards)
    plan = RunPlan(settings=settings, run_id=run_dir.name, run_dir="", started_at=started_at, everybody=models)
    return plan, Content(settings, folder)


def _check_installed(plan: RunPlan, content: Content, shard: _Shard) -> None:
    """The report is evaluated by the installed version: it must be the one that the shards were made with."""
    installed: dict[str, Mapping[str, str | None]] = {}
    if "tempaffect" in plan.suites:
        installed["tempaffect"] = {"suite_hash": content.suite.suite_hash}
    if "spiral" in plan.suites:
        installed["spiral"] = content.spiral.hashes
    integrity = shard.report.integrity.model_dump(mode="json")
    recorded = {suite: {name: (integrity[suite] or {}).get(name) for name in own} for suite, own in installed.items()}
    if differing := [each.name for each in differences(recorded, installed)]:
        raise DataError(
            f"{shard.path}: made with another {', '.join(differing)} than is installed here; "
            "merge with the version that ran the shards"
        )


def _measurements(plan: RunPlan, shards: Sequence[_Shard]) -> Measurements:
    measured = Measurements()
    if "tempaffect" in plan.suites:
        measured.self_check = check_scorer(load_suite())
        measured.enforcement.update(shards[0].report.run.enforcement_verified)
    measured.learned = shards[0].report.run.preflight
    measured.anchors, *others = (shard.report.spiral.anchors for shard in shards)
    found = grouped(pair for shard in shards for pair in calibrations_of(shard.report).items())
    measured.calibrated = {judge: _least_reliable(each) for judge, each in found.items()}
    kept = shards[0].report.spiral.floor
    measured.floor = kept if kept and kept.reused else None
    moved = (not_the_same(measured.anchors, anchors, checks=len(others)) for anchors in others)
    measured.moved = tuple(dict.fromkeys(filter(None, moved)))
    for shard in shards:
        # A report lists every conversation; those of other shards as not started.
        never = ReasonCode.NOT_STARTED
        held = (one for one in shard.report.spiral.recorded() if not (one.reason and one.reason.code is never))
        results: list[Item | Conversation] = [*shard.report.tempaffect.items, *held]
        for result in results:
            if not measured.add(result):
                raise DataError(f"{shard.path}: {result.id} of {result.model} is in another shard as well")
    return measured


def _least_reliable(found: Sequence[CalibrationReport]) -> CalibrationReport:
    """Of a judge's calibrations, as the shards made them, one by which it may decide about what it may in all."""
    rows = grouped(pair for one in found for pair in one.behaviours.items())
    least = {name: min(own, key=lambda row: row.standing == "calibrated") for name, own in rows.items()}
    return found[0].model_copy(update={"behaviours": least})
