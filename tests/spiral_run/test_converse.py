"""One conversation: who is asked what, when, and what becomes of calls that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pytest_spiral.chat import ChatReply, ChatRequest, Message
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.spiral.content import BENIGN_TWIN, OpeningPrompt, load_persona, load_rubric
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.schedule import TurnNote
from pytest_spiral.spiral.setting import own_setting
from pytest_spiral.status import ReasonCode, Status
from tests.spiral.builders import present
from tests.spiral_run.conftest import OPENING, Answer, Cast, Scripted, say, texts


def schedule(turns: int, index: int = 0) -> Sequence[TurnNote | None]:
    """The notes of a conversation on the opening."""
    return drawn_for(OPENING, index, [True] * (turns - 1))


def drawn_for(opening: OpeningPrompt, index: int, generated: Sequence[bool]) -> Sequence[TurnNote | None]:
    """The notes of a conversation of our own setting."""
    return own_setting(load_persona(), load_rubric()).schedule(1, opening, index, generated)


# The user model


def test_the_user_model_sees_the_roles_swapped(cast: Callable[..., Cast]) -> None:
    """Its own messages are the assistant's to it; it is asked right after a reply."""
    scene = cast()
    conversation = scene.hold()

    for turn, request in enumerate(scene.user.asked):
        swapped = [Message("assistant" if m.role == "user" else "user", m.content) for m in conversation.transcript]
        seen = list(request.messages[1:])
        seen[-1] = Message(seen[-1].role, seen[-1].content.partition("\n\n[Note")[0])

        assert swapped[: 2 + 2 * turn] == seen


@pytest.mark.parametrize("category", ["theory_development", "spiral_tropes", "of_my_own"])
def test_persona_and_category_are_the_system_prompt(cast: Callable[..., Cast], category: str) -> None:
    """The persona first; the paragraph of the category where there is one."""
    scene = cast(opening=OPENING.model_copy(update={"category": category}))
    scene.hold()
    persona = load_persona()
    system = {request.messages[0] for request in scene.user.asked}
    extra = persona.categories.get(category, "").strip()

    assert system == {Message("system", f"{persona.text}\n\n{extra}" if extra else persona.text)}
    assert bool(extra) == (category != "of_my_own")


def test_a_twin_has_a_simulated_user_of_its_own(cast: Callable[..., Cast]) -> None:
    """Its paragraph stands for that of the category, and no note pulls either way."""
    scene = cast(opening=OPENING.model_copy(update={"twin_of": "q"}), turns=20)
    conversation = scene.hold()
    persona = load_persona()

    assert conversation.origin.user_system_prompt == persona.system_prompt(BENIGN_TWIN)
    assert persona.categories[BENIGN_TWIN].strip() in persona.system_prompt(BENIGN_TWIN)
    assert {note for note in conversation.injections_log if note} <= set(persona.injections.neutral)
    assert any(conversation.injections_log)


def injected(notes: Sequence[TurnNote | None]) -> list[str]:
    """What the record keeps of them."""
    return [note.injection if note else "" for note in notes]


def test_notes_come_last_and_leave_the_prefix_alone(cast: Callable[..., Cast]) -> None:
    """Each turn's messages are those of the turn before and two more, byte for byte; only the last has a note."""
    scene = cast(turns=20)
    conversation = scene.hold()
    drawn = schedule(20)
    requests = [request.messages for request in scene.user.asked]

    assert any(injected(drawn))
    assert injected(drawn) == list(conversation.injections_log[2::2])
    assert set(conversation.injections_log[1::2]) == {""}
    for turn, messages in enumerate(requests):
        said = conversation.transcript[1 + 2 * turn].content
        assert (note := drawn[turn]) is not None
        assert (messages[-1].role, messages[-1].content) == ("user", f"{said}\n\n[Note for this turn: {note.text}]")
        if turn:
            assert requests[turn - 1][:-1] == messages[:-3]


def test_scripted_messages_are_said_and_draw_nothing(cast: Callable[..., Cast]) -> None:
    """A script's messages stand as given; only its gaps are generated, and draws are made for them alone."""
    script = ("one", "two", None, "four", *[None] * 15)
    scene = cast(opening=OPENING.model_copy(update={"prompts": script}), turns=19)
    conversation = scene.hold()
    gaps = [turn for turn, text in enumerate(script) if text is None]
    generated = [text is None for text in script[1:]]
    drawn = drawn_for(OPENING, 0, generated)

    said = texts(conversation.transcript, "user")
    assert [script[turn] for turn in (0, 1, 3)] == [said[turn] for turn in (0, 1, 3)]
    assert len(gaps) == len(scene.user.asked)
    assert injected(drawn) == list(conversation.injections_log[2::2])
    assert [conversation.injections_log[2 * turn] for turn in (1, 3)] == ["", ""]


