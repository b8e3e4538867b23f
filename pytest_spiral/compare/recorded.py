"""Finished runs as something to compare with: the baseline of a run, the two sides of `pytest-spiral compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_spiral.compare.pairing import RecordedRun, check_comparable, counterpart
from pytest_spiral.errors import DataError
from pytest_spiral.gates import Gate
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import ModelPlan, RunPlan
from pytest_spiral.run.replay import Recording, load_recording
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.tempaffect.records import Item, Mode
from pytest_spiral.tempaffect.results import item_from_json
from pytest_spiral.tempaffect.scenario import Scenario

__all__ = ["check_baseline", "load_baseline", "load_run", "recorded_run"]

Identity = Mapping[str, Mapping[str, str | None]]
_SPIRAL_HASHES = ("protocol_hash", "prompts_hash", "persona_hash", "rubric_hash")


def load_run(path: Path) -> RecordedRun:
    """A run folder, its `report.json`, or a result file in upstream's format.

    Raises `DataError` naming the file and the key.
    """
    return recorded_run(load_recording(path), path)


def recorded_run(recording: Recording, path: Path) -> RecordedRun:
    """The run in a recording, under the name that the caller gave it. Raises `DataError` as `load_run` does."""
    try:
        return RecordedRun(
            path=str(path),
            id=_run_id(recording),
            identity=_identity(recording),
            expected=_expected(recording.report),
            items=_items(recording.report),
            conversations=_conversations(recording),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{recording.path}: not a report of this version ({type(error).__name__} {error})") from None


def _run_id(recording: Recording) -> str:
    if recording.report is not None:
        return str(recording.report["run"]["id"])
    return ", ".join(sorted({talk.origin.run_id for talk in recording.talks}))


def _conversations(recording: Recording) -> dict[str, list[Conversation]]:
    found: dict[str, list[Conversation]] = {}
    for unit, talk in recording.conversations.items():
        found.setdefault(unit.model, []).append(talk)
    return found


def _expected(report: Mapping[str, Any] | None) -> dict[str, str]:
    """The scenarios of a run by id, with their families: "" for one never asked, of which a report has the id only."""
    if report is None:
        return {}
    tempaffect = report["tempaffect"]
    lost = {name: "" for card in tempaffect["cards"] for name in card["missing"]["ids"]}
    return {**lost, **{name: row["family"] for name, row in tempaffect["scenarios"].items()}}


def _items(report: Mapping[str, Any] | None) -> dict[tuple[str, Mode], Sequence[Item]]:
    """Items of a report as they were scored, with the scenarios that it holds."""
    found: dict[tuple[str, Mode], list[Item]] = {}
    if report is None:
        return {}
    tempaffect = report["tempaffect"]
    scenarios = {name: Scenario.model_validate(row) for name, row in tempaffect["scenarios"].items()}
    for row in tempaffect["items"]:
        item = item_from_json(row, scenarios)
        found.setdefault((item.model, item.mode), []).append(item)
    return {key: tuple(items) for key, items in found.items()}


def _recorded(report: Mapping[str, Any], suite: str) -> Mapping[str, Any]:
    return report.get("integrity", {}).get(suite, {})  # type: ignore[no-any-return]  # parsed JSON


def _identity(recording: Recording) -> Identity:
    found: dict[str, Mapping[str, str | None]] = {}
    report = recording.report
    if report is not None and (tempaffect := _recorded(report, "tempaffect")):
        found["tempaffect"] = {name: tempaffect.get(name) for name in ("suite_hash", "scorer_fingerprint")}
    if recording.talks:
        found["spiral"] = {**_from_talks(recording.talks), **(_from_report(report) if report is not None else {})}
    return found


def _from_talks(talks: Sequence[Conversation]) -> dict[str, str | None]:
    """What conversations say about themselves; None where they say nothing."""
    judges = {judgement.judge for talk in talks for judgement in talk.judgements} - {""}
    seekers = {talk.origin.user_model for talk in talks} - {""}
    return {
        **dict.fromkeys(_SPIRAL_HASHES),
        "judges": ", ".join(sorted(judges)) or None,
        "user_model": ", ".join(sorted(seekers)) or None,
        "num_turns": str(max(len(talk.replies) for talk in talks)),
    }


def _from_report(report: Mapping[str, Any]) -> dict[str, str | None]:
    hashes = _recorded(report, "spiral")
    config = report["run"]["config"]
    if config.get("replay"):
        # Its conversations were held under the terms of whatever was replayed, which the report does not repeat.
        return {"protocol_hash": hashes.get("protocol_hash")}
    seekers = [model["model_id"] for model in config.get("models", ()) if model.get("role") == "user"]
    return {
        **{name: hashes.get(name) for name in _SPIRAL_HASHES},
        "user_model": ", ".join(seekers) or None,
        "num_turns": str(config["num_turns"]),
    }


def load_baseline(gates: Sequence[Gate], plan: RunPlan, content: Content) -> RecordedRun | None:
    """The baseline of a run, None where none is named. Raises `DataError` where no gate could be held against it."""
    if plan.settings.baseline is None:
        return None
    found = load_run(content.folder / plan.settings.baseline)
    check_baseline(found, gates, plan, content, None)
    return found


def check_baseline(
    baseline: RecordedRun, gates: Sequence[Gate], plan: RunPlan, content: Content, fingerprint: str | None
) -> None:
    """Raise `DataError` where a gate on the baseline could not be decided: other terms, or no model to compare with.

    fingerprint: of the scorer, once it is known.
    """
    own = _planned(plan, content, fingerprint)
    for suite in sorted({gate.suite for gate in gates if gate.relative}):
        if suite not in baseline.identity:
            raise DataError(f"{baseline.path}: holds nothing of {suite}")
        check_comparable(suite, own[suite], baseline.identity[suite], ("this run", baseline.path))
        for model in plan.of_suite("spiral" if suite == "spiral" else "tempaffect"):
            counterpart(model, baseline, suite)


def _planned(plan: RunPlan, content: Content, fingerprint: str | None) -> Identity:
    """The identity that a run will have."""
    if content.recording is not None:
        spiral = dict(_identity(content.recording).get("spiral", {}))
    else:
        spiral = {
            **{name: value for name, value in content.spiral.hashes().items() if name in _SPIRAL_HASHES},
            "user_model": plan.user.model_id if plan.user else None,
            "num_turns": str(plan.settings.num_turns),
        }
    if plan.judges:
        spiral["judges"] = ", ".join(sorted(map(_judge_name, plan.judges)))
    spiral["protocol_hash"] = content.spiral.protocol.hash
    return {
        "tempaffect": {"suite_hash": content.suite.suite_hash, "scorer_fingerprint": fingerprint},
        "spiral": spiral,
    }


def _judge_name(judge: ModelPlan) -> str:
    return judge.spec if judge.kind == "dry" else judge.model_id
