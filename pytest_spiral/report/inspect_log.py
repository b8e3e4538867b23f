"""A report as logs of Inspect (UK AI Security Institute): one per suite, model and variant, for `read_eval_log`.

The log says what was measured, with this package's scores; it cannot be run again by Inspect.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_spiral.tempaffect.suite import load_suite

__all__ = ["inspect_logs"]

_LOG_VERSION = 2


def inspect_logs(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Logs by file name."""
    logs = [*_scenario_logs(report), *_conversation_logs(report)]
    return {
        f"{index}-{re.sub(r'[^A-Za-z0-9._-]+', '-', log['eval']['task'])}.json": log for index, log in enumerate(logs)
    }


def _scenario_logs(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    messages: dict[str, str] = {}
    suite = load_suite()
    if report["tempaffect"]["cards"] and report["integrity"]["tempaffect"]["suite_hash"] == suite.suite_hash:
        messages = {scenario.id: scenario.user_message for scenario in suite.scenarios}
    for card in report["tempaffect"]["cards"]:
        model, mode = card["model"], card["prompting_mode"]
        samples = []
        for item in report["tempaffect"]["items"]:
            if (item["model"], item["prompting_mode"]) != (model, mode):
                continue
            asked = messages.get(item["id"], item["id"])
            scores = {}
            if item["score"] is not None:
                scores = {"score": item["score"], "useful_bounded": float(item["useful_bounded"])}
            talk = [{"role": "user", "content": asked}]
            if item["output"] is not None:
                talk.append({"role": "assistant", "content": item["output"]})
            place = {"family": item["family"]}
            samples.append(
                _sample(item["id"], item["epoch"], asked, talk, scores, item["status"], item["detail"], place)
            )
        means = {
            "score": card["score"],
            "useful_bounded": card["useful_bounded_response_rate"],
        }
        yield _log(report, f"tempaffect {mode}", model, samples, means)


def _conversation_logs(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for score in report["spiral"]["scores"]:
        samples = []
        for talk in report["spiral"]["conversations"]:
            if talk["model"] != score["model"]:
                continue
            values: dict[str, float] = {}
            if talk["status"] == "measured":
                values = {f"final.{name}": value for name, value in (talk["final_judgement"] or {}).items()}
                for finding in talk["findings"]:
                    name = f"strength.{finding['behaviour']}"
                    values[name] = values.get(name, 0) + finding["strength"]
            asked = talk["transcript"][0]["content"] if talk["transcript"] else talk["prompt_id"]
            place = {"category": talk["category"]}
            says = ": ".join(filter(None, talk["reason"].values())) if talk["reason"] else ""
            samples.append(
                _sample(talk["id"], talk["index"], asked, talk["transcript"], values, talk["status"], says, place)
            )
        yield _log(report, f"spiral {score['protocol']}", score["model"], samples, {"score": score["score"]})


def _sample(
    name: str,
    repeat: int,
    asked: str,
    talk: list[Any],
    scores: Mapping[str, float],
    status: str,
    says: str,
    metadata: Mapping[str, Any],
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": name,
        "epoch": repeat + 1,
        "input": _clean(asked),
        "target": "",
        "messages": [{"role": m["role"], "content": _clean(m["content"])} for m in talk],
        "scores": {name: {"value": value} for name, value in scores.items()},
        "metadata": {**metadata, "status": status},
    }
    if status in ("instrument_failed", "not_run"):
        found["error"] = {"message": _clean(says) or status, "traceback": "", "traceback_ansi": ""}
    return found


def _log(
    report: Mapping[str, Any], task: str, model: str, samples: list[Any], means: Mapping[str, float | None]
) -> dict[str, Any]:
    run = report["run"]
    scores = [
        {"name": name, "scorer": f"pytest-spiral/{name}", "metrics": {"value": {"name": "value", "value": value}}}
        for name, value in means.items()
        if value is not None
    ]
    identity = hashlib.sha256(f"{run['id']} {task} {model}".encode("utf-8", "replace")).hexdigest()[:22]
    done = [sample for sample in samples if "error" not in sample]
    return {
        "version": _LOG_VERSION,
        "status": "success" if run["complete"] else "cancelled",
        "eval": {
            "eval_id": identity,
            "run_id": _clean(run["id"]),
            "created": run["started_at"],
            "task": task,
            "task_id": identity,
            "task_version": 0,
            "dataset": {"name": task, "samples": len(samples), "sample_ids": [sample["id"] for sample in samples]},
            "model": _clean(model),
            "config": {"epochs": max((sample["epoch"] for sample in samples), default=1)},
            "packages": {"pytest-spiral": run["versions"]["pytest-spiral"]},
            "metadata": {"integrity": report["integrity"], "verdict": report["verdict"]},
        },
        "results": {"total_samples": len(samples), "completed_samples": len(done), "scores": scores},
        "stats": {"started_at": run["started_at"], "completed_at": run["finished_at"]},
        "samples": samples,
    }


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
