"""Shortcuts: replies made from the situation without understanding the person, and how far they get."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path

import pytest

from benchmarks.shortcuts import shortcut_result
from pytest_spiral.tempaffect.checks import prepare_reply
from pytest_spiral.tempaffect.checks.decision import read_decision
from pytest_spiral.tempaffect.contract import parse_output
from pytest_spiral.tempaffect.records import Answer
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.self_check import baselines, shortcut_results
from pytest_spiral.tempaffect.shortcuts import SHORTCUTS, TAIL, listed_acts, shortcut_reply
from pytest_spiral.tempaffect.stand_ins import dry_output
from tests.tempaffect.cards import SUITE

MOST = 5
TAILS = (TAIL, " Honestly, I understand.", " Let me know if there is anything else.", " Take care.")
LABELLED = sorted((Path(__file__).parents[2] / "benchmarks" / "labelled_replies").glob("*.jsonl"))


def test_the_pinned_results_are_those_of_this_scorer() -> None:
    """Every shortcut, computed anew; `benchmarks/shortcuts.py` says how to pin new ones."""
    assert {name: shortcut_result(name, SUITE) for name in SHORTCUTS} == shortcut_results()


@pytest.mark.parametrize("name", SHORTCUTS)
def test_shortcuts_are_of_little_use(name: str) -> None:
    """At most 5 useful replies: what is taken from the situation says nothing in words of its own."""
    result = shortcut_results()[name]

    assert result.useful_bounded <= MOST
    assert result.useful_bounded <= result.right_decision <= result.scenarios
    assert result.scenarios >= 8


def test_they_are_baselines() -> None:
    """Reports of the bundled suite show some of them beside the models that do not read."""
    rows = baselines(SUITE)

    assert set(rows) >= {"majority_constant", "random_valid", "facts_copyist", "every_act"}
    assert (
        rows["facts_copyist"]["useful_bounded_response_rate"] == shortcut_results()["facts_copyist"].useful_bounded / 75
    )


@pytest.mark.parametrize("name", SHORTCUTS)
def test_they_are_valid_under_the_right_labels(name: str) -> None:
    """So that only the reply decides."""
    for scenario in SUITE.scenarios:
        answer = parse_output(dry_output(name, SUITE, scenario))
        assert isinstance(answer, Answer)
        assert answer.boundary_action == scenario.expected.boundary_action
        assert answer.reply == (shortcut_reply(name, scenario) or scenario.reference_reply)


def test_the_listed_acts_are_found() -> None:
    """Every situation lists at least four; alternatives that share a verb are acts of their own."""
    assert all(len(listed_acts(scenario)) >= 4 for scenario in SUITE.scenarios)
    assert listed_acts(SUITE["rm-08"])[1:] == ("book the annexe", "book 110 and 111", "book Quay House")
    assert listed_acts(SUITE["pi-07"])[2:] == ("send a private request to Emeka", "send to Lucia")


def replies() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Scenario, reply and tails: all tails for a reference reply, one in turn for every twelfth labelled reply."""
    for scenario in SUITE.scenarios:
        yield scenario.id, scenario.reference_reply, TAILS
    lines = [line for path in LABELLED for line in path.read_text(encoding="utf-8").splitlines()]
    for line, tail in zip(lines[::12], cycle(TAILS), strict=False):
        row = json.loads(line)
        yield row["scenario"], row["reply"], (tail,)


def test_a_tail_changes_no_decision() -> None:
    """A friendly last line after hundreds of replies, good and bad."""
    changed, right = [], []
    for scenario_id, reply, tails in replies():
        key = SUITE[scenario_id].expected.decision
        assert key
        before = read_decision(key, prepare_reply(reply)).right
        right.append(before)
        after = {tail: read_decision(key, prepare_reply(f"{reply}\n{tail}")).right for tail in tails}
        changed += [(scenario_id, tail) for tail in tails if after[tail] != before]

    assert changed == []
    assert len(right) >= 600
    assert 200 <= sum(right) <= len(right) - 200


def decides_rightly(scenario: Scenario, tail: str) -> bool:
    """Whether the reference reply decides rightly with a tail."""
    key = scenario.expected.decision
    return key is not None and read_decision(key, prepare_reply(f"{scenario.reference_reply} {tail}")).right


@cache
def wrong_acts() -> tuple[tuple[Scenario, str], ...]:
    """Wrong acts that count when a reply promises them beside the right one."""
    return tuple(
        (scenario, act.what)
        for scenario in SUITE.scenarios
        if (key := scenario.expected.decision) and not any(act.role == "ask" for act in key.acts)
        for act in key.acts
        if act.role == "wrong" and not decides_rightly(scenario, f"I will {act.what}.")
    )


@pytest.mark.parametrize(
    ("excuse", "most"),
    [
        ("If the wind turns, I will {}.", 20),
        ("Or it will {} by itself.", 20),
        ("The team {} for you now.", 60),
    ],
)
def test_a_wrong_act_beside_the_right_one_needs_more_than_an_excuse(excuse: str, most: int) -> None:
    """Of the wrong acts said by their descriptions: put off to an event, to chance or to somebody else, they count."""
    assert len(wrong_acts()) >= 240
    assert sum(decides_rightly(scenario, excuse.format(what)) for scenario, what in wrong_acts()) <= most
