"""The built-in models: each known way to fail is seen through, the good one passes, and every card is kept as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from pytest_spiral.report.model import Card
from pytest_spiral.tempaffect import self_check
from pytest_spiral.tempaffect.card import build_card
from pytest_spiral.tempaffect.self_check import baselines, check_scorer, dry_scores, fixture_faults, measures_of
from pytest_spiral.tempaffect.shortcuts import SHORTCUTS
from pytest_spiral.tempaffect.stand_ins import DRY_MODELS, MALFORMATIONS
from pytest_spiral.tempaffect.suite import lock
from tests.fakes.bootstrap import few_draws
from tests.tempaffect.cards import SUITE, answers, context

RATES = ("score", "skill", "valid_output_rate", "useful_bounded_response_rate", "ubr_rate_deduped")


OTHERS = [name for name in DRY_MODELS if name not in SHORTCUTS]


@pytest.mark.parametrize("name", OTHERS)
def test_built_in_models_meet_their_limits(name: str) -> None:
    """Every expectation of `limits.toml` holds, and there is one that measures out of line would break."""
    measures = measures_of(dry_scores(name, SUITE))

    assert fixture_faults(name, measures) == []
    assert fixture_faults(name, dict.fromkeys(measures, 0.5)) != []


def test_a_misspelt_limit_is_no_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be met by whatever is measured."""
    (tmp_path / "tempaffect" / "dry").mkdir(parents=True)
    (tmp_path / "tempaffect" / "dry" / "limits.toml").write_text("[perfect]\nscore = { maximum = 99 }\n")
    monkeypatch.setattr(self_check, "data_root", lambda: tmp_path)

    with pytest.raises(ValidationError, match=r"perfect\.score\.maximum"):
        self_check._limits.__wrapped__()


def test_malformations_earn_their_own_codes() -> None:
    """Each of the 25 kinds appears, each under its own reason."""
    reasons = {item.reason.code for item in answers("malformed") if item.reason is not None}

    assert reasons == set(MALFORMATIONS)
    assert len(MALFORMATIONS) == 25


def test_the_preflight_is_clean_and_pinned() -> None:
    """This build's scorer behaves as the pinned one, every time."""
    result = check_scorer(SUITE)

    assert result.faults == ()
    assert result.fingerprint == lock().scorer_fingerprint
    assert SUITE.suite_hash == lock().suite_hash
    assert check_scorer.__wrapped__(SUITE) == result


def digest(card: Card) -> dict[str, Any]:
    """What a person reads of a card, rounded."""
    result = card.model_dump(mode="json")
    rates = {name: [result[name], *bounds(card, name)] for name in RATES}
    families = {
        name: [row["score"], row["useful_bounded_response_rate"], row["band"]]
        for name, row in result["families"].items()
    }
    detectors = {name: [row["value"], row["band"]] for name, row in result["detectors"].items()}
    whole = {
        **rates,
        "families": families,
        "detectors": detectors,
        **{name: result[name] for name in ("fields", "reply_checks", "reasons", "recoverable_format_rate", "cautions")},
        "blockers": result["integrity"]["publication_blockers"],
    }
    return {name: rounded(value) for name, value in whole.items()}


def bounds(card: Card, metric: str) -> list[float]:
    interval = card.intervals[metric]
    return [interval.low, interval.high]


def rounded(value: Any) -> Any:
    """The value with every number rounded to four places."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", OTHERS)
def test_cards(name: str, snapshot: SnapshotAssertion) -> None:
    """The card of every built-in model but the shortcuts, so that no change of the scorer goes unseen."""
    circumstances = context(baselines=baselines(SUITE), built_in=True)
    # The snapshots hold intervals from so many draws.
    with few_draws(200):
        card = build_card(f"dry/{name}", "schema", answers(name), circumstances)

    assert digest(card) == snapshot(extension_class=JSONSnapshotExtension)
