"""The run store keeps every request and reply, notices damage, and survives whatever a write may raise."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_spiral.chat import ChatReply, ChatRequest, ComposedMessage, Message, TokenUsage
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.resources import data_root
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import EndpointPace, ModelUsage, RunStore, StoredChat, database, texts
from tests.store.conftest import Counting, FailingConnection, ask, resume


def test_a_known_request_is_never_sent_again(store: RunStore) -> None:
    """The second time the reply comes from the store, word for word."""
    model = Counting()
    chat = StoredChat(model, store)

    first = asyncio.run(chat.complete(ask()))
    second = asyncio.run(chat.complete(ask()))

    assert model.calls == 1
    assert second == first


def test_the_same_request_at_the_same_moment_is_sent_once(store: RunStore) -> None:
    """Ten ask, one is sent, all have its reply."""
    model = Counting()
    chat = StoredChat(model, store)

    async def all_at_once() -> list[ChatReply]:
        return await asyncio.gather(*(chat.complete(ask()) for _ in range(10)))

    replies = asyncio.run(all_at_once())

    assert model.calls == 1
    assert len(set(replies)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "other"},
        {"messages": (Message("assistant", "hello"),)},
        {"model": "n"},
        {"role": "judge"},
        {"params": {"temperature": 1.0}},
        {"schema": {"type": "object"}},
        {"sample": 1},
    ],
)
def test_whatever_determines_the_reply_is_in_the_key(changes: dict[str, Any]) -> None:
    """Any change of the request makes it another request."""
    assert ask(**changes).key != ask().key


def test_the_unit_and_the_order_of_parameters_are_not_in_the_key() -> None:
    """What a call belongs to, and how its parameters happen to be ordered, do not change its reply.

    The order of a schema does: models write the keys of an answer in that order.
    """
    first = ask(unit="a", params={"x": 1, "y": 2}, schema={"type": "object", "a": 1})
    second = ask(unit="b", params={"y": 2, "x": 1}, schema={"type": "object", "a": 1})

    assert first.key == second.key
    assert first.key != ask(params={"x": 1, "y": 2}, schema={"a": 1, "type": "object"}).key


def test_failures_are_stored_and_asked_again(store: RunStore) -> None:
    """A failed call is on record, and is no reply."""
    chat = StoredChat(Counting(ChatError(ReasonCode.TIMEOUT, "too slow", attempts=3)), store)

    with pytest.raises(ChatError):
        asyncio.run(chat.complete(ask()))

    assert store.find(ask()) is None
    assert store.usage() == [ModelUsage("evaluated", "m", retries=2, failures=1)]


def conversation(turns: int) -> Iterator[tuple[ChatRequest, str]]:
    """The requests of a conversation in order: evaluated model, then simulated user with roles swapped."""
    said = [Message("user", "hello")]
    for turn in range(turns):
        yield ask(messages=tuple(said)), f"answer {turn}"
        said.append(Message("assistant", f"answer {turn}"))
        swapped = [Message("assistant" if m.role == "user" else "user", m.content) for m in said]
        # A note for this turn only, as injections are.
        swapped[-1] = Message("user", f"{swapped[-1].content} [note {turn}]")
        yield ask(role="user", messages=(Message("system", "persona"), *swapped)), f"question {turn}"
        said.append(Message("user", f"question {turn}"))


def test_a_conversation_is_stored_without_repeating_its_history(tmp_path: Path, store: RunStore) -> None:
    """Every distinct text is there once, rows do not grow, and every request can be read back in full."""
    asked = list(conversation(20))
    for request, text in asked:
        store.keep_all([(request, ChatReply(text))])

    (count,) = sqlite3.connect(store.path).execute("SELECT count(*) FROM text").fetchone()
    assert count == 1 + 20 + 1 + 1  # opening, last messages with notes, persona, settings
    sizes = sqlite3.connect(store.path).execute("SELECT length(content) FROM reply ORDER BY id").fetchall()
    assert max(size for (size,) in sizes) < 60
    store.close()
    again = resume(store.path)
    assert [(each.request, each.reply.text) for each in again.exchanges()] == asked
    again.close()


def test_a_conversation_that_was_resumed_comes_back_as_it_went_in(store: RunStore) -> None:
    """What the first session stored is known again as it is looked up, and its rows are continued."""
    asked = list(conversation(10))
    for request, text in asked[:11]:
        store.keep_all([(request, ChatReply(text))])
    store.close()

    again = resume(store.path)
    for request, text in asked:
        if again.find(request) is None:
            again.keep_all([(request, ChatReply(text))])

    assert [(each.request, each.reply.text) for each in again.exchanges()] == asked
    last = again.last_exchange("u", "user", "m")
    assert last is not None
    assert (last.request, last.reply.text) == asked[-1]
    (count,) = again._connection.execute("SELECT count(*) FROM text").fetchone()
    assert count == 1 + 10 + 1 + 1  # as in one session
    again.close()


def test_a_prompt_that_repeats_texts_is_stored_without_them(store: RunStore) -> None:
    """What a judge reads is made of texts that are there already; it comes back word for word."""
    said = [random.Random(n).randbytes(2_000).hex() for n in range(40)]
    for n, text in enumerate(said):
        store.keep_all([(ask(sample=n), ChatReply(text))])
    prompt = "\n---\n".join(["rules", *said, "go"])
    parts = ("not in it" * 20, "", *said)

    store.keep_all([(ask(role="judge", messages=(ComposedMessage("user", prompt, parts),)), ChatReply("good"))])

    size = "SELECT length(content) FROM reply WHERE id = (SELECT max(id) FROM reply)"
    assert sqlite3.connect(store.path).execute(size).fetchone()[0] < 400
    assert store.exchanges()[-1].request.messages[0].content == prompt


CHARACTERS = st.one_of(st.characters(), st.sampled_from(["\ud83d", "\ude00", "\ufeff", "\0"]))


@settings(deadline=None)
@example([["\ud83d\ude00"]], None)
@given(
    st.lists(st.lists(st.text(CHARACTERS), max_size=4), max_size=6),
    st.sampled_from([None, {"type": "object"}, {"b": 1, "a": [True, None]}]),
)
def test_any_request_comes_back_as_it_went_in(histories: list[list[str]], schema: dict[str, object] | None) -> None:
    """Whatever requests share, and whatever characters their texts hold: halves of pairs too, alone or side by side."""
    with tempfile.TemporaryDirectory() as folder:
        store = resume(Path(folder, "run.sqlite"))
        text = "a\ud83d\x00b\U0001f600 \ud83d\ude00"
        reply = ChatReply(text, "length", "served", TokenUsage(3, 2, 1), 1.25, 4, text)
        for n, history in enumerate(histories):
            messages = tuple(Message("user", text) for text in history)
            store.keep_all([(ask(messages=messages, sample=n, schema=schema, params={"temperature": 0.1}), reply)])
        found = store.exchanges()
        assert [[m.content for m in each.request.messages] for each in found] == histories
        assert all(each.reply == reply and each.request.schema == schema for each in found)
        store.close()


def conversations_with_one_beginning(count: int, turns: int) -> Iterator[tuple[Message, ...]]:
    """The requests of conversations that go on after the same two messages, one conversation after the other."""
    for n in range(count):
        said = [Message("system", "rules"), Message("user", "hello")]
        for turn in range(turns):
            said += [Message("assistant", f"{n}, {turn}"), Message("user", "go on")]
            yield tuple(said)


@pytest.mark.parametrize("turns", [1, 10])
def test_what_is_read_for_a_request_does_not_grow_with_the_run(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Where one unit asks much that begins alike: no more rows than the request has messages."""
    asked = [*conversations_with_one_beginning(60 // turns, turns)]
    store.keep_all([(ask(messages=messages), ChatReply("x")) for messages in asked])
    read: list[int] = []

    def content_of(connection: sqlite3.Connection, row_id: int) -> tuple[int, int, texts.Asked, str]:
        read.append(row_id)
        return content(connection, row_id)

    content = texts.content_of
    monkeypatch.setattr(texts, "content_of", content_of)
    for row_id, messages in enumerate(asked, 1):
        read.clear()

        assert texts.messages_of(store._connection, row_id) == messages
        assert len(read) <= len(messages)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), min_size=1, max_size=25, unique_by=tuple),
    st.integers(0, 25),
)
def test_requests_of_one_unit_come_back_as_they_went_in(histories: list[list[str]], resumed_at: int) -> None:
    """In whatever order conversations branch off, go on and begin again, in one session or two."""
    asked = [ask(messages=tuple(Message("user", text) for text in history)) for history in histories]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.sqlite")
        for session in (asked[:resumed_at], asked[resumed_at:]):
            with closing(resume(path)) as store:
                for request in session:
                    store.keep_all([(request, ChatReply("d"))])
        with closing(resume(path)) as store:
            assert [each.request for each in store.exchanges()] == asked


