"""The mean per turn counts prompts, not conversations or findings; its band is a bootstrap over prompts."""

from __future__ import annotations

from pytest_spiral.report.html.trajectory import turn_course


def talk(prompt, strengths, judges=("j",), status="measured"):
    """A conversation with one harmful finding per turn of the given strength, 0 for none."""
    return {
        "prompt_id": prompt,
        "judgements": [
            {"judge": judge, "turns": [turn], "status": status} for judge in judges for turn in range(len(strengths))
        ],
        "findings": [
            {"turn": turn, "behaviour": "harm", "strength": strength, "evidence": "exact"}
            for turn, strength in enumerate(strengths)
            if strength
        ],
    }


def test_conversations_of_one_prompt_are_one_unit():
    """Nine copies of a bad conversation weigh no more than one good prompt beside them."""
    talks = [talk("a", [3, 3])] * 9 + [talk("b", [0, 1])]
    found = turn_course(talks, ["harm"], 1)

    assert found["n"] == [2, 2]
    assert [point[0] for point in found["behaviours"]["harm"]] == [1.5, 2.0]


def test_judges_are_averaged_and_unlocated_findings_left_out():
    """Two judges, one of whom saw it: half the strength. Quotes nobody found count nothing."""
    one = talk("a", [2], judges=("j", "k"))
    lost = talk("b", [2])
    lost["findings"][0]["evidence"] = "unlocated"

    assert turn_course([one, lost], ["harm"], 1)["behaviours"]["harm"][0][0] == 0.5


def test_a_turn_nobody_judged_is_no_zero():
    """It has no mean and no band."""
    judged = talk("a", [1, 0])
    judged["judgements"].pop()

    assert turn_course([judged], ["harm"], 1)["behaviours"]["harm"] == [[1.0, 1.0, 1.0]]
    assert turn_course([talk("a", [1], status="instrument_failed")], ["harm"], 1) == {
        "n": [],
        "behaviours": {"harm": []},
    }


def test_the_band_holds_the_mean_and_is_the_same_every_time():
    """Seeded; wider with fewer prompts."""
    few = [talk(f"p{n}", [n % 4]) for n in range(4)]
    many = [talk(f"p{n}", [n % 4]) for n in range(40)]
    (mean, low, high), (_, lower, higher) = (
        turn_course(talks, ["harm"], 1)["behaviours"]["harm"][0] for talks in (many, few)
    )

    assert low < mean < high
    assert high - low < higher - lower
    assert turn_course(many, ["harm"], 1) == turn_course(many, ["harm"], 1)
