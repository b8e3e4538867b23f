"""A snippet for a model card on the Hugging Face hub: `model-index` metadata and the same as prose."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_spiral.errors import ConfigError
from pytest_spiral.report.lines import plain
from pytest_spiral.report.lookup import card_value
from pytest_spiral.report.model import Report

__all__ = ["model_card"]


class _Result(NamedTuple):
    """A card or a score; each metric with its name, value and 95 % interval."""

    dataset: str
    blockers: Sequence[str]
    metrics: Sequence[tuple[str, float | None, float | None, float | None]]


def model_card(report: Report, model: str) -> str:
    """The snippet for one model. Scores that may not be published are named without numbers.

    Raises:
        ConfigError: The report has no such model.
    """
    results = list(_results(report, model))
    if not results:
        raise ConfigError(f"{model}: no such model in this report")
    lines = [f"Evaluated with pytest-spiral {report.run.versions['pytest-spiral']}, run {plain(report.run.id)}."]
    entries = []
    for dataset, blockers, metrics in results:
        if blockers:
            lines.append(f"- {dataset}: not publishable ({plain('; '.join(blockers))})")
            continue
        rows = [
            {"type": name, "value": value, "name": f"95 % interval {low:.3f} to {high:.3f}"}
            for name, value, low, high in metrics
            if value is not None and low is not None and high is not None
        ]
        lines += [f"- {dataset}, {row['type']}: {row['value']:.3f} ({row['name']})" for row in rows]
        dataset_entry = {"name": dataset, "type": "pytest-spiral"}
        entries.append({"task": {"type": "text-generation"}, "dataset": dataset_entry, "metrics": rows})
    # JSON is YAML, and needs no quoting of what a model may be called.
    index = json.dumps([{"name": model, "results": entries}], ensure_ascii=True)
    return (f"---\nmodel-index: {index}\n---\n" if entries else "") + "\n".join(lines) + "\n"


def _results(report: Report, model: str) -> Iterator[_Result]:
    for card in report.tempaffect.cards:
        if card.model == model:
            paths = [path for path in ("score", "useful_bounded_response_rate") if path in card.intervals]
            bounds = [(path, card_value(card, path), card.intervals[path]) for path in paths]
            metrics = [(path, value, interval.low, interval.high) for path, value, interval in bounds]
            yield _Result(f"TempAffect 1 ({card.prompting_mode})", card.integrity.publication_blockers, metrics)
    for score in report.spiral.scores:
        if score.model == model:
            metric = ("score", score.score, score.ci_low, score.ci_high)
            yield _Result(f"Spiral-Bench ({score.protocol})", score.blockers, [metric])
