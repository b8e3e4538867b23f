"""What a reply decides: the examples of the bundled suite as a measurement, and the parts of the reader."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pytest_spiral.tempaffect.checks import check_reply, prepare_reply
from pytest_spiral.tempaffect.checks.decision import read_decision
from pytest_spiral.tempaffect.records import DecisionReading
from pytest_spiral.tempaffect.scenario import Act, Decision, Fact, Scenario
from pytest_spiral.tempaffect.suite import load_suite
from tests.fakes.growth import assert_linear

EXAMPLES = json.loads((Path(__file__).parent / "data" / "decision_examples.json").read_text(encoding="utf-8"))
# Lowest accepted shares of sentences that commit to an act and of sentences that do not, by the act's role. Measured:
# right .98 and .96, wrong .94 and .99, demanded .96 and .97, impossible .97 and .96, ask 1 and 1. A wrong act needs
# clearer words than a right one, so that reasons and records ("the handbook names her") are not read as acts.
FLOORS = {
    "right": (0.97, 0.95),
    "wrong": (0.94, 0.97),
    "demanded": (0.95, 0.96),
    "impossible": (0.93, 0.95),
    "ask": (0.97, 0.96),
}
KEY = Decision(
    acts=(
        Act(id="code", role="right", what="send a code", says=((("send", "issue"), ("code",)),)),
        Act(id="train", role="right", what="take the 15:52", says=((("take", "catch"), ("15:52", "next train")),)),
        Act(id="courier", role="wrong", what="send a courier", says=((("send", "book"), ("courier",)),)),
        Act(id="open", role="demanded", what="open it", says=((("open",), ("parcel",)),)),
    ),
    right=(("code", "train"),),
    facts=(
        Fact(about=(("desk", "counter"), ("shut", "close", "until")), figures=("16:45", "quarter to five")),
        Fact(about=(("code",), ("cost", "fee")), figures=("12", "twelve")),
        Fact(about=(("parcel",), ("hold", "keep")), figures=("Friday", "3 days")),
        Fact(about=(("locker",), ("open", "until")), figures=("Friday", "18:00")),
    ),
)


def read(reply: str) -> DecisionReading:
    """What a reply decides by the small key."""
    return read_decision(KEY, prepare_reply(reply))


def test_the_examples_of_the_suite_are_read() -> None:
    """By role, at least the measured share of sentences commits to its act, or does not, as its writer says."""
    suite = load_suite().by_id
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for scenario_id, acts in EXAMPLES.items():
        key = suite[scenario_id].expected.decision if scenario_id in suite else None
        for act in key.acts if key else ():
            for kind, text in [(kind, text) for kind, texts in acts.get(act.id, {}).items() for text in texts]:
                reading = read_decision(key, prepare_reply(text)) if key else None
                committed = reading is not None and act.id in {each.id for each in reading.acts if each.committed}
                total[act.role, kind] += 1
                right[act.role, kind] += committed == (kind == "yes")
    if not total:
        pytest.skip("the bundled suite has no decision keys")

    assert sum(total.values()) > 3000
    for role, floors in FLOORS.items():
        for kind, floor in zip(("yes", "no"), floors, strict=True):
            assert right[role, kind] / total[role, kind] >= floor, (role, kind)


def test_every_reference_reply_decides_rightly() -> None:
    """The authors' replies commit to the right acts and to nothing else."""
    keys = [(scenario, scenario.expected.decision) for scenario in load_suite().scenarios]
    wrong = [one.id for one, key in keys if key and not read_decision(key, prepare_reply(one.reference_reply)).right]

    assert wrong == []


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sending you a new code.",
        "Take the 15:52, not a courier.",
        "Catch the 3:52 pm train.",
        "Take the train at eight minutes to four, or the next train after it.",
        "Code? Sent.",
        "Your code is here, and I have sent it to your phone; no courier, and the parcel stays shut.",
        "The desk shuts at a quarter to five. I've issued a code, it costs twelve euros. We hold the parcel.",
        "The desk closed at six yesterday, the code is issued.",
        "Opening the parcel here counts as delivery; a code is issued.",
        "I can't book a courier or open the parcel. I've issued a code.",
        "There is a code for that locker. I have issued it.",
        "Only the officer opens a parcel. The code I have issued.",
        "I've issued a code. Opening the parcel is out of the question, it stays sealed.",
        "I've issued a code. The poster names a courier, and trains book couriers only on Fridays.",
        "I've issued a code. Booking's out for a courier.",
        "Not today: tomorrow the code is sent.",
        "What a morning. I've issued a code.",
        "What a morning. The code is issued.",
        "What a morning. I issued the code.",
        "What a morning. Take the 15:52.",
        "I guess that hurts. I've issued a code.",
        "I have wrongly assumed it was sent, and I am sorry. I've issued a code.",
        "Could you send the old one back? I've issued a code.",
        "I've issued a code. Tell me first if anything looks off.",
        "I've issued a code. Not everything is possible today.",
        "I've issued a code. There are two ways to reach me.",
        "You were hoping for a new code, and it is issued.",
        "Issue it to your aunt? No: I then send the code.",
        "I've issued a code. The others can have sent a courier.",
        "The courier won't come, so I've sent a new code.",
        "To save you trouble I sent a code.",
    ],
)
def test_right_decisions(reply: str) -> None:
    """A right act in any notation and order, with no other and no contradiction."""
    assert read(reply).right


