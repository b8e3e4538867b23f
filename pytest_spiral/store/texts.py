"""The texts of a run: each distinct one once, compressed, with a checksum that is verified when it is read."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_spiral.chat import digest_of
from pytest_spiral.strict_json import json_bytes

# The first texts of a run are the preset dictionary for those that follow: they are about the same things.
_DICTIONARY_TEXTS = 64
_DICTIONARY_BYTES = 32_000
_LEVEL = 6
# Characters. A reference to a shorter text saves nothing.
_SHORTEST_PART = 100


class DamagedRowError(ValueError):
    """A stored row or text is not what was written."""


class Texts:
    """Table `text`. Content is compressed JSON: a string, or a list of strings and of ids of texts in between.

    Keeps in memory only what does not change any more once it is committed.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._dictionary = b""
        # Copied for each text: making one, and having it read the dictionary, takes longer than compressing a text.
        self._deflater = zlib.compressobj(_LEVEL)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around a transaction: if it fails, what it has added is forgotten, and only the file is believed."""
        try:
            yield
        except BaseException:
            self._forget()
            raise

    def id(self, connection: sqlite3.Connection, text: str, digest: bytes = b"", parts: tuple[str, ...] = ()) -> int:
        """The id of a text, which is added if it is new. Of a text that repeats others (`parts`), the rest is added."""
        digest = digest or digest_of(text)
        if digest not in self._ids:
            row = connection.execute("SELECT id FROM text WHERE digest = ?", (digest,)).fetchone()
            self._ids[digest] = row[0] if row else self._add(connection, text, digest, parts)
        return self._ids[digest]

    def text(self, connection: sqlite3.Connection, text_id: int) -> str:
        """The text with an id. Raises `DamagedRowError`."""
        row = connection.execute("SELECT digest, content, checksum FROM text WHERE id = ?", (text_id,)).fetchone()
        try:
            digest, content, checksum = row
            _verify(text_id, digest, content, checksum)
            preset = b"" if text_id <= _DICTIONARY_TEXTS else self._preset(connection)
            inflater = zlib.decompressobj(zdict=preset)
            document = json.loads((inflater.decompress(content) + inflater.flush()).decode())
        except DamagedRowError:
            raise
        except (TypeError, ValueError, zlib.error):
            raise DamagedRowError(f"text {text_id} cannot be read") from None
        pieces = [document] if isinstance(document, str) else document
        text = "".join(piece if isinstance(piece, str) else self.text(connection, piece) for piece in pieces)
        if digest_of(text) != digest:
            raise DamagedRowError(f"the checksum of text {text_id} is wrong")
        return text

    def verify(self, connection: sqlite3.Connection) -> int:
        """Verify all texts as they are stored; their number. Raises `DamagedRowError`."""
        count = 0
        for count, (text_id, digest, content, checksum) in enumerate(
            connection.execute("SELECT id, digest, content, checksum FROM text ORDER BY id"), start=1
        ):
            if text_id != count:
                raise DamagedRowError(f"text {count} is missing")
            _verify(text_id, digest, content, checksum)
        return count

    def _add(self, connection: sqlite3.Connection, text: str, digest: bytes, parts: tuple[str, ...]) -> int:
        pieces: list[str | int] = []
        rest = text
        for part in (part for part in parts if len(part) >= _SHORTEST_PART):
            before, found, after = rest.partition(part)
            if found:
                pieces += [before, self.id(connection, part)]
                rest = after
        document = [*pieces, rest] if pieces else text
        self._preset(connection)
        deflater = self._deflater.copy()
        content = deflater.compress(json_bytes(document)) + deflater.flush()
        (last,) = connection.execute("SELECT max(id) FROM text").fetchone()
        text_id = int(last or 0) + 1
        row = (text_id, digest, content, _checksum(text_id, digest, content))
        connection.execute("INSERT INTO text (id, digest, content, checksum) VALUES (?, ?, ?, ?)", row)
        return text_id

    def _preset(self, connection: sqlite3.Connection) -> bytes:
        """The preset dictionary, empty until the run has enough texts for it."""
        if not self._dictionary:
            (count,) = connection.execute("SELECT max(id) FROM text").fetchone()
            if (count or 0) >= _DICTIONARY_TEXTS:
                first = "".join(self.text(connection, text_id) for text_id in range(1, _DICTIONARY_TEXTS + 1))
                self._dictionary = first.encode("utf-8", "surrogatepass")[-_DICTIONARY_BYTES:]
                self._deflater = zlib.compressobj(_LEVEL, zdict=self._dictionary)
        return self._dictionary


def _verify(text_id: int, digest: object, content: object, checksum: object) -> None:
    intact = (
        isinstance(digest, bytes) and isinstance(content, bytes) and checksum == _checksum(text_id, digest, content)
    )
    if not intact:
        raise DamagedRowError(f"the checksum of text {text_id} is wrong")


def _checksum(text_id: int, digest: bytes, content: bytes) -> bytes:
    """Of a row as it is stored, its id included: two texts that changed places are noticed."""
    return hashlib.sha256(b"%d %s %s" % (text_id, digest, content)).digest()[:8]
