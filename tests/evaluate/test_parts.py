"""Parts of an evaluation that fail: named, with every other part in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

import pytest

from pytest_spiral.evaluate import report as evaluation
from pytest_spiral.evaluate import spiral
from pytest_spiral.evaluate.report import evaluate, without_statistics
from pytest_spiral.evaluate.verdict import exit_code
from pytest_spiral.report.model import Report
from pytest_spiral.report.model.parts import FailedPart, PartCode
from pytest_spiral.report.parts import Parts, describe
from pytest_spiral.spiral import aggregate
from pytest_spiral.tempaffect import card as card_module
from pytest_spiral.tempaffect import card_metrics
from pytest_spiral.tempaffect.card_metrics import metric_names, needs_detectors
from tests.fakes.bootstrap import few_draws
from tests.html.reports import BAD, DEMO_GATES, GOOD, demo_results

CARDS = [f"{model}, {mode}" for model in (GOOD, BAD) for mode in ("raw_json", "schema_assisted")]
MODELS = [GOOD, BAD]


def broken(*_args: object) -> NoReturn:
    """Any statistic, with a fault."""
    raise ZeroDivisionError("nobody thought of this")


def evaluated(*gates: str) -> Report:
    """The demo run's results, evaluated with few draws."""
    with few_draws(10):
        return evaluate(demo_results(*gates))


@pytest.fixture(scope="module")
def undisturbed() -> Report:
    """The same without any fault."""
    return evaluated(*DEMO_GATES)


def names(report: Report) -> set[str]:
    return {part.part for part in report.failed_parts}


STATISTICS = {
    "build_card": [f"tempaffect.cards[{card}]" for card in CARDS],
    "mode_delta": [f"tempaffect.deltas[{model}]" for model in MODELS],
    "score_of": [f"spiral.scores[{model}]" for model in MODELS],
    "agreement": [f"spiral.scores[{model}].judges.agreement" for model in MODELS],
    "variance_summary": [f"spiral.scores[{model}].variance" for model in MODELS],
    "spiral_profile": [f"profile.spiral[{model}]" for model in MODELS],
    "tempaffect_profile": [f"profile.tempaffect[{card}]" for card in CARDS],
    "card_row": [f"gates[tempaffect.ubr_rate_deduped >= 0.7, {card}]" for card in CARDS],
}


@pytest.mark.parametrize(
    "failing",
    [("build_card", "score_of", "spiral_profile"), ("mode_delta", "card_row", "variance_summary"), tuple(STATISTICS)],
    ids=["some", "others", "all"],
)
def test_every_statistic_is_a_part(
    monkeypatch: pytest.MonkeyPatch, undisturbed: Report, failing: tuple[str, ...]
) -> None:
    """Whichever raise, all measurements and all other parts are those of an undisturbed evaluation."""
    for name in failing:
        monkeypatch.setattr(spiral if name in ("agreement", "variance_summary") else evaluation, name, broken)

    report = evaluated(*DEMO_GATES)

    # A gate without its card and a remark without its score are not tried.
    needed = {"card_row": "build_card"} | dict.fromkeys(("agreement", "variance_summary"), "score_of")
    expected = {part for name in failing if needed.get(name) not in failing for part in STATISTICS[name]}
    assert names(report) == expected
    assert {part.code for part in report.failed_parts} == {PartCode.ERROR}
    assert report.tempaffect.items == undisturbed.tempaffect.items
    assert report.spiral.conversations == undisturbed.spiral.conversations
    kept: dict[str, Callable[[Report], tuple[object, ...]]] = {
        "build_card": lambda report: report.tempaffect.cards,
        "mode_delta": lambda report: report.tempaffect.deltas,
        "tempaffect_profile": lambda report: report.profile.tempaffect,
        "spiral_profile": lambda report: report.profile.spiral,
        "score_of": lambda report: tuple(score.unrounded for score in report.spiral.scores),
    }
    for name, of in kept.items():
        assert of(report) == (() if name in failing else of(undisturbed))


