"""The run store keeps every reply, and refuses what is not its own."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.chat import ChatReply, ChatRequest, Message, Schema, Usage, digest
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.models.limiter import Pace
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import RunStore, StoredChat

CONFIG = {"models": ["a"], "seed": 1}


def request(text="hello", **changes):
    return ChatRequest(
        **{"role": "evaluated", "model": "m", "messages": (Message("user", text),), "unit": "u", **changes}
    )


class Counting:
    """A model that counts its calls, or fails."""

    def __init__(self, error=None):
        self.calls = 0
        self.error = error

    async def complete(self, request):
        self.calls += 1
        if self.error:
            raise self.error
        return ChatReply(f"reply to {request.messages[0].content}", usage=Usage(10, 4, 3), attempts=2)

    async def aclose(self):
        return None


@pytest.fixture
def store(tmp_path):
    store = RunStore.create_or_resume(tmp_path / "run.sqlite", CONFIG)
    yield store
    store.close()


def test_a_known_request_is_never_sent_again(store):
    """The second time the reply comes from the store, word for word."""
    model = Counting()
    chat = StoredChat(model, store)

    first = asyncio.run(chat.complete(request()))
    second = asyncio.run(chat.complete(request()))

    assert model.calls == 1
    assert second == first


def test_the_same_request_at_the_same_moment_is_sent_once(store):
    """Ten ask, one is sent, all have its reply."""
    model = Counting()
    chat = StoredChat(model, store)

    async def all_at_once():
        return await asyncio.gather(*(chat.complete(request()) for _ in range(10)))

    replies = asyncio.run(all_at_once())

    assert model.calls == 1
    assert len(set(replies)) == 1


def test_replies_of_one_commit_are_handed_over_one_by_one(store):
    """Whoever has its reply goes on before the next one is woken."""
    seen = []

    async def talk(name):
        await store.keep(request(name), ChatReply("hm"))
        seen.append(f"{name} woken")
        await asyncio.sleep(0)
        seen.append(f"{name} gone on")

    async def all_at_once():
        await asyncio.gather(talk("a"), talk("b"), talk("c"))

    asyncio.run(all_at_once())

    assert seen == ["a woken", "a gone on", "b woken", "b gone on", "c woken", "c gone on"]


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "other"},
        {"model": "n"},
        {"role": "judge"},
        {"params": {"temperature": 1.0}},
        {"schema": {"type": "object"}},
        {"sample": 1},
    ],
)
def test_whatever_decides_the_reply_is_in_the_key(changes):
    """Any change of the request is another request."""
    assert request(**changes).key != request().key


@pytest.mark.parametrize(
    "schema", [None, {"type": "object", "a": 1}, Schema(type="object", a=1), {"a": 1, "type": "object"}]
)
def test_stored_runs_find_their_replies_again(schema):
    """The key is a digest of one canonical document, however its parts are put together."""
    asked = request(params={"b": 2, "a": "\u00e9"}, schema=schema, sample=3)
    history = digest(b"".join(message.digest for message in asked.messages)).hex()
    document = [asked.role, asked.model, history, asked.params, schema, 3]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))

    assert asked.key == digest(text.encode()).hex()


def test_the_unit_is_not_in_the_key():
    """What a call belongs to does not change its reply."""
    assert request(unit="a").key == request(unit="b").key


def test_hostile_text_survives(store):
    """Lone surrogates, NUL and emoji come back as they went in."""
    text = "a\ud83d\x00b\U0001f600"
    store.add(request(text), ChatReply(text))

    found = store.find(request(text))

    assert found is not None
    assert found.text == text


def test_failures_are_kept_and_asked_again(store):
    """A failed call is on record, and is no reply."""
    chat = StoredChat(Counting(ChatError(ReasonCode.TIMEOUT, "too slow", attempts=3)), store)

    with pytest.raises(ChatError):
        asyncio.run(chat.complete(request()))

    assert store.find(request()) is None
    (row,) = store.usage()
    assert (row["failures"], row["retries"], row["requests"]) == (1, 2, 0)


def test_messages_are_stored_once(store):
    """Twenty requests that share a long prompt hold it once."""
    prompt = Message("system", "x" * 10_000)
    for n in range(20):
        messages = (prompt, Message("user", str(n)))
        store.add(request(messages=messages), ChatReply("ok"))

    rows = sqlite3.connect(store.path).execute("SELECT count(*) FROM message WHERE role = 'system'").fetchone()

    assert rows == (1,)


def conversation(turns):
    """The requests of a conversation in the order they are made: evaluated model, then seeker with roles swapped."""
    said = [Message("user", "hello")]
    for turn in range(turns):
        yield request(messages=tuple(said)), f"answer {turn}"
        said.append(Message("assistant", f"answer {turn}"))
        swapped = [Message("assistant" if m.role == "user" else "user", m.content) for m in said]
        # A note for this turn only, as injections are.
        swapped[-1] = Message("user", f"{swapped[-1].content} [note {turn}]")
        yield request(role="user", messages=(Message("system", "persona"), *swapped)), f"question {turn}"
        said.append(Message("user", f"question {turn}"))


def test_a_conversation_is_stored_once_however_long_it_gets(tmp_path, store):
    """Every text is there once, what a request adds does not grow with its history, and all of it can be read again."""
    asked = list(conversation(20))
    for each, text in asked:
        store.add(each, ChatReply(text))

    rows = sqlite3.connect(store.path)
    texts = [row[0] for row in rows.execute("SELECT content FROM text")]
    assert len(texts) == len(set(texts)) == 1 + 20 + 20 + 20 + 1
    assert all(len(json.loads(row[0])) <= 3 for row in rows.execute("SELECT added FROM exchange"))
    store.close()
    again = RunStore.create_or_resume(tmp_path / "run.sqlite", CONFIG)
    assert [again.messages(each.key) for each, _ in asked] == [each.messages for each, _ in asked]
    assert [again.find(each).text for each, _ in asked] == [text for _, text in asked]
    again.close()


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=5), max_size=12))
def test_any_requests_come_back_as_they_went_in(histories):
    """Whatever they share."""
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore.create_or_resume(Path(folder, "run.sqlite"), CONFIG)
        for history in histories:
            store.add(request(messages=tuple(Message("user", text) for text in history)), ChatReply("".join(history)))
        for history in histories:
            each = request(messages=tuple(Message("user", text) for text in history))
            assert store.messages(each.key) == each.messages
            assert store.find(each).text == "".join(history)
        store.close()


def test_replies_that_arrive_together_share_a_commit(store):
    """And of two replies to one request the first counts, for both."""
    changes = []

    async def keep_all():
        before = store._connection.total_changes
        kept = await asyncio.gather(
            *(store.keep(request(str(n)), ChatReply(f"reply {n}")) for n in range(20)),
            store.keep(request("0"), ChatReply("too late")),
        )
        changes.append(store._connection.total_changes - before)
        return kept

    store._connection.set_trace_callback(lambda statement: changes.append(statement) if statement == "COMMIT" else None)
    kept = asyncio.run(keep_all())

    assert changes.count("COMMIT") == 1
    assert [reply.text for reply in kept] == [*(f"reply {n}" for n in range(20)), "reply 0"]


def test_a_reply_outlives_the_unit_that_waited_for_it(store):
    """Cancelled between the reply and its commit: the reply is kept."""

    async def cancel():
        task = asyncio.create_task(store.keep(request(), ChatReply("paid for")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)

    asyncio.run(cancel())

    assert store.find(request()).text == "paid for"


def test_a_full_disk_is_an_error_and_nothing_is_believed_stored(store):
    """What could not be written is asked for again, and once there is room everything goes on."""
    store.add(request("a"), ChatReply("a"))
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="cannot be written"):
        asyncio.run(store.keep(request("b"), ChatReply("b" * 10_000)))
    assert store.find(request("b")) is None
    assert store.find(request("a")).text == "a"
    store._connection.execute("PRAGMA max_page_count=1000000")

    store.add(request("c"), ChatReply("c"))

    assert store.find(request("a")).text == "a"
    assert store.find(request("c")).text == "c"


def test_limits_are_agreed_upon(store):
    """The first who changes a limit is followed by the others; the history stays."""
    start = store.set_pace("e", None, Pace(64, 64))
    half = store.set_pace("e", start, Pace(32, 64, "429", 1))
    late = store.set_pace("e", start, Pace(31, 64, "429", 1))

    assert late == half == store.pace("e")
    assert [pace.most for pace in store.paces()["e"]] == [64, 32]


def test_a_resumed_run_is_the_same_run(tmp_path, store):
    """The same configuration opens the store again, with its replies."""
    store.add(request(), ChatReply("kept"))
    store.close()

    again = RunStore.create_or_resume(tmp_path / "run.sqlite", CONFIG)

    found = again.find(request())
    again.close()
    assert found is not None
    assert found.text == "kept"


def test_another_configuration_is_refused_by_field(tmp_path, store):
    """The message names what differs and what to do."""
    with pytest.raises(StoreError, match=r"seed \(was 1, now 2\).*another --run-id"):
        RunStore.create_or_resume(tmp_path / "run.sqlite", {**CONFIG, "seed": 2})


def test_foreign_databases_are_refused(tmp_path):
    """Somebody else's SQLite file is left alone."""
    path = tmp_path / "run.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")

    with pytest.raises(StoreError, match="not a run store"):
        RunStore.create_or_resume(path, CONFIG)


