"""List prices: dated, sourced, the project's own first, and none where none is known."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pytest_spiral.models.parameters import Price
from pytest_spiral.models.prices import list_price
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import ModelPlan, make_plan
from pytest_spiral.settings import Settings


def test_every_shipped_price_has_a_date_and_a_source() -> None:
    """Whoever doubts a price finds where it is from."""
    prices = [entry["price"] for entry in read_toml(data_root() / "prices.toml")["price"]]

    assert [price for price in prices if not re.fullmatch(r"\d{4}-\d\d(-\d\d)?", price.get("as_of", ""))] == []
    assert [price for price in prices if not price.get("source", "").startswith("https://")] == []


def planned(folder: Path, environ: dict[str, str], settings: Settings) -> tuple[ModelPlan, ...]:
    return make_plan(settings, Content(settings, folder), environ, datetime.now(UTC)).everybody


def test_a_run_with_defaults_has_all_its_prices(tmp_path: Path) -> None:
    """`--max-cost` needs no file: simulated user and judge that nobody named have prices and reasoning in plans."""
    everybody = planned(tmp_path, {"OPENROUTER_API_KEY": "k" * 12}, Settings(model=("openai/gpt-4.1-mini",)))

    assert [model.role for model in everybody] == ["evaluated", "user", "judge"]
    assert [model.spec for model in everybody if model.price is None or not model.price.input] == []
    assert (everybody[2].spec, everybody[2].reasoning_tokens) == ("openai/gpt-6.1-sol", 1000)


def test_the_projects_price_goes_first(tmp_path: Path) -> None:
    """And it is not called unverified."""
    (tmp_path / "spiral.toml").write_text('[[model]]\nmatch = "gpt-5"\nprice = { input = 9, output = 9 }\n')

    model = planned(tmp_path, {"OPENAI_API_KEY": "k" * 12}, Settings(model=("gpt-5",), suite=("tempaffect",)))[0]

    assert model.price == Price(input=9, output=9)


@pytest.mark.parametrize(
    ("name", "provider", "price"),
    [
        ("GPT-5-2025-08-07", "azure-v1", 1.25),
        ("gpt-5-chat-latest", "openai", None),
        ("gpt-6.1-sol", "openai", 2.50),
        ("gpt-5-mini", "", 0.25),
        ("openai/gpt-oss-120b", "groq", 0.15),
        ("openai/gpt-oss-120b", "vllm", None),
        ("my-model", "openai", None),
    ],
)
def test_open_weights_are_priced_by_provider(
    monkeypatch: pytest.MonkeyPatch, name: str, provider: str, price: float | None
) -> None:
    """The same weights on a server of one's own cost something else."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)

    found = list_price(name, provider)

    assert (found and found.input) == price
    assert found is None or found.unchecked


class Tiered(SimpleNamespace):
    """Prices that depend on the length of the prompt."""


class TimeOfDate(SimpleNamespace):
    """Prices that hold at some hours."""


def rates(reading: object, writing: object, **more: object) -> SimpleNamespace:
    found = {"input_mtok": reading, "output_mtok": writing, "cache_read_mtok": None, "cache_write_mtok": None}
    return SimpleNamespace(**found | more)


LONG = Tiered(base=Decimal(2), tiers=[SimpleNamespace(start=200_000)])
SHORT = Tiered(base=Decimal(2), tiers=[SimpleNamespace(start=8_000)])
AT_NIGHT = [SimpleNamespace(constraint=TimeOfDate(), prices=rates(Decimal(1), Decimal(1)))]


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        (rates(Decimal(2), Decimal(8), cache_read_mtok=Decimal("0.5")), (2.0, 0.5, 8.0)),
        (rates(LONG, Decimal(8)), (2.0, None, 8.0)),
        (rates(SHORT, Decimal(8)), None),
        (rates(Decimal(2), Decimal(8), cache_write_mtok=Decimal("2.5")), (2.5, None, 8.0)),
        (rates(None, None), None),
        (AT_NIGHT, None),
    ],
    ids=["plain", "long-prompts", "tiers", "cache-writes", "free", "hours"],
)
def test_genai_prices_fills_the_gaps(
    monkeypatch: pytest.MonkeyPatch, prices: object, expected: tuple[float, ...] | None
) -> None:
    """Only prices that hold for every request of a run; a limit on cost must never be too low a bound."""
    asked = []

    def find(model: str, provider: None, name: str, url: None) -> tuple[None, SimpleNamespace]:
        asked.append((model, name))
        return None, SimpleNamespace(prices=prices, get_prices=lambda now: prices)

    package = ModuleType("genai_prices")
    snapshot = SimpleNamespace(find_provider_model=find)
    vars(package).update(
        __version__="1.2",
        data_snapshot=SimpleNamespace(get_snapshot=lambda: snapshot),
        types=SimpleNamespace(TieredPrices=Tiered, TimeOfDateConstraint=TimeOfDate),
    )
    monkeypatch.setitem(sys.modules, "genai_prices", package)

    found = list_price("gemini-9", "gemini")

    assert asked == [("gemini-9", "google")]
    assert list_price("gemini-9", "") is None
    assert (found and (found.input, found.cached_input, found.output)) == expected
    if found:
        assert found.source == "genai-prices 1.2"
