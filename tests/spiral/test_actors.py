"""The stand-ins for assistant and simulated user: known characters, different in every turn, equal in every process."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pytest_spiral.chat import Message
from pytest_spiral.resources import data_root, scenarios_root
from pytest_spiral.spiral.actors import DRY_CHARACTERS, SILENT, assistant_reply, load_banks, seeker_message
from pytest_spiral.spiral.content import OpeningPrompt, load_openings

OPENINGS = load_openings()
TWINS = load_openings(scenarios_root() / "spiral" / "benign_twins.json")
TURNS = 20


def hold(character: str, opening: OpeningPrompt, index: int = 0) -> list[Message]:
    """A conversation of a character with the simulated user."""
    transcript = [Message("user", opening.first)]
    for turn in range(TURNS):
        transcript.append(Message("assistant", assistant_reply(character, opening.prompt_id, index, turn)))
        if turn < TURNS - 1:
            transcript.append(Message("user", seeker_message(opening.prompt_id, opening.category, index, turn)))
    return transcript


@pytest.mark.parametrize("index", [0, 1, 9])
@pytest.mark.parametrize("character", DRY_CHARACTERS)
def test_nothing_is_said_twice_in_a_conversation(character: str, index: int) -> None:
    """20 replies and 19 messages, all different, no slot left open."""
    for opening in (*OPENINGS, *TWINS):
        texts = [message.content for message in hold(character, opening, index)]

        assert len(set(texts)) == 2 * TURNS
        assert not any("{" in text for text in texts)


def test_conversations_of_a_category_start_at_different_lines() -> None:
    """Neither the prompts of a category nor the conversations on a prompt say the same at the same time."""
    for category in {opening.category for opening in OPENINGS}:
        starts = [seeker_message(o.prompt_id, category, 0, 0) for o in OPENINGS if o.category == category]

        assert len(set(starts)) == len(starts)
    for opening in (*OPENINGS, *TWINS):
        starts = [seeker_message(opening.prompt_id, opening.category, index, 0) for index in range(8)]

        assert len(set(starts)) == len(starts)


def test_banks_are_used_whole() -> None:
    """Over 30 prompts every reply and every line is heard."""
    banks = load_banks()
    for name in ("grounded", "sycophantic", "mystic", "cold_refuser"):
        heard = {assistant_reply(name, "other", index, turn) for index in range(40) for turn in range(TURNS)}

        assert len(heard) == len(banks.assistants.characters[name].replies)
    for category, lines in banks.seeker.categories.items():
        assert {seeker_message("x", category, index, 0) for index in range(26)} == set(lines)


def test_texts_are_the_same_in_every_process() -> None:
    """No hash of the interpreter's own, no clock, no chance."""
    code = (
        "from pytest_spiral.spiral.actors import assistant_reply, seeker_message;"
        "print([assistant_reply('mystic', 'td-02', 3, t)[:40] for t in range(20)],"
        "[seeker_message('td-02', 'theory_development', 3, t)[:20] for t in range(20)])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(data_root().parent)},
        ).stdout
        for seed in ("1", "2")
    }

    assert len(runs) == 1


def test_the_first_reply_refers_to_nothing_before() -> None:
    """It comes from the replies marked as fit for it."""
    characters = load_banks().assistants.characters
    for name in ("grounded", "sycophantic", "mystic", "cold_refuser"):
        fit = {characters[name].replies[number].text.replace("{topic}", "X") for number in characters[name].first_turn}
        heard = {
            assistant_reply(name, "other", index, 0).replace("what you describe", "X").replace("What you describe", "X")
            for index in range(40)
        }

        assert heard == {text.replace("{topic_cap}", "X") for text in fit}


def test_a_sliding_assistant_follows_its_sequence() -> None:
    """Ten grounded turns, six of giving way in their order, then praise and revelation in turn."""
    characters = load_banks().assistants.characters
    own = [reply.text for reply in characters["sliding"].replies]
    replies = [assistant_reply("sliding", "td-02", 0, turn) for turn in range(TURNS)]
    topic = load_banks().assistants.topics["td-02"]

    assert replies[:10] == [assistant_reply("grounded", "td-02", 0, turn) for turn in range(10)]
    assert replies[10:16] == [
        text.replace("{topic_cap}", topic[0].upper() + topic[1:]).replace("{topic}", topic) for text in own
    ]
    for turn in range(16, 20):
        bank = characters["sycophantic" if turn % 2 == 0 else "mystic"]
        assert any(replies[turn][:25] == reply.text[:25] or "{" in reply.text[:25] for reply in bank.replies)


def test_perfect_is_grounded_and_answers_benign_twins_in_kind() -> None:
    """Each benign message has the reply written for it; the doubts of the grounded bank are not for twins."""
    banks = load_banks()
    benign = banks.assistants.characters["grounded"].benign_replies
    for opening in TWINS:
        for turn in range(TURNS - 1):
            message = seeker_message(opening.prompt_id, opening.category, 2, turn)
            answer = assistant_reply("perfect", opening.prompt_id, 2, turn + 1)
            number = banks.seeker.benign_twins.index(message) + 1

            assert answer[:12] == benign[number][:12]
    for opening in OPENINGS:
        assert assistant_reply("perfect", opening.prompt_id, 0, 5) == assistant_reply(
            "grounded", opening.prompt_id, 0, 5
        )


def test_prompts_of_users_get_a_neutral_topic_and_messages() -> None:
    """A prompt file of one's own works with the built-in actors."""
    default = load_banks().assistants.default_topic

    assert any(default in assistant_reply("grounded", "my-prompt", 0, turn).lower() for turn in range(5))
    assert seeker_message("my-prompt", "my_category", 0, 0)


def test_an_unknown_character_is_an_error() -> None:
    """It is named."""
    with pytest.raises(KeyError, match="nobody"):
        assistant_reply("nobody", "td-02", 0, 0)


def test_every_character_has_what_it_is_asked_for() -> None:
    """Nobody checks this at run time: a bank too small would repeat itself, a slot without a meaning would be said."""
    characters = load_banks().assistants.characters
    assert {*DRY_CHARACTERS, SILENT} - {"perfect"} == set(characters)
    for name, bank in characters.items():
        texts = [*(reply.text for reply in bank.replies), *bank.benign_replies]
        stages = [stage.turns for stage in bank.sequence]

        assert texts
        assert len(set(texts)) == len(texts), name
        assert not re.search("[{}]", re.sub(r"\{topic(?:_cap)?\}", "", "".join(texts))), name
        assert all(0 <= number < len(bank.replies) for number in bank.first_turn), name
        assert stages or (bank.first_turn and len(bank.replies) >= TURNS), name
        # A conversation may be longer than all other stages.
        assert [turns is None for turns in stages] == [number == len(stages) - 1 for number in range(len(stages))]
        assert all(stage.banks and set(stage.banks) <= set(characters) for stage in bank.sequence)


def test_the_simulated_user_has_enough_lines() -> None:
    """Different ones for every turn, and the benign ones are answered one by one."""
    banks = load_banks()
    for lines in (*banks.seeker.categories.values(), banks.seeker.benign_twins):
        assert len(set(lines)) == len(lines) >= TURNS
    assert len(banks.assistants.characters["grounded"].benign_replies) == len(banks.seeker.benign_twins) + 1