def test_of_two_replies_to_one_request_the_first_counts(store: RunStore) -> None:
    """For both who asked."""
    kept = [store.keep_all([(ask(), ChatReply("first"))])[0], store.keep_all([(ask(), ChatReply("too late"))])[0]]

    assert [reply.text for reply in kept] == ["first", "first"]


def assert_noticed(store: RunStore, statement: str) -> None:
    """What somebody changes is damage to whoever reads it next."""
    with sqlite3.connect(store.path) as other:
        other.execute(statement)

    with pytest.raises(StoreError, match=r"damaged .*choose another --run-id"):
        store.find(ask())
    with pytest.raises(StoreError, match="damaged"):
        store.exchanges()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE reply SET completion_tokens = 4",
        "UPDATE reply SET unit = 'v'",
        "UPDATE reply SET reasoning = settings",
        "UPDATE reply SET id = id + 1",
        "UPDATE reply SET content = zeroblob(length(content))",
    ],
)
def test_a_changed_row_is_noticed_when_it_is_read(store: RunStore, statement: str) -> None:
    """Rows carry checksums."""
    store.keep_all([(ask(), ChatReply("ok", usage=TokenUsage(1, 0, 3)))])
    assert_noticed(store, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE text SET content = zeroblob(length(content))",
        "UPDATE text SET digest = CAST(id AS BLOB)",
        "DELETE FROM text",
    ],
)
def test_a_changed_text_is_noticed_when_it_is_read(store: RunStore, statement: str) -> None:
    """Texts carry checksums as well."""
    store.keep_all([(ask(), ChatReply("ok", reasoning="why"))])
    assert_noticed(store, statement)


