"""The texts of a run: replies in their rows, all others in table `text`; what repeats a text names its place.

A place is the id of a text, or minus the id of the row of table `reply` that has it. The content of such a row is
compressed JSON `[before, same, asked, text]`: what was asked is that of the earlier row `before` up to `same`, and then
`asked`, for each message the letter of its role and a place, or a list of strings and places; `text` is the reply's.
"""

from __future__ import annotations

import json
import operator
import sqlite3
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import takewhile

from pytest_spiral.chat import ChatRequest, ComposedMessage, Message, MessageRole, digest_of
from pytest_spiral.resources import data_root
from pytest_spiral.store.rows import DamagedRowError, add_row
from pytest_spiral.strict_json import json_bytes

Asked = list[str | int | list[str | int]]
_LETTERS: Mapping[MessageRole, str] = {"system": "s", "user": "u", "assistant": "a"}
_ROLES: Mapping[object, MessageRole] = {letter: role for role, letter in _LETTERS.items()}
# Characters. A place instead of a shorter part saves nothing.
_SHORTEST_PART = 100
# What reading content raises that somebody has edited: it may have any shape.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, zlib.error)
# Of one text: no reply or prompt is nearly as long, and a megabyte of an edited store could take a gigabyte of memory.
_MOST_BYTES = 64 * 2**20
_SHORT = 4  # two messages: what asks no more is not continued, and less is not shared


@cache
def _codecs() -> tuple[zlib._Compress, zlib._Decompress]:
    """To be copied for each text: having them read the dictionary takes longer than compressing a text."""
    # Common words: a single text is too short for the compressor to learn them. Another one is another format.
    words = (data_root() / "store_dictionary.txt").read_bytes()
    return zlib.compressobj(wbits=-zlib.MAX_WBITS, zdict=words), zlib.decompressobj(-zlib.MAX_WBITS, words)


def _deflated(value: object) -> bytes:
    deflater = _codecs()[0].copy()
    # Escapes would make one character of two halves that stand side by side.
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if len(written) >= _MOST_BYTES:
        raise ValueError(f"a text of {len(written)} bytes")
    return deflater.compress(written) + deflater.flush()


def _inflated(content: bytes) -> bytes:
    inflater = _codecs()[1].copy()
    inflated = inflater.decompress(content, _MOST_BYTES)
    if not inflater.eof:
        raise DamagedRowError("too long or cut off")
    return inflated


class Texts:
    """Places of texts, as far as this process has stored or read them: table `text` knows the others.

    Keeps in memory only what does not change any more once it is committed.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        # What the last row asked, and it and those it continues: each with its `same`, which is larger every time.
        self._last: dict[tuple[str, str, str], tuple[list[tuple[int, int]], bytes]] = {}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around a transaction: if it fails, what it has added is forgotten, and only the file is believed."""
        try:
            yield
        except BaseException:
            self._places.clear()
            self._last.clear()
            raise

    def place(self, connection: sqlite3.Connection, text: str, digest: bytes = b"") -> int:
        """The place of a text, which is added if it is new."""
        digest = digest or digest_of(text)
        if digest not in self._places:
            row = connection.execute("SELECT id FROM text WHERE digest = ?", (digest,)).fetchone()
            self._places[digest] = row[0] if row else add_row(connection, "text", (digest, _deflated(text)))
        return self._places[digest]

    def reply(self, connection: sqlite3.Connection, row_id: int) -> str:
        """The text of a reply, whose place is known from now on. Raises `DamagedRowError`."""
        text = text_at(connection, -row_id)
        self._places.setdefault(digest_of(text), -row_id)
        return text

    def pack(self, connection: sqlite3.Connection, row_id: int, request: ChatRequest, text: str) -> bytes:
        """The content of a new row of table `reply`."""
        asked: Asked = []
        for message in request.messages:
            asked += [_LETTERS[message.role], self._stated(connection, message)]
        conversation = (request.role, request.model, request.unit)
        rows, earlier = self._last.get(conversation, ([], b"[]"))
        same = len([*takewhile(bool, map(operator.eq, asked, json.loads(earlier)))])
        same = same if same >= _SHORT else 0
        # Not those that share as much with the one before: so none is read through more rows than it has messages.
        rows = [(row, shared) for row, shared in rows if shared < same]
        before = rows[-1][0] if rows else 0
        if len(asked) > _SHORT:
            self._last[conversation] = [*rows, (row_id, same)], json_bytes(asked)
        if request.role in ("evaluated", "user"):  # nobody is shown what judges say
            self._places.setdefault(digest_of(text), -row_id)
        return _deflated([before, same, asked[same:], text])

    def _stated(self, connection: sqlite3.Connection, message: Message) -> int | list[str | int]:
        pieces: list[str | int] = []
        rest = message.content
        for part in message.parts if isinstance(message, ComposedMessage) else ():
            before, found, after = rest.partition(part) if len(part) >= _SHORTEST_PART else ("", "", "")
            if found:
                pieces += [before, self.place(connection, part)]
                rest = after
        return [piece for piece in (*pieces, rest) if piece] if pieces else self.place(connection, rest, message.digest)


def content_of(connection: sqlite3.Connection, row_id: int) -> tuple[int, int, Asked, str]:
    """The content of a row; whoever reads a request compares the hash of all that it asks. Raises `DamagedRowError`."""
    with suppress(*UNREADABLE):
        (content,) = connection.execute("SELECT content FROM reply WHERE id = ?", (row_id,)).fetchone()
        match json.loads(_inflated(content)):
            case [int(before), int(same), list(asked), str(text)] if before < row_id:
                return before, same, asked, text
    raise DamagedRowError(f"the content of reply {row_id} cannot be read")


def places_in(connection: sqlite3.Connection, row_id: int) -> Iterator[int]:
    """All places in what a row asked. Raises `DamagedRowError`."""
    for part in content_of(connection, row_id)[2]:
        yield from (piece for piece in (part if isinstance(part, list) else [part]) if isinstance(piece, int))


def messages_of(connection: sqlite3.Connection, row_id: int) -> tuple[Message, ...]:
    """The messages of a request. Raises `DamagedRowError`."""
    whole: Asked = []
    upto = sys.maxsize
    while row_id and upto:
        row_id, same, asked, _ = content_of(connection, row_id)
        whole = asked[: max(upto - same, 0)] + whole
        upto = min(upto, same)
    said = zip(whole[::2], whole[1::2], strict=True)
    return tuple(Message(_ROLES[letter], _text_of(connection, stated)) for letter, stated in said)


def _text_of(connection: sqlite3.Connection, stated: Sequence[str | int] | int) -> str:
    pieces = [stated] if isinstance(stated, int) else stated
    return "".join(piece if isinstance(piece, str) else text_at(connection, piece) for piece in pieces)


def text_at(connection: sqlite3.Connection, place: int) -> str:
    """The text at a place. Raises `DamagedRowError`."""
    if place < 0:
        return content_of(connection, -place)[-1]
    with suppress(*UNREADABLE):
        digest, content = connection.execute("SELECT digest, content FROM text WHERE id = ?", (place,)).fetchone()
        if digest_of(text := str(json.loads(_inflated(content)))) == digest:
            return text
    raise DamagedRowError(f"text {place} is not what was stored")
