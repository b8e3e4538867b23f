"""What a run has cost, by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_spiral.chat import TokenUsage as Tokens
from pytest_spiral.models.parameters import Price
from pytest_spiral.report.model import RoleUsage, Usage
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.store import RunStore

_COUNTS = (
    *("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "with_reasoning"),
    *("retries", "failures"),
)


def cost_of(requests: int, tokens: Tokens, price: Price | None) -> float | None:
    """USD of one model's replies; None where its price is unknown, or the endpoint counted no tokens."""
    if price is None:
        return None
    uncounted = requests and not tokens.prompt_tokens + tokens.completion_tokens
    return None if uncounted and (price.input or price.output) else price.cost(tokens)


def usage_by_role(store: RunStore, plan: RunPlan, not_run: int = 0) -> Usage:
    """The report's `usage`: requests, tokens and cost of everything that was answered.

    not_run: items and conversations left out to keep the limit.
    """
    prices = {(model.role, model.model_id): model.price for model in plan.everybody}
    by_role: dict[str, list[RoleUsage]] = {}
    missing: set[str] = set()
    unchecked: set[str] = set()
    for row in store.usage():
        price = prices.get((row.role, row.model))
        cost = cost_of(row.requests, Tokens(row.prompt_tokens, row.cached_tokens, row.completion_tokens), price)
        if cost is None:
            missing.add(row.model)
        if cost and price is not None and price.unchecked:
            unchecked.add(row.model)
        usage = RoleUsage(**{name: getattr(row, name) for name in _COUNTS}, cost_usd=cost, cached_share=None)
        by_role.setdefault(row.role, []).append(usage)
    return _usage(by_role, missing, unchecked, plan.settings.max_cost, not_run)


def merge_usage(usages: Sequence[Usage]) -> Usage:
    """The usage of several reports together. A limit on the cost of one of them is none on all."""
    return _usage(
        {
            role: [usage.by_role[role] for usage in usages if role in usage.by_role]
            for role in sorted({role for usage in usages for role in usage.by_role})
        },
        {name for usage in usages for name in usage.missing_prices},
        {name for usage in usages for name in usage.unchecked_prices},
        None,
        sum(usage.not_run_for_cost for usage in usages),
    )


def _usage(
    by_role: Mapping[str, Sequence[RoleUsage]],
    missing: set[str],
    unchecked: set[str],
    max_cost: float | None,
    not_run: int,
) -> Usage:
    def total(costs: Sequence[float | None]) -> float | None:
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    totals = {}
    for role, rows in by_role.items():
        counts = {name: sum(getattr(row, name) for row in rows) for name in _COUNTS}
        prompt = counts["prompt_tokens"]
        cached = counts["cached_tokens"] / prompt if prompt else None
        totals[role] = RoleUsage(**counts, cost_usd=total([row.cost_usd for row in rows]), cached_share=cached)
    return Usage(
        by_role=totals,
        cost_usd=total([row.cost_usd for row in totals.values()]),
        missing_prices=tuple(sorted(missing)),
        unchecked_prices=tuple(sorted(unchecked)),
        max_cost_usd=max_cost,
        not_run_for_cost=not_run,
    )
