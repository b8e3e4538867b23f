"""Edited and damaged contents of a store: refused as damage, never read as something else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pytest_spiral.chat import ChatReply
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import EndpointPace, RunStore, rows, texts
from tests.store.conftest import CONFIG, ask, resume


def shift_texts(path: Path) -> None:
    """Two texts change places, each of them whole."""
    with sqlite3.connect(path) as other:
        other.execute("UPDATE text SET id = -id WHERE id IN (3, 5)")
        other.execute("UPDATE text SET id = CASE id WHEN -3 THEN 5 ELSE 3 END WHERE id < 0")


def shift_replies(path: Path) -> None:
    """Two replies change places, each of them whole: others refer to them by their places."""
    with sqlite3.connect(path) as other:
        other.execute("UPDATE reply SET id = -id WHERE id IN (2, 4)")
        other.execute("UPDATE reply SET id = CASE id WHEN -2 THEN 4 ELSE 2 END WHERE id < 0")


def drop_from_index(path: Path) -> None:
    """The reply is there, but looking for its key does not find it: it would be paid for again."""
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((key,),) = other.execute("SELECT key FROM reply LIMIT 1")
        ((page,),) = other.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_reply_1'")
        ((size,),) = other.execute("PRAGMA page_size")
    content = bytearray(path.read_bytes())
    at = content.index(key, (page - 1) * size, page * size)
    content[at] ^= 1
    path.write_bytes(content)


def flip_a_bit(path: Path, table: str, column: str) -> None:
    """In one value, as a page that decays on disk."""
    with sqlite3.connect(path) as other:
        (value,) = other.execute(f"SELECT {column} FROM {table} WHERE id = 2").fetchone()
        changed = bytes([value[0] ^ 1]) + value[1:] if isinstance(value, bytes) else value ^ 1
        other.execute(f"UPDATE {table} SET {column} = ? WHERE id = 2", (changed,))


def flip_in_definition(path: Path) -> None:
    """In a comma of a table's definition: SQLite quotes what is there now, and it is no UTF-8."""
    content = path.read_bytes()
    path.write_bytes(
        content.replace(b"reasoning_tokens INTEGER NOT NULL, r", b"reasoning_tokens INTEGER NOT NULL\xac r")
    )


def smash_page(path: Path) -> None:
    """The first one of the replies, made into one of no kind."""
    with closing(sqlite3.connect(path)) as other:
        ((page,),) = other.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'reply'")
        ((size,),) = other.execute("PRAGMA page_size")
    content = bytearray(path.read_bytes())
    content[(page - 1) * size] = 7
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bit in a text": lambda path: flip_a_bit(path, "text", "content"),
    "a bit in a digest": lambda path: flip_a_bit(path, "text", "digest"),
    "a bit in a row": lambda path: flip_a_bit(path, "reply", "completion_tokens"),
    "a bit in a reference": lambda path: flip_a_bit(path, "reply", "settings"),
    "a bit in a reply": lambda path: flip_a_bit(path, "reply", "content"),
    "swapped replies": shift_replies,
    "an entry of an index": drop_from_index,
    "a bit in a definition": flip_in_definition,
    "a page": smash_page,
    "a bit in a key": lambda path: flip_a_bit(path, "reply", "key"),
    "swapped texts": shift_texts,
    "a text is missing": lambda path: change(path, "DELETE FROM text WHERE id = 3"),
    "the last text is missing": lambda path: change(path, "DELETE FROM text WHERE id = (SELECT max(id) FROM text)"),
    "a reply is missing": lambda path: change(path, "DELETE FROM reply WHERE id = 2"),
    "a value of another type": lambda path: change(path, "UPDATE reply SET key = 'text' WHERE id = 2"),
    "another secret": lambda path: change(path, "UPDATE secret SET value = '0123456789abcdef0123456789abcdef'"),
    "no secret": lambda path: change(path, "DELETE FROM secret"),
    "two secrets": lambda path: change(path, "INSERT INTO secret SELECT 2, value, checksum FROM secret"),
    "another limit": lambda path: change(path, "UPDATE pace SET most = 0 WHERE id = 2"),
    "a limit of another type": lambda path: change(path, "UPDATE pace SET at = 'text' WHERE id = 1"),
    "a limit is missing": lambda path: change(path, "DELETE FROM pace WHERE id = 1"),
    "another failure": lambda path: change(path, "UPDATE failure SET attempts = 900"),
    "a text of another type": lambda path: change(path, "UPDATE text SET content = 'text' WHERE id = 2"),
}


