"""Rows of the small tables, each with a checksum over its values in its last column."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Literal

from pytest_spiral.store.texts import DamagedRowError
from pytest_spiral.strict_json import json_bytes

# 64 bits are enough to notice damage; they keep nobody from changing a row and its checksum on purpose.
_CHECKSUM_BYTES = 8
CheckedTable = Literal["secret", "failure", "pace"]
CHECKED_TABLES: tuple[CheckedTable, ...] = ("secret", "failure", "pace")


def checksum(values: Sequence[object]) -> bytes:
    """What the last column of a row must hold. Raises TypeError for values that JSON cannot hold."""
    written = [value.hex() if isinstance(value, bytes) else value for value in values]
    return hashlib.sha256(json_bytes(written)).digest()[:_CHECKSUM_BYTES]


def add_row(connection: sqlite3.Connection, table: CheckedTable, values: Sequence[object]) -> None:
    """Add a row to a table. values: as SQLite gives them back, without id and checksum."""
    places = ", ".join("?" * (len(values) + 1))
    connection.execute(f"INSERT INTO {table} VALUES (NULL, {places})", (*values, checksum(values)))  # noqa: S608


def verify_rows(connection: sqlite3.Connection, table: CheckedTable) -> None:
    """Raise `DamagedRowError` where a row was changed or is missing."""
    count = 0
    for count, (row_id, *values, found) in enumerate(connection.execute(f"SELECT * FROM {table} ORDER BY id"), 1):  # noqa: S608
        if row_id != count or found != checksum(values):
            raise DamagedRowError(f"row {count} of table {table} was changed or is missing")
    if table == "secret" and count != 1:
        raise DamagedRowError("table secret does not hold one row")
