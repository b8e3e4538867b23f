"""List prices of hosted models: those of the package, then those of genai-prices where it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache

from pytest_spiral.models.parameters import Patterns, Price, matches
from pytest_spiral.resources import data_root
from pytest_spiral.tables import Table, read_table

# Tokens of a prompt up to which a price must hold: no request of ours is longer.
_LONGEST_PROMPT = 100_000


class _Entry(Table):
    match: Patterns
    price: Price
    provider: tuple[str, ...] | None = None

    def fits(self, model_id: str, provider: str) -> bool:
        return matches(model_id, self.match) and (self.provider is None or provider in self.provider)


class _Genai(Table):
    stored_on_request: tuple[str, ...]
    provider: Mapping[str, str]


class _File(Table):
    price: tuple[_Entry, ...]
    genai_prices: _Genai


@cache
def _shipped() -> _File:
    return read_table(_File, data_root() / "prices.toml")


def list_price(model_id: str, provider: str) -> Price | None:
    """What a provider's list says, None where that is not known.

    Args:
        provider: Name of the preset, "" for none: then only models that cost the same everywhere have a price.
    """
    shipped = next((entry.price for entry in _shipped().price if entry.fits(model_id, provider)), None)
    found = shipped or _from_genai_prices(model_id, provider)
    return found and found.model_copy(update={"unchecked": True})


def _from_genai_prices(model_id: str, provider: str) -> Price | None:
    try:
        from genai_prices import __version__, data_snapshot, types
    except ImportError:
        return None
    rules = _shipped().genai_prices
    try:
        _, model = data_snapshot.get_snapshot().find_provider_model(model_id, None, rules.provider[provider], None)
    except LookupError:
        return None
    if isinstance(model.prices, list) and any(
        isinstance(each.constraint, types.TimeOfDateConstraint) for each in model.prices
    ):
        # One run may take from cheap hours into dear ones.
        return None
    prices = model.get_prices(datetime.now(UTC))
    numbers = []
    for price in (prices.input_mtok, prices.output_mtok, prices.cache_read_mtok, prices.cache_write_mtok):
        if isinstance(price, types.TieredPrices):
            if any(tier.start < _LONGEST_PROMPT for tier in price.tiers):
                return None
            price = price.base
        numbers.append(None if price is None else float(price))
    read, written, cached, stored = numbers
    if read is None or written is None:
        return None
    if any(fnmatchcase(model_id, pattern) for pattern in rules.stored_on_request):
        stored = None
    return Price(
        input=max(read, stored or 0.0), output=written, cached_input=cached, source=f"genai-prices {__version__}"
    )
