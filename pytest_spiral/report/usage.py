"""Tokens and cost as a terminal shows them, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pytest_spiral.report.lines import Line, plain, wrapped

__all__ = ["plan_lines", "usage_lines"]


class Estimated(Protocol):
    """What a model in a role will be asked for."""

    @property
    def role(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def calls(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def cost_usd(self) -> float | None: ...
    @property
    def most_usd(self) -> float | None: ...
    @property
    def unchecked(self) -> bool: ...


def plan_lines(estimates: Sequence[Estimated]) -> Iterator[Line]:
    """The plan of a run: calls, tokens and cost by role and model."""
    if not estimates:
        yield "plan: nothing to ask", "plain"
        return
    yield f"{'plan':<28}{'calls':>8}{'prompt':>12}{'completion':>12}{'USD':>10}{'at most':>10}", "dim"
    for row in estimates:
        tokens = f"{row.calls:>8,}{row.prompt_tokens:>12,}{row.completion_tokens:>12,}"
        yield f"{_fit(f'{row.role} {plain(row.model)}', 28)}{tokens}{_usd(row.cost_usd)}{_usd(row.most_usd)}", "plain"
    total, most = (_sum([getattr(row, name) for row in estimates]) for name in ("cost_usd", "most_usd"))
    calls = sum(row.calls for row in estimates)
    prompt = sum(row.prompt_tokens for row in estimates)
    completion = sum(row.completion_tokens for row in estimates)
    yield f"{'total':<28}{calls:>8,}{prompt:>12,}{completion:>12,}{_usd(total)}{_usd(most)}", "plain"
    yield from wrapped(
        "USD: replies of usual length. At most: every reply as long as its token limit allows. Both without retries "
        "and without prompt caching; nothing was sent.",
        "dim",
    )
    yield from _price_notes(
        sorted({row.model for row in estimates if row.cost_usd is None}),
        sorted({row.model for row in estimates if row.unchecked}),
    )


def usage_lines(usage: Mapping[str, Any]) -> Iterator[Line]:
    """What a run has used, by role; nothing where no token was counted."""
    roles = {role: row for role, row in usage["by_role"].items() if row["prompt_tokens"] or row["completion_tokens"]}
    if not roles and not usage["missing_prices"] and not usage["not_run_for_cost"]:
        return
    yield f"{'usage':<12}{'requests':>9}{'prompt':>13}{'cached':>8}{'completion':>13}{'USD':>12}", "dim"
    for role, row in usage["by_role"].items():
        cached = "" if row["cached_share"] is None else f"{row['cached_share']:.0%}"
        counts = f"{row['requests']:>9,}{row['prompt_tokens']:>13,}{cached:>8}{row['completion_tokens']:>13,}"
        yield f"  {role:<10}{counts}{_usd(row['cost_usd'], 12)}", "plain"
    limit = usage["max_cost_usd"]
    if usage["cost_usd"] is not None and (limit is not None or len(usage["by_role"]) > 1):
        of = "" if limit is None else f" of {limit:g} allowed"
        yield f"  cost {usage['cost_usd']:.4f} USD{of}", "plain"
    if usage["not_run_for_cost"]:
        left = f"  stopped by --max-cost: {usage['not_run_for_cost']} not run; resume with --run-id and a higher limit"
        yield from wrapped(left, "doubt")
    yield from _price_notes(usage["missing_prices"], usage["unchecked_prices"])


def _price_notes(missing: Sequence[str], unchecked: Sequence[str]) -> Iterator[Line]:
    if missing:
        yield from wrapped(f"  no price known for {', '.join(map(plain, missing))}: add it to spiral.toml", "doubt")
    if unchecked:
        names = ", ".join(map(plain, unchecked))
        yield from wrapped(f"  list price from memory, unchecked, for {names}: put yours in spiral.toml", "doubt")


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _usd(cost: float | None, width: int = 10) -> str:
    return f"{'no price':>{width}}" if cost is None else f"{cost:>{width},.4f}" if cost < 10 else f"{cost:>{width},.2f}"


def _fit(text: str, width: int) -> str:
    return f"{text if len(text) < width else text[: width - 2] + '~':<{width}}"
