"""A snippet for a model card on the Hugging Face hub: `model-index` metadata and the same as prose."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_spiral.errors import ConfigError
from pytest_spiral.report.lines import plain
from pytest_spiral.report.model import Card, Report, Score

__all__ = ["model_card"]


@dataclass(frozen=True, slots=True)
class _Result:
    """One card or score. metrics: name, value and 95 % interval of each."""

    dataset: str
    blockers: Sequence[str]
    metrics: Sequence[tuple[str, float, str]]


def model_card(report: Report, model: str) -> str:
    """The snippet for one model. Scores that may not be published are named without numbers.

    Raises:
        ConfigError: The report has no such model.
    """
    results = [_card(card) for card in report.tempaffect.cards if card.model == model]
    results += [_score(score) for score in report.spiral.scores if score.model == model]
    if not results:
        raise ConfigError(f"{model}: no such model in this report")
    published = [result for result in results if not result.blockers]
    return (_front_matter(model, published) if published else "") + "\n".join(_prose(report, results)) + "\n"


def _prose(report: Report, results: Sequence[_Result]) -> Iterator[str]:
    yield f"Evaluated with pytest-spiral {report.run.versions['pytest-spiral']}, run {plain(report.run.id)}."
    for result in results:
        if result.blockers:
            yield f"- {result.dataset}: not publishable ({plain('; '.join(result.blockers))})"
        else:
            yield from (f"- {result.dataset}, {name}: {value:.3f} ({text})" for name, value, text in result.metrics)


def _card(card: Card) -> _Result:
    values = {"score": card.score, "useful_bounded_response_rate": card.useful_bounded_response_rate}
    metrics = [
        (name, value, _interval(card.intervals[name].low, card.intervals[name].high))
        for name, value in values.items()
        if value is not None
    ]
    return _Result(f"TempAffect 1 ({card.prompting_mode})", card.integrity.publication_blockers, metrics)


def _score(score: Score) -> _Result:
    metrics = []
    if score.score is not None and score.ci_low is not None and score.ci_high is not None:
        metrics.append(("score", score.score, _interval(score.ci_low, score.ci_high)))
    return _Result(f"Spiral-Bench ({score.protocol})", score.blockers, metrics)


def _interval(low: float, high: float) -> str:
    return f"95 % interval {low:.3f} to {high:.3f}"


def _front_matter(model: str, results: Sequence[_Result]) -> str:
    entry = {
        "name": model,
        "results": [
            {
                "task": {"type": "text-generation"},
                "dataset": {"name": result.dataset, "type": "pytest-spiral"},
                "metrics": [{"type": name, "value": value, "name": text} for name, value, text in result.metrics],
            }
            for result in results
        ],
    }
    # JSON is YAML, and needs no quoting of what a model may be called.
    return f"---\nmodel-index: {json.dumps([entry], ensure_ascii=True)}\n---\n"