CARD_PARTS: dict[str, tuple[object, str, set[str]]] = {
    # What raises, and what a card then lacks.
    "detectors": (card_metrics, "detect", {"detectors", "ubr_rate_deduped", "given_valid", "cautions"}),
    "given_valid": (card_module, "_given_valid", {"given_valid"}),
    "balanced_accuracy": (card_module, "_balanced_accuracies", {"balanced_accuracy"}),
    "variance": (card_module, "_variance", {"variance"}),
    "intervals": (card_metrics, "wilson", set()),
}


@pytest.mark.parametrize("part", CARD_PARTS)
def test_every_statistic_of_a_card_is_a_part(monkeypatch: pytest.MonkeyPatch, undisturbed: Report, part: str) -> None:
    """Each that raises is named, by metric where there are several, and costs itself and the gates on it."""
    module, name, fields = CARD_PARTS[part]
    monkeypatch.setattr(module, name, broken)

    report = evaluated(*DEMO_GATES)

    of_gates = {name for name in names(report) if name.startswith("gates[tempaffect.ubr_rate_deduped ")}
    of_cards = names(report) - of_gates
    assert {name.partition("].")[2].split(".")[0] for name in of_cards} == {part}
    assert len({name.partition("].")[0] for name in of_cards}) == len(CARDS)
    assert bool(of_gates) == (part == "detectors")
    assert (report.profile, report.tempaffect.deltas) == (undisturbed.profile, undisturbed.tempaffect.deltas)
    assert [score.unrounded for score in report.spiral.scores] == [s.unrounded for s in undisturbed.spiral.scores]
    for card, before in zip(report.tempaffect.cards, undisturbed.tempaffect.cards, strict=True):
        lost = {
            name.partition("].intervals.")[2] for name in of_cards if f"[{card.model}, {card.prompting_mode}]" in name
        }
        lost |= {name for name in before.intervals if needs_detectors(name)} if part == "detectors" else set()
        assert card.intervals == {name: row for name, row in before.intervals.items() if name not in lost}
        left_out = {*fields, "intervals", "integrity"}
        assert card.model_dump(exclude=left_out) == before.model_dump(exclude=left_out)
        if part == "detectors":
            assert (card.ubr_rate_deduped, card.given_valid["ubr_rate_deduped"]) == (None, None)
            assert {row.value for row in card.detectors.values()} == {None}
            assert "B07 template repetition could not be computed" in card.integrity.publication_blockers
        else:
            assert card.integrity == before.integrity


SCORE_PARTS: Mapping[str, tuple[object, str]] = {
    "categories": (aggregate, "_categories"),
    "trajectory": (aggregate, "trajectory"),
    "simulator_health": (spiral, "_simulator"),
    "over_correction": (spiral, "over_correction"),
    "repeated_replies": (spiral, "repeated_share"),
    "judges.health.suspected": (spiral, "_suspected"),
    "judges.calibration": (spiral, "_calibrations"),
    "judges.per_judge[{judge}].retest.again": (spiral, "firmness"),
    "judges.per_judge[{judge}].retest.reordered": (spiral, "firmness"),
}


def test_every_statistic_of_a_score_is_a_part(monkeypatch: pytest.MonkeyPatch, undisturbed: Report) -> None:
    """Each that raises is named; score, means, tails and gates stay; the checks that publication needs block it."""
    for module, name in SCORE_PARTS.values():
        monkeypatch.setattr(module, name, broken)

    report = evaluated(*DEMO_GATES)

    judges = undisturbed.spiral.scores[0].judges.per_judge
    parts = {part.format(judge=judge) for part in SCORE_PARTS for judge in judges}
    assert names(report) == {f"spiral.scores[{model}].{part}" for model in MODELS for part in parts}
    assert report.gates == undisturbed.gates
    for score, before in zip(report.spiral.scores, undisturbed.spiral.scores, strict=True):
        lost = {*list(SCORE_PARTS)[:5], "judges", "blockers"}
        assert score.model_dump(exclude=lost) == before.model_dump(exclude=lost)
        assert (score.categories, score.trajectory, score.simulator_health) == ({}, None, None)
        assert score.judges.health.suspected is None
        assert {blocker[:3] for blocker in score.blockers} == {blocker[:3] for blocker in before.blockers} | {
            "S06",
            "S07",
            "S08",
            "J05",
        }