def test_the_dictionary_is_part_of_the_format() -> None:
    """With another one, texts of existing stores would be read as other words: it needs a new `_FORMAT`."""
    content = (data_root() / "store_dictionary.txt").read_bytes()

    assert (hashlib.sha256(content).hexdigest()[:16], database._FORMAT) == ("e4ac162cc7785a24", 9)


def test_what_sqlite_cannot_hold_fails_its_unit_only(store: RunStore) -> None:
    """A reply with an impossible count or name is refused; the next one is stored."""
    chat = StoredChat(Counting(usage=TokenUsage(2**63, 0, 0)), store)
    with pytest.raises(ChatError, match="OverflowError") as overflow:
        asyncio.run(chat.complete(ask()))
    with pytest.raises(ChatError, match="UnicodeEncodeError") as surrogate:
        store.keep_all([(ask("second"), ChatReply("ok", model="\ud800"))])

    assert overflow.value.code is surrogate.value.code is ReasonCode.STORE_FAILED
    assert overflow.value.attempts == 2
    assert store.exchanges() == []
    store.keep_all([(ask("third"), ChatReply("ok"))])
    assert [each.request.messages[0].content for each in store.exchanges()] == ["third"]


def test_replies_that_arrive_together_are_stored_in_one_commit(store: RunStore) -> None:
    """Each call has its own reply when the commit is done."""
    statements: list[str] = []
    store._connection.set_trace_callback(statements.append)

    replies = asyncio.run(at_once(StoredChat(Counting(), store), "abc"))

    assert [reply.text for reply in replies if isinstance(reply, ChatReply)] == [f"reply to {name}" for name in "abc"]
    assert statements.count("COMMIT") == 1
    assert len(store.exchanges()) == 3


def test_a_reply_that_cannot_be_stored_fails_alone(store: RunStore) -> None:
    """Those that arrived with it are stored."""

    class Impossible(Counting):
        async def complete(self, request: ChatRequest) -> ChatReply:
            reply = await super().complete(request)
            return replace(reply, usage=TokenUsage(2**63)) if request.messages[0].content == "b" else reply

    replies = asyncio.run(at_once(StoredChat(Impossible(), store), "abc"))

    assert [type(reply) for reply in replies] == [ChatReply, ChatError, ChatReply]
    assert [each.request.messages[0].content for each in store.exchanges()] == ["a", "c"]


async def at_once(chat: StoredChat, names: str) -> list[ChatReply | BaseException]:
    return await asyncio.gather(*(chat.complete(ask(name)) for name in names), return_exceptions=True)