def test_a_script_longer_than_the_conversation_is_cut(cast: Callable[..., Cast]) -> None:
    """Nobody says what nobody would answer."""
    scene = cast(opening=OPENING.model_copy(update={"prompts": ("one", "two", "three", "four")}), turns=2)

    assert texts(scene.hold().transcript, "user") == ["one", "two"]


@pytest.mark.parametrize("turns", [1, 2, 20])
def test_no_message_is_generated_that_nobody_answers(cast: Callable[..., Cast], turns: int) -> None:
    """20 turns are 20 replies and 19 user messages: the transcript ends with a reply."""
    scene = cast(turns=turns)
    conversation = scene.hold()

    assert (len(scene.evaluated.asked), len(scene.user.asked)) == (turns, turns - 1)
    assert conversation.transcript[-1].role == "assistant"
    assert len(conversation.transcript) == len(conversation.injections_log) == 2 * turns


# The evaluated model


@pytest.mark.parametrize("system", [None, "Be kind."])
def test_the_evaluated_model_gets_the_raw_transcript(cast: Callable[..., Cast], system: str | None) -> None:
    """No system prompt by default, no injection, nothing else."""
    scene = cast(turns=20, system=system)
    conversation = scene.hold()
    before = [Message("system", system)] if system else []

    for turn, request in enumerate(scene.evaluated.asked):
        assert [*before, *conversation.transcript[: 1 + 2 * turn]] == list(request.messages)
        assert request.schema is None


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (ChatReply("and then", "length"), "truncated"),
        (ChatReply(""), "empty_reply"),
        (ChatReply(" \n"), "empty_reply"),
        (ChatReply("", "content_filter"), "content_filter"),
        (ChatReply("so it", "content_filter"), "content_filter"),
        (ChatReply("", "tool_calls"), "tool_call"),
        (ChatReply("=" * 200_001), "reply_too_long"),
    ],
)
def test_a_reply_that_is_none_is_the_models_failure(cast: Callable[..., Cast], reply: ChatReply, code: str) -> None:
    """Cut off or empty: the model failed, is not asked again, and what was said before is kept and judged."""
    scene = cast()
    scene.evaluated.answer = lambda request, n: reply if n == 1 else say(request)
    conversation = scene.hold()
    calls = scene.calls
    again = scene.hold()

    assert conversation.status is Status.MODEL_FAILED
    assert (present(conversation.reason).code, "turn 2" in present(conversation.reason).detail) == (code, True)
    assert (len(conversation.transcript), len(conversation.judgements), conversation.finals) == (3, 1, ())
    assert (again, scene.calls) == (conversation, calls)


def test_a_refusal_is_a_reply(cast: Callable[..., Cast]) -> None:
    """A model that declines in words has answered."""
    scene = cast()
    scene.evaluated.answer = lambda request, n: ChatReply("I cannot help with that.", "refusal")

    assert scene.hold().status is Status.MEASURED


# The user model fails


@pytest.mark.parametrize("bad", [ChatReply(""), ChatReply(" "), ChatReply("so i", "length"), ChatReply("a " * 100_001)])
def test_a_user_message_that_is_none_is_asked_for_once_more(cast: Callable[..., Cast], bad: ChatReply) -> None:
    """A second sample; if that is no better the instrument failed, and a resumed run tries as often again."""
    mended, broken = cast(), cast()
    mended.user.answer = lambda request, n: bad if n == 0 else say(request)
    broken.user.answer = lambda request, n: bad
    good = mended.hold()
    lost = broken.hold()
    broken_calls = len(broken.user.asked)
    still = broken.hold()
    broken_again = len(broken.user.asked) - broken_calls
    broken.user.answer = say
    resumed = broken.hold()

    assert (good.status, len(mended.user.asked)) == (Status.MEASURED, 3)
    assert len({request.sample for request in mended.user.asked[:2]}) == 2
    assert (lost.status, broken_calls) == (Status.INSTRUMENT_FAILED, 2)
    assert present(lost.reason).code == "no_user_message"
    assert len(lost.transcript) == 2
    assert (still.status, broken_again) == (Status.INSTRUMENT_FAILED, 2)
    assert resumed.status is Status.MEASURED
    assert [m.content for m in resumed.transcript] == [m.content for m in good.transcript]


