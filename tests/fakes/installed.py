"""What is installed stays as it is while tests run: a run inside a test need not read it from the disk again.

pytest reads the metadata of every distribution several times a run, which took an eighth of the time of such runs.
"""

from __future__ import annotations

from importlib.metadata import PathDistribution
from typing import Any

_READ: dict[tuple[str, str], Any] = {}
_NAMES = ("metadata", "entry_points", "files")
_READERS = {name: getattr(PathDistribution, name) for name in _NAMES}


def read_once() -> None:
    """From now on, this process reads metadata, entry points and files of an installed distribution once."""
    for name, reader in _READERS.items():
        setattr(PathDistribution, name, property(_remembering(name, reader.fget)))


def _remembering(name: str, read: Any) -> Any:
    def of(distribution: Any) -> Any:
        # What a test itself installs lies in a folder of its own.
        key = str(distribution._path), name
        if key not in _READ:
            _READ[key] = read(distribution)
        return _READ[key]

    return of
