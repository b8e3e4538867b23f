"""Rows of the tables, each with a checksum over its id and its values in its last column."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Literal

from pytest_spiral.strict_json import json_bytes

# 64 bits are enough to notice damage; they keep nobody from changing a row and its checksum on purpose.
_CHECKSUM_BYTES = 8
CheckedTable = Literal["secret", "failure", "pace", "text", "reply"]
CHECKED_TABLES: tuple[CheckedTable, ...] = ("secret", "failure", "pace", "text", "reply")


class DamagedRowError(ValueError):
    """A stored row or text is not what was written."""


def checksum(row_id: int, values: Sequence[object]) -> bytes:
    """What the last column of a row must hold. Raises TypeError for values that JSON cannot hold."""
    written = [row_id, *(value.hex() if isinstance(value, bytes) else value for value in values)]
    return hashlib.sha256(json_bytes(written)).digest()[:_CHECKSUM_BYTES]


def next_id(connection: sqlite3.Connection, table: CheckedTable) -> int:
    """The id of the row that is added next: ids have no gaps."""
    (last,) = connection.execute(f"SELECT max(id) FROM {table}").fetchone()  # noqa: S608
    return int(last or 0) + 1


def add_row(connection: sqlite3.Connection, table: CheckedTable, values: Sequence[object]) -> int:
    """Add a row to a table. values: as SQLite gives them back, without id and checksum. Returns its id."""
    row_id = next_id(connection, table)
    places = ", ".join("?" * (len(values) + 2))
    connection.execute(f"INSERT INTO {table} VALUES ({places})", (row_id, *values, checksum(row_id, values)))  # noqa: S608
    return row_id


def verify_rows(connection: sqlite3.Connection, table: CheckedTable) -> None:
    """Raise `DamagedRowError` where a row was changed or is missing."""
    count = 0
    for count, (row_id, *values, found) in enumerate(connection.execute(f"SELECT * FROM {table} ORDER BY id"), 1):  # noqa: S608
        if row_id != count or found != checksum(row_id, values):
            raise DamagedRowError(f"row {count} of table {table} was changed or is missing")
    if table == "secret" and count != 1:
        raise DamagedRowError("table secret does not hold one row")
