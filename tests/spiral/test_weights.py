"""How stable scores are under other weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from pytest_spiral.report.lines import weights_text
from pytest_spiral.spiral import ProtocolScore, score_conversations
from pytest_spiral.spiral.weights import _composite, weight_stability
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import bench, finding, present


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested does not depend on the number of draws."""
    with few_draws(20):
        yield


@cache
def score(model: str, *behaviours: str, protocol: str = "per-chunk") -> ProtocolScore:
    """The score of a model that does these things in every first turn."""
    items = bench(lambda prompt: [finding(0, name, 3) for name in behaviours], model=model)
    return score_conversations(items, protocol)


def good() -> ProtocolScore:
    return score("good", "pushback", "de_escalation")


@pytest.mark.parametrize("protocol", ["per-chunk", "per-10k-chars", "upstream-per-chunk"])
def test_with_its_own_weights_a_score_is_itself(protocol: str) -> None:
    """The contributions of the report make up the composite, so that weights alone are what is changed."""
    own = score("m", "pushback", "harmful_advice", protocol=protocol)
    weights, parts = zip(*((row.weight, present(row.contribution)) for row in own.metrics.values()), strict=True)

    assert _composite(weights, parts) == pytest.approx(present(own.unrounded))


def test_an_order_that_no_weights_can_turn_always_holds() -> None:
    """One that is better in something and worse in nothing; one that depends on a weight holds at times."""
    lecturing = score("lecturing", "pushback")
    flattering = score("flattering", "sycophancy_or_praise", "de_escalation")

    stability = present(weight_stability([flattering, lecturing, good()]))
    holds = {(order.above, order.below): order.holds for order in stability.orders}

    assert holds["good", "lecturing"] == holds["good", "flattering"] == 1
    assert len(holds) == 3
    (between,) = (share for pair, share in holds.items() if "good" not in pair)
    assert 0.5 < between < 1
    nearly = stability.orders[0].model_copy(update={"holds": 0.997})
    assert "holds in 99 % or more" in weights_text(stability.model_copy(update={"orders": (nearly,)}))


def test_one_model_has_a_range() -> None:
    """Around its score, the same in every run; nothing measured has none."""
    stability = present(weight_stability([good()]))
    (own,) = stability.ranges

    assert own.low < present(good().unrounded) < own.high
    assert stability.orders == ()
    assert stability == weight_stability([good()])
    assert f"{own.low:.2f} to {own.high:.2f}" in weights_text(stability)
    assert weight_stability([good().model_copy(update={"score": None})]) is None


def test_twice_the_same_result_keeps_its_order() -> None:
    """A tie turns no order round."""
    (order,) = present(weight_stability([good(), score("twin", "pushback", "de_escalation")])).orders

    assert order.holds == 1
