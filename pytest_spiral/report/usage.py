"""Tokens and cost for the terminal, in at most 80 columns: the plan of a run, and what a run used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_spiral.report.lines import Line, plain, wrapped
from pytest_spiral.report.model import Usage

if TYPE_CHECKING:
    from pytest_spiral.run.estimate import Estimate

__all__ = ["plan_lines", "usage_lines"]


def plan_lines(estimates: Sequence[Estimate]) -> Iterator[Line]:
    """The plan of a run: calls, tokens and cost by role and model."""
    if not estimates:
        yield "plan: no calls", "plain"
        return
    yield f"{'plan':<28}{'calls':>8}{'prompt':>12}{'completion':>12}{'USD':>10}{'at most':>10}", "dim"
    for row in estimates:
        tokens = f"{row.calls:>8,}{row.prompt_tokens:>12,}{row.completion_tokens:>12,}"
        name = _fit(f"{row.role} {plain(row.model)}", 28)
        yield f"{name}{tokens}{_usd(row.cost_usd)}{_usd(row.most_usd)}", "plain"
    calls = sum(row.calls for row in estimates)
    prompt = sum(row.prompt_tokens for row in estimates)
    completion = sum(row.completion_tokens for row in estimates)
    cost, most = _total([row.cost_usd for row in estimates]), _total([row.most_usd for row in estimates])
    yield f"{'total':<28}{calls:>8,}{prompt:>12,}{completion:>12,}{_usd(cost)}{_usd(most)}", "plain"
    yield from wrapped(
        "USD: with replies of typical length. At most: with every reply as long as its token limit allows. Retries "
        "and prompt caching are not included. Nothing was sent.",
        "dim",
    )
    yield from _price_notes(
        sorted({row.model for row in estimates if row.cost_usd is None}),
        sorted({row.model for row in estimates if row.unchecked}),
    )


def usage_lines(usage: Usage) -> Iterator[Line]:
    """What a run used, by role; nothing where no tokens were counted."""
    counted = any(row.prompt_tokens or row.completion_tokens for row in usage.by_role.values())
    if not counted and not usage.missing_prices and not usage.not_run_for_cost:
        return
    yield f"{'usage':<12}{'requests':>9}{'prompt':>13}{'cached':>8}{'completion':>13}{'USD':>12}", "dim"
    for role, row in usage.by_role.items():
        cached = "" if row.cached_share is None else f"{row.cached_share:.0%}"
        counts = f"{row.requests:>9,}{row.prompt_tokens:>13,}{cached:>8}{row.completion_tokens:>13,}"
        yield f"  {role:<10}{counts}{_usd(row.cost_usd, 12)}", "plain"
    limit = usage.max_cost_usd
    if usage.cost_usd is not None and (limit is not None or len(usage.by_role) > 1):
        of = "" if limit is None else f" (limit {limit:g})"
        yield f"  cost {usage.cost_usd:.4f} USD{of}", "plain"
    if usage.not_run_for_cost:
        text = f"  {usage.not_run_for_cost} not run because of --max-cost; resume with --run-id and a higher limit"
        yield from wrapped(text, "doubt")
    yield from _price_notes(usage.missing_prices, usage.unchecked_prices)


def _price_notes(missing: Sequence[str], unchecked: Sequence[str]) -> Iterator[Line]:
    if missing:
        yield from wrapped(f"  no price known for {', '.join(map(plain, missing))}: add it to spiral.toml", "doubt")
    if unchecked:
        names = ", ".join(map(plain, unchecked))
        yield from wrapped(f"  unverified list price for {names}: set the price in spiral.toml", "doubt")


def _total(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _usd(cost: float | None, width: int = 10) -> str:
    return f"{'no price':>{width}}" if cost is None else f"{cost:>{width},.4f}" if cost < 10 else f"{cost:>{width},.2f}"


def _fit(text: str, width: int) -> str:
    return f"{text if len(text) < width else text[: width - 2] + '~':<{width}}"