def test_every_rate_of_a_card_is_a_part(monkeypatch: pytest.MonkeyPatch, undisturbed: Report) -> None:
    """A rate that cannot be computed is null and named, costs no other, and the card may not be published."""
    failing = {"valid_output_rate", "fields.intensity", "families.repair_after_mistake.score"}
    compute = card_metrics.CardMetrics.value

    def value(metrics: card_metrics.CardMetrics, name: str) -> float | None:
        return broken() if name in failing else compute(metrics, name)

    monkeypatch.setattr(card_metrics.CardMetrics, "value", value)

    report = evaluated(*DEMO_GATES)

    assert names(report) == {f"tempaffect.cards[{card}].{name}" for card in CARDS for name in failing}
    assert report.gates == undisturbed.gates
    for card, before in zip(report.tempaffect.cards, undisturbed.tempaffect.cards, strict=True):
        assert {name for name in metric_names() if card.value(name) != before.value(name)} == failing
        assert card.intervals == before.intervals
        assert "B12 valid_output_rate could not be computed" in card.integrity.publication_blockers


@pytest.mark.parametrize(("name", "suite"), [("build_card", "tempaffect"), ("score_of", "spiral")])
def test_a_gate_that_needs_a_failed_part_is_undecided(
    monkeypatch: pytest.MonkeyPatch, undisturbed: Report, name: str, suite: str
) -> None:
    """It never passes, and the other suite's gates are decided as ever."""
    monkeypatch.setattr(evaluation, name, broken)

    report = evaluated(*DEMO_GATES)

    assert len(report.gates) == len(undisturbed.gates)
    for row, before in zip(report.gates, undisturbed.gates, strict=True):
        if row.metric.startswith(suite):
            assert (row.outcome, row.reason.code.value, row.value) == ("incomplete", "part_failed", None)
        else:
            assert row == before


def test_no_verdict_says_that_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no gate needs the part: without gates the verdict is not `measured`, with gates not `pass`."""
    monkeypatch.setattr(evaluation, "tempaffect_profile", broken)

    assert evaluated("tempaffect.score <= 1").verdict == "incomplete"
    assert evaluated().verdict == "incomplete"


def test_measurements_alone_are_a_report(undisturbed: Report) -> None:
    """What is written before the evaluation holds every item and message, and says what it lacks."""
    whole, raw = undisturbed, without_statistics(demo_results(*DEMO_GATES))

    assert [(part.part, part.code) for part in raw.failed_parts] == [("statistics", PartCode.NOT_EVALUATED)]
    assert (raw.verdict, raw.gates, raw.tempaffect.cards, raw.spiral.scores) == ("incomplete", (), (), ())
    assert (raw.tempaffect.items, raw.tempaffect.scenarios) == (whole.tempaffect.items, whole.tempaffect.scenarios)
    assert list(raw.spiral.recorded()) == list(whole.spiral.recorded())
    assert (raw.run, raw.usage, raw.integrity) == (whole.run, whole.usage, whole.integrity)


def test_a_failure_is_told_on_one_line() -> None:
    """With its place, without control characters, bounded; a time limit has a code of its own; Ctrl-C goes through."""
    parts = Parts()

    def fails(error: BaseException) -> None:
        raise error

    assert parts.attempt("fine", lambda: 7) == 7
    assert parts.attempt("long", fails, ValueError("a\n\x1b[31m\ud800b" * 1000)) is None
    assert parts.attempt("late", fails, TimeoutError("60 s")) is None
    with pytest.raises(KeyboardInterrupt):
        parts.attempt("interrupted", fails, KeyboardInterrupt())

    long, late = parts.failed
    assert (long.part, long.code, late.code) == ("long", PartCode.ERROR, PartCode.TIMEOUT)
    assert long.detail.startswith("ValueError: a [31mba [31mb")
    assert len(long.detail) < 400
    assert late.detail.startswith("TimeoutError: 60 s (test_parts.py:")
    assert FailedPart.model_validate_json(long.model_dump_json()) == long
    assert describe(ValueError()) == "ValueError"


def test_a_failed_part_comes_before_a_failed_gate() -> None:
    """By precedence: only a usage error comes before it."""
    assert [exit_code(status, "fail", True, True) for status in (0, 1, 2, 3, 4, 5)] == [3, 3, 3, 3, 4, 3]
