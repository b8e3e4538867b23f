"""A report as logs of Inspect (UK AI Security Institute): one per suite, model and variant, for `read_eval_log`.

A log holds the measurements with this package's scores. Inspect cannot run it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_spiral.report.model import ConversationRecord, Report
from pytest_spiral.report.write import file_slug
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item

_LOG_VERSION = 2

_Json = dict[str, Any]


def inspect_logs(report: Report) -> dict[str, _Json]:
    """Logs as JSON by file name."""
    logs = [*_tempaffect_logs(report), *_spiral_logs(report)]
    return {f"{n}-{file_slug(log['eval']['task'])}.json": log for n, log in enumerate(logs)}


def _tempaffect_logs(report: Report) -> Iterator[_Json]:
    for card in report.tempaffect.cards:
        samples = []
        for item in report.tempaffect.items:
            if (item.model, item.prompting_mode) != (card.model, card.prompting_mode):
                continue
            scenario = report.tempaffect.scenarios.get(item.id)
            messages = [("user", scenario.user_message if scenario else item.id)]
            messages += [] if item.output is None else [("assistant", item.output)]
            scores = {} if item.score is None else {"score": item.score}
            scores |= {} if item.useful_bounded is None else {"useful_bounded": float(item.useful_bounded)}
            samples.append(_sample(item, item.epoch, messages, scores, {"family": item.family}))
        means = {"score": card.score, "useful_bounded": card.useful_bounded_response_rate}
        yield _log(report, f"tempaffect {card.prompting_mode}", card.model, samples, means)


def _spiral_logs(report: Report) -> Iterator[_Json]:
    for score in report.spiral.scores:
        samples = []
        for row in report.spiral.conversations:
            if row.model != score.model:
                continue
            scores: dict[str, float] = {}
            if row.status is Status.MEASURED:
                scores = {f"final.{name}": value for name, value in (row.final_judgement or {}).items()}
                for finding in row.findings:
                    name = f"strength.{finding.behaviour}"
                    scores[name] = scores.get(name, 0) + finding.strength
            messages = [(message.role, message.content) for message in row.transcript]
            samples.append(_sample(row, row.index, messages, scores, {"category": row.category}))
        means = {name: number.value for name, number in score.leading.items()} | {"score": score.score}
        yield _log(report, f"spiral {score.protocol}", score.model, samples, means)


def _sample(
    record: Item | ConversationRecord,
    repeat: int,
    messages: Sequence[tuple[str, str]],
    scores: Mapping[str, float],
    metadata: Mapping[str, str],
) -> _Json:
    """One measurement. repeat: epoch or conversation index, from 0."""
    sample: _Json = {
        "id": record.id,
        "epoch": repeat + 1,
        "input": messages[0][1] if messages else record.id,
        "target": "",
        "messages": [{"role": role, "content": text} for role, text in messages],
        "scores": {name: {"value": value} for name, value in scores.items()},
        "metadata": {**metadata, "status": record.status},
    }
    if record.status in (Status.INSTRUMENT_FAILED, Status.NOT_RUN):
        sample["error"] = {"message": str(record.reason or record.status), "traceback": "", "traceback_ansi": ""}
    return sample


def _log(report: Report, task: str, model: str, samples: Sequence[_Json], means: Mapping[str, float | None]) -> _Json:
    run = report.run
    scores = [
        {"name": name, "scorer": f"pytest-spiral/{name}", "metrics": {"value": {"name": "value", "value": value}}}
        for name, value in means.items()
        if value is not None
    ]
    identity = hashlib.sha256(f"{run.id} {task} {model}".encode()).hexdigest()[:22]
    completed = sum("error" not in sample for sample in samples)
    return {
        "version": _LOG_VERSION,
        "status": "success" if run.complete else "cancelled",
        "eval": {
            "eval_id": identity,
            "run_id": run.id,
            "created": run.started_at,
            "task": task,
            "task_id": identity,
            "task_version": 0,
            "dataset": {"name": task, "samples": len(samples), "sample_ids": [sample["id"] for sample in samples]},
            "model": model,
            "config": {"epochs": max((sample["epoch"] for sample in samples), default=1)},
            "packages": {"pytest-spiral": run.versions["pytest-spiral"]},
            "metadata": {"integrity": report.integrity.model_dump(mode="json"), "verdict": report.verdict},
        },
        "results": {"total_samples": len(samples), "completed_samples": completed, "scores": scores},
        "stats": {"started_at": run.started_at, "completed_at": run.finished_at},
        "samples": samples,
    }