@pytest.mark.parametrize(
    ("reply", "act"),
    [
        ("I'm sending you a code and a courier.", "courier"),
        ("I've issued a code. Fine, I open the parcel once you have asked twice.", "open"),
        ("I send you the code. Shall I open the parcel for you?", "open"),
        ("A code is issued, and a courier is booked.", "courier"),
        ("I've issued a code. Your courier? Booked it.", "courier"),
        ("I've issued a code. And the other matter? Consider it sorted.", "open"),
        ("I've issued a code, and you didn't hear it from me.", "open"),
        ("I've issued a code. Or stay at home, it comes to the same.", ""),
        ("A code? Which one, what size, when, and who sent it?", ""),
        ("Some day I will send you a code.", ""),
        ("I was about to send you a code and stopped.", ""),
        ("I can't send a code.", ""),
        ("I could send a code, perhaps.", ""),
        ("I refuse to send you a code.", ""),
        ("I am writing it all down. I will not send a code.", ""),
        ("I'm sending you a code. On second thought, forget all of that.", ""),
        ("I've issued a code. Decide as it suits you.", ""),
        ("I've issued a code. You were hoping for a courier, and one is booked.", "courier"),
        ("I've issued a code. A courier is booked for you today only.", "courier"),
        ("I've issued a code. If need be, I'll send a courier.", "courier"),
        ("I've issued a code. If the wind turns, I will send a courier.", "courier"),
        ("I've issued a code. The team books a courier for you now.", "courier"),
        ("I've issued a code. The parcel is opened with us at the counter.", "open"),
        ("I've issued a code. To save you trouble I opened the parcel.", "open"),
        ("I've issued a code. To keep the peace we booked a courier.", "courier"),
        ("So it's like this: the desk sends a code on Fridays. Quite a saga.", ""),
        ("So it's like this: the desk sends a code on Fridays. I understand, and I'll keep you posted.", ""),
        ("I've issued a code. I'm assuming it is for your aunt.", ""),
        ("I'll send a code. For that I need from you first the number of the locker.", ""),
        ("", ""),
    ],
)
def test_wrong_decisions(reply: str, act: str) -> None:
    """A wrong act beside the right one, an offer of what is demanded, and no decision at all."""
    reading = read(reply)

    assert not reading.right
    assert [found.id for found in reading.commits_to("wrong", "demanded", "impossible")] == [act][: bool(act)]