def change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as other:
        other.execute(statement)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_resumed_run_verifies_all_that_is_stored(store: RunStore, damage: Callable[[Path], None]) -> None:
    """Before anything is asked, whether or not this run would read it. The file is named."""
    for n in range(5):
        store.keep_all([(ask(f"question {n}"), ChatReply(f"answer {n}"))])
    store.add_failure(ask("lost"), ChatError(ReasonCode.SERVER_ERROR, "503"))
    held = None
    for most in (8, 4):
        held = store.set_pace("endpoint", held, EndpointPace(most, 8, at=1))
    store.close()
    resume(store.path).close()
    damage(store.path)

    with pytest.raises(StoreError, match=r"run\.sqlite: the run store is damaged .*another --run-id"):
        resume(store.path)


ODD_CONTENTS = [
    ["x", 0, ["u", 1], "t"],
    [0, "x", ["u", 1], "t"],
    [0, 0, ["u"], "t"],
    [0, 0, ["q", 1], "t"],
    [0, 0, [[], 1], "t"],
    [0, 0, ["u", 1], ["t"]],
    [0, 0, 5, "t"],
    [0, 0, ["u", ["a", [1]]], "t"],
    [0, 0, ["u", 1.5], "t"],
    [0, 0, ["u", 10**30], "t"],
    [1, 0, ["u", 1], "t"],
    [-(10**30), 4, ["u", 1], "t"],
    {"a": 1},
    {"a": 1, "b": 2, "c": 3, "d": 4},
    7,
]


def edit(path: Path, content: bytes) -> None:
    """Another content of the only reply, under the right checksum."""
    with closing(sqlite3.connect(path)) as other, other:
        row = list(other.execute("SELECT * FROM reply").fetchone())
        row[7] = content
        other.execute("UPDATE reply SET content = ?, checksum = ?", (content, rows.checksum(1, row[1:-1])))


@pytest.mark.parametrize("content", ODD_CONTENTS, ids=str)
def test_edited_contents_are_damage(store: RunStore, content: object) -> None:
    """Also where the checksum is right: the store is refused, and no single call is said to have failed."""
    store.keep_all([(ask(), ChatReply("ok"))])
    edit(store.path, texts._deflated(content))

    with pytest.raises(StoreError, match="damaged"):
        store.exchanges()


def test_a_text_takes_a_bounded_part_of_memory(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that become very many are damage, and what could not be read again is not stored."""
    monkeypatch.setattr(texts, "_MOST_BYTES", 10_000)
    store.keep_all([(ask(), ChatReply("a" * 9_900))])
    with pytest.raises(ChatError, match="a text of 10019 bytes"):
        store.keep_all([(ask("another"), ChatReply("a" * 10_003))])
    assert store.exchanges()[0].reply.text == "a" * 9_900

    monkeypatch.setattr(texts, "_MOST_BYTES", 9_000)

    with pytest.raises(StoreError, match="damaged"):
        store.find(ask())
    monkeypatch.undo()
    edit(store.path, texts._deflated("a" * 9_000)[:-1])
    with pytest.raises(StoreError, match="damaged"):
        store.find(ask())


def test_damage_is_named_where_the_configuration_differs_too(store: RunStore) -> None:
    """Whether anything was measured, and the run may take another configuration, cannot be read then."""
    store.close()
    smash_page(store.path)

    with pytest.raises(StoreError, match="damaged"):
        RunStore.create_or_resume(store.path, {**CONFIG, "another": 1}, alone=True)