# Calls that fail


@pytest.mark.parametrize(("role", "kept"), [("evaluated", 3), ("user", 2)])
def test_a_failed_call_keeps_what_was_said(cast: Callable[..., Cast], role: str, kept: int) -> None:
    """The conversation is no measurement; its transcript up to there is kept and no final judgement is made."""
    scene = cast()
    speaker = getattr(scene, role)
    bad = 1 if role == "evaluated" else 0
    speaker.answer = lambda request, n: ChatError(ReasonCode.QUOTA, "out of credit") if n == bad else say(request)
    conversation = scene.hold()

    assert conversation.status is Status.INSTRUMENT_FAILED
    assert present(conversation.reason).code == "quota"
    assert f"turn {bad + 1}: out of credit" in present(conversation.reason).detail
    assert (len(conversation.transcript), conversation.finals) == (kept, ())
    assert [j.turns for j in conversation.judgements] == [(0,)]


def test_a_resumed_conversation_goes_on_at_the_very_call(cast: Callable[..., Cast]) -> None:
    """Broken off at any of its calls and taken up again: nothing stored is asked again, and the end is the same."""
    whole = cast(turns=4, seed=3)
    undisturbed = whole.hold()
    assert whole.calls == 12
    assert any(undisturbed.injections_log)

    for at in range(whole.calls):
        scene = cast(turns=4, seed=3)
        count = [0]

        def failing(request: ChatRequest, n: int, count: list[int] = count, at: int = at) -> str | ChatError:
            count[0] += 1
            return ChatError(ReasonCode.UNREACHABLE, "cable cut") if count[0] > at else say(request)

        scene.play(failing)
        broken = scene.hold()
        stored = {r.key for model in scene.everybody for r in model.asked if scene.store.find(r) is not None}
        before = [len(model.asked) for model in scene.everybody]
        scene.play(say)
        resumed = scene.hold()
        asked = [r.key for model, n in zip(scene.everybody, before, strict=True) for r in model.asked[n:]]

        assert broken != undisturbed
        assert len(stored) == at
        assert not stored & set(asked)
        assert len(asked) == len(set(asked)) == whole.calls - at
        assert resumed == undisturbed


def test_epochs_of_one_prompt_are_conversations_of_their_own(cast: Callable[..., Cast]) -> None:
    """Each has its samples and its injections; none answers for another."""
    scene = cast(turns=8)
    first, second = scene.hold(0), scene.hold(1)

    assert (len(scene.evaluated.asked), len(scene.user.asked)) == (16, 14)
    assert {request.sample for request in scene.evaluated.asked} == {0, 1}
    for index, conversation in enumerate((first, second)):
        assert injected(schedule(8, index=index)) == list(conversation.injections_log[2::2])


def test_a_cancelled_conversation_leaves_nothing_running(cast: Callable[..., Cast]) -> None:
    """Stopping a run stops its judges."""
    scene = cast()
    hanging = asyncio.Event()

    class Hanging(Scripted):
        async def complete(self, request: ChatRequest) -> ChatReply:
            hanging.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody sets the event")

    async def cancelled() -> list[asyncio.Task[Any]]:
        scene.judges = (Hanging(),)
        work = asyncio.create_task(scene._hold(0))
        await hanging.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(cancelled()) == []


def test_an_opening_of_ones_own(cast: Callable[..., Cast]) -> None:
    """Any category and id; without a paragraph of its own the persona is all the simulated user is told."""
    opening = OpeningPrompt(prompt_id="mine", category="office", prompts=("hello there",))
    conversation = cast(opening=opening).hold()

    assert (conversation.id, conversation.category, conversation.status) == ("mine-1", "office", Status.MEASURED)


# The simulator falls apart


LOOP = "and the hum is inside the walls and it knows my name "


def falls_apart(times: int, chars: int = 13_780) -> Answer:
    """A simulated user that collapses in its second message, in so many simulations, then plays on."""
    left = [times]

    def answer(request: ChatRequest, number: int) -> str:
        if len(request.messages) == 5 and left[0]:
            left[0] -= 1
            return (LOOP * 400)[:chars]
        return say(request)

    return answer


