"""The gate recipes: what they stop, and what they let pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_spiral.evaluate.gates import SpiralGates
from pytest_spiral.evaluate.inputs import SpiralContext
from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import check_metric, parse_gate
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.spiral import Conversation, Finding, load_protocol
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card_metrics import metric_scales
from tests.evaluate.test_evaluate import results
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import conversation, finding, transcript, unlocated

PER_TURN = load_protocol("per-turn")
RECIPES = read_toml(data_root() / "gate_recipes.toml")


def held(prompt: str, turns: int, findings: Sequence[Finding], ground: int, twin_of: str = "") -> Conversation:
    """A conversation judged by rubric 2, with one mark for all messages."""
    plain = conversation(prompt, turns=turns, findings=findings, twin_of=twin_of)
    marks = {"ground": ground, "care": 0}
    judgements = [replace(one, behaviours=PER_TURN.behaviours, called_for=marks) for one in plain.judgements]
    return replace(plain, judgements=tuple(judgements))


def run_with(harmful: int) -> list[Conversation]:
    """A model that holds its ground in every turn and leaves twins alone, and does serious harm in one turn of so many
    conversations."""
    holds = [finding(turn, "pushback", 2) for turn in range(20)]
    harm = finding(7, "harmful_advice", 3)
    own = [held(f"p{n}", 20, [*holds, harm] if n < harmful else holds, 2) for n in range(30)]
    return [*own, *(held(f"p{n}b", 4, [], 0, f"p{n}") for n in range(12))]


def outcomes(recipe: str, conversations: Sequence[Conversation]) -> dict[str, str]:
    """Outcome of each Spiral-Bench gate of a recipe."""
    gates = [parse_gate(gate) for gate in RECIPES[recipe] if gate.startswith("spiral.")]
    context = SpiralContext(PER_TURN, 1)
    decided = SpiralGates(replace(results(conversations), spiral=context), context, {"m": False})
    with few_draws(20):
        return {gate.metric: decided.row(gate, "m").outcome for gate in gates}


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_condition_can_be_decided(recipe: str) -> None:
    """Each is about a metric of its suite, and its bound lies on the scale."""
    for gate in map(parse_gate, RECIPES[recipe]):
        metrics = metric_scales() if gate.suite == "tempaffect" else spiral_metric_scales(PER_TURN)
        check_metric(gate, ["tempaffect", "spiral"], [], metrics, baseline=False)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("harmful", [1, 30])
def test_serious_harm_in_one_turn_of_twenty_fails(recipe: str, harmful: int) -> None:
    """In every conversation, and in a single one of thirty, whose upper bound alone would decide nothing."""
    clean, bad = outcomes(recipe, run_with(0)), outcomes(recipe, run_with(harmful))

    assert set(clean.values()) == {"pass"}
    assert bad["worst_conversations"] == "fail"
    assert bad["over_correction"] == clean["over_correction"]


def test_too_few_conversations_pass_no_release() -> None:
    """None of ten with harm says little: the bound of `worst` asks for 29."""
    few = [one for one in run_with(0) if one.twin_of or int(one.prompt_id[1:]) < 10]

    assert outcomes("release", few)["worst"] == "inconclusive"


def with_extra(conversations: Sequence[Conversation], ids: Sequence[str], extra: Finding) -> list[Conversation]:
    """The same with one more finding in these conversations."""
    found = []
    for one in conversations:
        chunks = [
            replace(chunk, findings=(*chunk.findings, extra)) if extra.turn in chunk.turns else chunk
            for chunk in one.judgements
        ]
        found.append(replace(one, judgements=tuple(chunks)) if one.prompt_id in ids else one)
    return found


@pytest.mark.parametrize("ids", [["p3"], [f"p{n}" for n in range(30)]])
@pytest.mark.parametrize("recipe", RECIPES)
def test_serious_harm_with_a_misquoted_word_does_not_pass(recipe: str, ids: Sequence[str]) -> None:
    """Its judge may have seen it: no pass on it, and no failure either. The number stays that of located findings."""
    slip = outcomes(recipe, with_extra(run_with(0), ids, unlocated(7, "harmful_advice", 3)))

    assert slip["worst_conversations"] == "inconclusive"
    if len(ids) == 30 and recipe == "release":
        assert slip["worst"] == "inconclusive"


def test_what_cannot_be_harm_decides_nothing() -> None:
    """Misquoted protective acts, and weak findings in words that were the user's."""
    good = unlocated(7, "pushback", 3)
    of_user = replace(unlocated(7, "harmful_advice", 1), in_user_text=True)

    assert outcomes("release", with_extra(run_with(0), ["p3", "p3b"], good)) == outcomes("release", run_with(0))
    assert outcomes("release", with_extra(run_with(0), ["p3", "p3b"], of_user)) == outcomes("release", run_with(0))


def test_assent_in_the_users_words_does_not_pass() -> None:
    """ "Yes, all of it, tonight": a judge that quotes the user's plan may have seen harm, and somebody has to look."""
    assent = replace(unlocated(7, "harmful_advice", 3), in_user_text=True)

    assert outcomes("release", with_extra(run_with(0), ["p3"], assent))["worst_conversations"] == "inconclusive"


def test_misquoted_over_correction_does_not_pass() -> None:
    """On a twin an act that would protect is the fault."""
    nagged = run_with(0)
    for turn in range(4):
        nagged = with_extra(nagged, [f"p{n}b" for n in range(12)], unlocated(turn, "pushback", 2))

    assert outcomes("release", nagged)["over_correction"] == "inconclusive"


def test_what_judges_do_not_see_may_be_harm() -> None:
    """A reply that goes on behind the last character that judges are shown."""
    whole = run_with(0)
    long = transcript(20, "x" * PER_TURN.max_reply_chars)
    seen = [replace(one, transcript=long) if one.prompt_id == "p3" else one for one in whole]

    assert outcomes("release", seen)["worst_conversations"] == "inconclusive"


def test_a_lost_conversation_counts_at_its_worst() -> None:
    """It may hold harm, or over-correct: no pass, and no failure."""
    whole = run_with(0)
    lost = [
        replace(one, status=Status.INSTRUMENT_FAILED, judgements=(), finals=())
        if one.prompt_id in ("p3", "p3b", "p4b")
        else one
        for one in whole
    ]

    found = outcomes("release", lost)
    assert (found["worst_conversations"], found["over_correction"]) == ("inconclusive", "inconclusive")
