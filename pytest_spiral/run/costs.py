"""What a run has cost, by role; and whether a limit on it can be kept at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_spiral.chat import Role, Usage
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.parameters import LIMITS, Price
from pytest_spiral.run.plan import OPTION_OF, ModelPlan

__all__ = ["cost_of", "merge_usage", "paid_prices", "usage_by_role"]


def cost_of(row: Mapping[str, Any], price: Price | None) -> float | None:
    """USD of the counted tokens of one model; None where its price is not known, or the endpoint counted no tokens."""
    if price is None:
        return None
    uncounted = row["requests"] and not row["prompt_tokens"] + row["completion_tokens"]
    if uncounted and (price.input or price.output):
        return None
    return price.cost(Usage(row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]))


def usage_by_role(
    rows: Iterable[Mapping[str, Any]], models: Sequence[ModelPlan], max_cost: float | None, not_run: int = 0
) -> dict[str, Any]:
    """The report's `usage`: requests, tokens and cost of everything that was answered.

    rows: one per role and model, as the store counts them. not_run: items and conversations that the limit left out.
    cached_share: of the prompt tokens, None where none were counted. cost_usd: None where the price of a model is not
    known; `missing_prices` then names it.
    """
    prices = {(model.role, model.model_id): model.price for model in models}
    by_role: dict[str, dict[str, Any]] = {}
    missing: set[str] = set()
    unchecked: set[str] = set()
    for row in rows:
        role, model = row["role"], row["model"]
        price = prices.get((role, model))
        cost = cost_of(row, price)
        if cost is None:
            missing.add(model)
        if cost and price is not None and price.unchecked:
            unchecked.add(model)
        numbers = {name: number for name, number in row.items() if name not in ("role", "model")}
        total = by_role.setdefault(role, {**dict.fromkeys(numbers, 0), "cost_usd": 0.0})
        for name, number in numbers.items():
            total[name] += number
        total["cost_usd"] = None if cost is None or total["cost_usd"] is None else total["cost_usd"] + cost
    return _usage(by_role, missing, unchecked, max_cost, not_run)


def merge_usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The `usage` of several reports together. A limit on the cost of one of them is none on all."""
    by_role: dict[str, dict[str, Any]] = {}
    for role in sorted({role for usage in usages for role in usage["by_role"]}):
        rows = [usage["by_role"][role] for usage in usages if role in usage["by_role"]]
        costs = [row["cost_usd"] for row in rows]
        by_role[role] = {
            **{name: sum(row[name] for row in rows) for name in rows[0] if name not in ("cost_usd", "cached_share")},
            "cost_usd": None if None in costs else sum(costs),
        }
    return _usage(
        by_role,
        {name for usage in usages for name in usage["missing_prices"]},
        {name for usage in usages for name in usage["unchecked_prices"]},
        None,
        sum(usage["not_run_for_cost"] for usage in usages),
    )


def _usage(
    by_role: dict[str, dict[str, Any]], missing: set[str], unchecked: set[str], max_cost: float | None, not_run: int
) -> dict[str, Any]:
    for total in by_role.values():
        prompt = total["prompt_tokens"]
        total["cached_share"] = total["cached_tokens"] / prompt if prompt else None
    costs = [total["cost_usd"] for total in by_role.values()]
    return {
        "by_role": by_role,
        "cost_usd": None if None in costs else sum(costs),
        "missing_prices": sorted(missing),
        "unchecked_prices": sorted(unchecked),
        "max_cost_usd": max_cost,
        "not_run_for_cost": not_run,
    }


def paid_prices(models: Sequence[ModelPlan]) -> dict[tuple[Role, str], Price]:
    """The price of every model by role and model id. Raises `ConfigError` where --max-cost could not be kept."""
    found: dict[tuple[Role, str], Price] = {}
    for model in models:
        where = f"{OPTION_OF[model.role]} {model.spec}"
        if model.kind == "replay":
            continue
        if model.price is None:
            raise ConfigError(
                f"--max-cost: no price is known for {where}; add it to spiral.toml: "
                f'[[model]] match = "{model.model_id}" price = {{ input = ..., output = ... }} (USD per million tokens)'
            )
        unbounded = [suite for suite, params in model.params.items() if not any(name in params for name in LIMITS)]
        if unbounded and (model.price.input or model.price.output):
            raise ConfigError(f"--max-cost: {where} has no token limit; set max_tokens for it in spiral.toml")
        found[model.role, model.model_id] = model.price
    return found