@pytest.mark.parametrize(("times", "chars"), [(1, 13_780), (2, 18_341)])
def test_a_collapsed_simulation_is_given_up_and_held_again(cast: Callable[..., Cast], times: int, chars: int) -> None:
    """Anew from the opening; what was given up is logged, no part of the score, and the same again on resume."""
    scene = cast(turns=4)
    scene.user.answer = falls_apart(times, chars)
    conversation = scene.hold()
    calls = scene.calls

    assert conversation.status is Status.MEASURED
    assert len(conversation.given_up) == times
    assert all("message 2: a message of" in reason.detail for reason in conversation.given_up)
    assert LOOP not in "".join(m.content for m in conversation.transcript)
    assert [j.index for j in conversation.judgements] == [0, 1, 2, 3]
    assert (scene.hold(), scene.calls) == (conversation, calls)


def test_the_cap_on_simulations(cast: Callable[..., Cast]) -> None:
    """After the third the conversation is an instrument failure, judged as far as it went; resumed, nothing is sent."""
    scene = cast(turns=4)
    scene.user.answer = falls_apart(99)
    conversation = scene.hold()
    calls = scene.calls

    assert conversation.status is Status.INSTRUMENT_FAILED
    assert present(conversation.reason).code == "simulator_collapsed"
    assert present(conversation.reason).detail.startswith("message 2:")
    assert (len(conversation.given_up), conversation.finals) == (2, ())
    judged = [*(held.judgements for held in conversation.abandoned), conversation.judgements]
    assert [[judgement.turns for judgement in one] for one in judged] == [[(0,), (1,)]] * 3
    assert conversation.transcript[-1].content.startswith(LOOP)
    assert (scene.hold(), scene.calls) == (conversation, calls)


def test_no_two_conversations_share_a_sample(cast: Callable[..., Cast]) -> None:
    """Attempts at a message and simulations take samples that no other conversation on the prompt can have."""
    scene = cast(turns=4)
    scene.user.answer = lambda request, n: "" if n == 0 else falls_apart_once(request, n)
    broken = [True]

    def falls_apart_once(request: ChatRequest, number: int) -> str:
        if len(request.messages) == 5 and broken[0]:
            broken[0] = False
            return LOOP * 300
        return say(request)

    scene.hold(index=1)
    samples = [request.sample for request in scene.user.asked]

    assert all(sample % 1_000_000 == 1 for sample in samples)
    first = [r.sample for r in scene.user.asked if len(r.messages) == 3]
    assert len(set(first)) == len(first) == 3
    with pytest.raises(ValueError, match="index"):
        ConversationUnit("m", "p", 1_000_000)


def test_a_conversation_says_what_made_it(cast: Callable[..., Cast]) -> None:
    """Persona, files and models, as the result format names them."""
    origin = cast().hold().origin

    assert origin.user_system_prompt == load_persona().system_prompt("theory_development")
    assert (origin.instruction_file, origin.injection_file) == ("persona.txt", "injections.toml")


def test_a_store_that_breaks_is_told_from_other_errors(
    cast: Callable[..., Cast], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the calls under way meets it first, the error arrives as it is: the run's report says why."""
    scene = cast()

    def keep_all(answered: Sequence[tuple[ChatRequest, ChatReply]]) -> list[ChatReply]:
        raise StoreError("disk full")

    monkeypatch.setattr(scene.store, "keep_all", keep_all)

    with pytest.raises(StoreError, match="disk full"):
        scene.hold()


@pytest.mark.parametrize("role", ["user", "judge"])
def test_a_store_that_cannot_look_a_request_up_fails_that_call(
    cast: Callable[..., Cast], monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """A look-up that fails is a failure of the instrument as the call itself would be, not an error of the program."""
    scene = cast()
    real = scene.store.find

    def find(request: ChatRequest) -> ChatReply | None:
        if request.role == role:
            raise ChatError(ReasonCode.STORE_FAILED, "out of memory")
        return real(request)

    monkeypatch.setattr(scene.store, "find", find)
    conversation = scene.hold()
    reasons = [j.reason for j in conversation.judgements] + [final.reason for final in conversation.finals]

    assert {reason.code for reason in (conversation.reason, *reasons) if reason is not None} == {"store_failed"}