def test_damaged_files_are_refused(tmp_path):
    """A file that is no database is named, not replaced."""
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"this is not a database, and long enough to be read as one" * 50)

    with pytest.raises(StoreError, match="damaged"):
        RunStore.create_or_resume(path, CONFIG)

    assert path.read_bytes().startswith(b"this is not")


HOLD = """
import sys, time
from pathlib import Path
from pytest_spiral.store import RunStore
store = RunStore.create_or_resume(Path(sys.argv[1]), {"models": ["a"], "seed": 1}, alone=True)
print("held", flush=True)
time.sleep(60)
"""


def test_a_run_has_one_leader_at_a_time(tmp_path):
    """Another one is refused in one sentence; the lock ends with its holder, be it by kill -9."""
    path = tmp_path / "r" / "run.sqlite"
    path.parent.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        with pytest.raises(StoreError, match="'r' is under way in another process"):
            RunStore.create_or_resume(path, CONFIG, alone=True)
        # Looking at it is nobody's harm.
        RunStore.create_or_resume(path, CONFIG).close()
    finally:
        holder.kill()
        holder.communicate()

    RunStore.create_or_resume(path, CONFIG, alone=True).close()
    RunStore.create_or_resume(path, CONFIG, alone=True).close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["run.lock", "run.sqlite"]


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "cut in the header"])
def test_a_torn_store_is_refused(tmp_path, damage):
    """Before anything is built on it, and it is left as it is."""
    path = tmp_path / "run.sqlite"
    store = RunStore.create_or_resume(path, CONFIG)
    for n in range(200):
        store.add(request(f"question {n} " * 20), ChatReply(f"answer {n} " * 20))
    store.close()
    whole = path.read_bytes()
    torn = {
        "truncated": whole[: len(whole) // 2 + 100],
        "overwritten": whole[:20_000] + b"\xa5" * 20_000 + whole[40_000:],
        "cut in the header": whole[:50],
    }[damage]
    path.write_bytes(torn)

    with pytest.raises(StoreError, match=r"run\.sqlite: the run store is damaged .*another --run-id"):
        RunStore.create_or_resume(path, CONFIG)

    assert path.read_bytes() == torn


def test_nothing_is_asked_that_could_not_be_kept(store):
    """A store that has refused a reply once refuses further calls before they cost anything."""
    model = Counting()
    chat = StoredChat(model, store)
    store._connection.execute("PRAGMA max_page_count=1")

    for n in range(3):
        with pytest.raises(StoreError, match="cannot be written"):
            asyncio.run(chat.complete(request(f"{n}" * 5_000)))

    assert model.calls == 1


def test_a_store_that_died_empty_is_made_anew(tmp_path):
    """A process killed before its first write leaves nothing to refuse."""
    path = tmp_path / "run.sqlite"
    path.touch()

    RunStore.create_or_resume(path, CONFIG).close()
    RunStore.create_or_resume(path, CONFIG).close()


def write_many(path, start):
    store = RunStore.join(path)
    for n in range(start, start + 200):
        store.add(request(str(n)), ChatReply(str(n)))
    store.close()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_processes_write_side_by_side(store, method):
    """Four writers lose nothing and lock nobody out, however they were started."""
    context = multiprocessing.get_context(method)
    writers = [context.Process(target=write_many, args=(store.path, 200 * k)) for k in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert sum(row["requests"] for row in store.usage()) == 800
