"""Finding and reading the files that the package ships, `data/` and `scenarios/`, and files of the user.

A wheel has them in `pytest_spiral/_data/`; a checkout or an unpacked sdist has them next to `pyproject.toml`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.strict_json import JsonFault, StrictJson

# About twice a file with a thousand conversations.
MAX_FILE_BYTES = 256 * 2**20

_PACKAGE = Path(__file__).resolve().parent


@cache
def _root() -> Path:
    installed = _PACKAGE / "_data"
    if (installed / "data").is_dir():
        return installed
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / "data").is_dir():
        return checkout
    raise DataError(
        f"pytest-spiral's own data files are missing: neither {installed} nor {checkout / 'data'} exists; "
        "reinstall with `pip install --force-reinstall pytest-spiral`"
    )


def data_root() -> Path:
    """Directory with prompts, lexicons, thresholds and model parameters."""
    return _root() / "data"


def scenarios_root() -> Path:
    """Directory with the bundled scenario files and the two test modules that run them."""
    return _root() / "scenarios"


def read_text(path: Path) -> str:
    """Content of a UTF-8 file of at most 256 MiB, without a byte order mark. Raises `DataError` naming the file when it
    cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path}: not a file; give the path of a file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DataError(f"{path}: larger than {MAX_FILE_BYTES // 2**20} MiB; split it")
        return path.read_text(encoding="utf-8").removeprefix("\ufeff")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror or error}); check the path and its permissions"
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_json(path: Path, *, strict: bool = False, make: Callable[[dict[str, object]], object] | None = None) -> Any:
    """Parsed JSON file. Raises `DataError` naming file, line and column; if strict, also for NaN and duplicate keys.

    make: what becomes of each object.
    """
    text = read_text(path)
    try:
        return StrictJson().loads(text) if strict else json.loads(text, object_hook=make)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path}: not usable JSON: {error}") from None


def unique_keys(line: str, where: object) -> str:
    """A line of JSON. Raises `DataError` for a key twice in one object, of which readers keep the last."""
    # Of what is no JSON at all, its reader tells where.
    with suppress(json.JSONDecodeError, RecursionError):
        try:
            StrictJson().loads(line)
        except JsonFault as fault:
            raise DataError(f"{where}: {fault}") from None
    return line


def read_toml(path: Path) -> dict[str, Any]:
    """Parsed TOML file. Raises `DataError` naming the file and the place."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path}: not valid TOML: {error}") from None


@contextmanager
def naming_faults(where: object, whole: str = "file", hint: str = "") -> Iterator[None]:
    """Raise the first fault that pydantic finds within the block as a `DataError` that begins with the place.

    Args:
        where: File, and line or entry.
        whole: What to name where the fault is not in a single key.
        hint: What follows the fault.
    """
    try:
        yield
    except ValidationError as error:
        raise DataError(f"{where}: {first_fault(error, whole)}{hint}") from None


def line_in_toml(path: Path, location: Sequence[int | str]) -> int:
    """Line on which the value at `location` begins in a valid TOML file, or the innermost table of it that there is.

    The parser knows no lines, so it is given the beginning of the file, each time with one line more.
    """
    lines = read_text(path).splitlines()
    found, depth, begin = 1, 0, 0
    for end in range(1, len(lines) + 1):
        try:
            value: object = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            # In the middle of a value of several lines.
            continue
        reached = 0
        for step in location:
            try:
                value = value[step]  # type: ignore[index]  # what cannot be stepped into raises
            except (KeyError, IndexError, TypeError):
                break
            reached += 1
        if reached > depth:
            found, depth = begin + 1, reached
        begin = end
    return found