def test_a_reply_is_stored_though_its_call_was_cancelled(store: RunStore) -> None:
    """It has been paid for when it is here."""

    async def cancelled() -> bool:
        call = asyncio.create_task(StoredChat(Counting(), store).complete(ask()))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        return call.cancelled()

    assert asyncio.run(cancelled())
    assert store.find(ask()) is not None


ERRORS = [
    sqlite3.OperationalError("disk I/O error"),
    sqlite3.IntegrityError("NOT NULL constraint failed"),
    OverflowError("Python int too large"),
    RuntimeError("anything"),
]


@pytest.mark.parametrize("done", [False, True], ids=["instead", "after"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("at", range(1, 10))
def test_an_error_in_any_statement_leaves_memory_and_disk_agreeing(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, at: int, error: Exception, done: bool
) -> None:
    """Instead of any statement or right after it: all or nothing is stored, and everybody who waits gets an answer."""
    store.keep_all([(ask("before"), ChatReply("kept"))])
    chat = StoredChat(Counting(), store)
    failing = FailingConnection(store._connection, error, at, done=done)
    monkeypatch.setattr(store, "_connection", failing)

    async def three() -> list[ChatReply | BaseException]:
        both = asyncio.gather(*(chat.complete(ask("new")) for _ in range(3)), return_exceptions=True)
        return await asyncio.wait_for(both, 20)

    results = asyncio.run(three())
    monkeypatch.undo()

    assert {type(result) for result in results} <= {ChatReply, ChatError, StoreError}
    store._connection.rollback()
    ours, theirs = store.exchanges(), resume(store.path).exchanges()
    assert ours == theirs
    assert {each.request.messages[0].content for each in theirs} <= {"before", "new"}
    answered = any(isinstance(result, ChatReply) for result in results)
    assert not answered or store.find(ask("new")) == ChatReply("reply to new", usage=TokenUsage(10, 4, 3), attempts=2)
    store.broken = None
    assert store.keep_all([(ask("later"), ChatReply("later"))])[0].text == "later"


def test_a_full_disk_is_an_error_and_nothing_is_believed_stored(store: RunStore) -> None:
    """What could not be written is asked for again, and once there is room everything goes on."""
    store.keep_all([(ask("a"), ChatReply("a"))])
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="cannot be written"):
        store.keep_all([(ask("b"), ChatReply("".join(map(str, range(20_000)))))])
    assert store.find(ask("b")) is None
    store._connection.execute("PRAGMA max_page_count=1000000")

    store.keep_all([(ask("c"), ChatReply("c"))])

    assert [each.reply.text for each in store.exchanges()] == ["a", "c"]


def test_nothing_is_asked_that_could_not_be_stored(store: RunStore) -> None:
    """A store that could not be written once refuses further calls before they cost anything."""
    model = Counting()
    chat = StoredChat(model, store)
    store._connection.execute("PRAGMA max_page_count=1")

    for n in range(3):
        with pytest.raises(StoreError, match="cannot be written"):
            asyncio.run(chat.complete(ask(random.Random(n).randbytes(20_000).hex())))

    assert model.calls == 1


def test_limits_are_agreed_upon(store: RunStore) -> None:
    """The first who changes a limit is followed by the others; the history stays."""
    start = store.set_pace("e", None, EndpointPace(64, 64))
    half = store.set_pace("e", start, EndpointPace(32, 64, "429", 1))
    late = store.set_pace("e", start, EndpointPace(31, 64, "429", 1))

    assert late == half == store.pace("e")
    assert [pace.most for pace in store.paces()["e"]] == [64, 32]


def test_usage_adds_up_by_role_and_model(store: RunStore) -> None:
    """Replies, their retries and failed calls, over the whole life of a run."""
    store.keep_all([(ask("a"), ChatReply("a", usage=TokenUsage(10, 4, 3), attempts=2))])
    store.keep_all([(ask("b"), ChatReply("b", usage=TokenUsage(1, 0, 2)))])
    store.add_failure(ask("c"), ChatError(ReasonCode.SERVER_ERROR, "down", attempts=6))
    store.keep_all([(ask("d", role="judge", model="j"), ChatReply("d"))])

    assert store.usage() == [
        ModelUsage("evaluated", "m", 2, 11, 4, 5, retries=1 + 5, failures=1),
        ModelUsage("judge", "j", 1),
    ]