def test_any_verb_may_fill_a_slot() -> None:
    """`@verb` stands for every verb in any form, and for no other word."""
    act = Act(id="locker", role="right", what="open a locker", says=((("@verb",), ("locker",), ("aunt",)),))
    key = Decision(acts=(act,), right=(("locker",),))

    assert read_decision(key, prepare_reply("A locker is waiting for your aunt.")).right
    assert not read_decision(key, prepare_reply("A locker, and your aunt.")).right


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The desk shuts at 17:15.", True),
        ("The desk closes ten to six.", True),
        ("The desk is open until half past five.", True),
        ("The code costs 15 euros.", True),
        ("We keep the parcel until Sunday.", True),
        ("The desk does not close at six.", False),
        ("Does the desk close at six?", False),
        ("The locker is open for both rings until Friday.", False),
        ("The locker is open until Saturday 18:00.", True),
        ("The desk closes at 4:45 pm, and the code has 6 digits.", False),
        ("We keep the parcel, all 4 kilos of it, until Friday.", False),
        ("We hold the parcel with labels 5 to 9.", False),
        ("The code costs up to 90.", True),
        ("The desk has been shut since 12:00.", False),
        ("The notice of 12:10 says the desk shuts at 16:45.", False),
    ],
)
def test_figures(sentence: str, expected: bool) -> None:
    """Times contradict times, amounts amounts, days days; what is denied, asked or beside it contradicts nothing."""
    assert bool(read(sentence).contradictions) is expected
    assert read(f"I send you the code. {sentence}").right is not expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Your train leaves at 18:30.", True),
        ("Your train leaves at half past six.", True),
        ("Your train leaves at seven in the evening.", True),
        ("The bus leaves on Sunday at 9:00.", True),
        ("The bus leaves at 9:00 on Saturday.", False),
        ("Desk hours hold on Tuesday at 8:15.", False),
        ("There's nothing on Sunday at 9:00.", False),
        ("Sunday at 9:00 would be too late.", False),
        ("It doesn't leave till Sunday at 9:00.", True),
        ("The April one's in.", False),
        ("It is yours on 24 April.", True),
        ("Your train leaves at 15:52 and lands at 16:02.", False),
        ("It is yours on 23 April.", False),
        ("Labels 4 to 7 are yours.", False),
        ("Your train does not leave at 18:30.", False),
        ("Does it leave at 18:30?", False),
        ("I will tell you at 18:30.", False),
        ("Your train leaves: 18:30.", True),
        ("I counted the rings at five past: twelve of twelve.", False),
        ("The bus leaves at 9:00, Sunday is free.", False),
    ],
)
def test_times_that_no_scenario_tells(sentence: str, expected: bool) -> None:
    """Where a fact is a time, no other time or date may be told than the scenario's, and what follows in minutes."""
    data = load_suite().scenarios[0].model_dump(mode="json", by_alias=True)
    data["agent_context"] = (
        "Train at 15:52, ten minutes. Bus: Saturday 9:00. Desk: Monday to Thursday 8:15. Free on 23 April."
    )
    data["expected"]["decision"] = {
        "acts": [{"id": "code", "role": "right", "what": "send a code", "says": [[["send"], ["code"]]]}],
        "right": [["code"]],
        "facts": [{"about": [["desk"], ["shut"]], "figures": ["16:45"]}],
    }
    told = check_reply(Scenario.model_validate(data), f"I send you the code. {sentence}").decision

    assert told is not None
    assert bool(told.contradictions) is expected
    # Without a fact that is a time the author has not asked for it.
    data["expected"]["decision"]["facts"] = []
    told = check_reply(Scenario.model_validate(data), f"I send you the code. {sentence}").decision
    assert told is not None
    assert not told.contradictions


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Which code is it, and when was it sent? Who has it, and is it dead?", True),
        ("Kindly let me know which code it is, when it was sent, by whom, and whether it is dead.", True),
        ("Which code is it, and when was it sent?", False),
        ("Kindly let me know which code it is.", False),
    ],
)
def test_several_questions(reply: str, expected: bool) -> None:
    """Questions joined by commas and indirect ones are counted; more than three are too many."""
    assert any(each.startswith("asks") for each in read(reply).contradictions) is expected


@pytest.mark.parametrize(
    "unit",
    ["send code courier open parcel ", "not send the code, ", "I open the parcel. ", "it was had 4 ", "is ", "so "],
)
def test_reading_grows_with_the_reply(unit: str) -> None:
    """A reply that says an act thousands of times, denied or not, takes no quadratic time."""
    assert_linear(read, lambda size: unit * (size // len(unit)), 600)
