"""Reading a report, of this schema version or an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.evaluate.report import SCHEMA_VERSION
from pytest_spiral.report import model
from pytest_spiral.report.version1 import report_from_version_1
from pytest_spiral.resources import data_root, read_json, read_text

__all__ = ["MIGRATIONS", "is_report", "load_report", "migrated", "read_report"]

Migration = Callable[[dict[str, Any]], dict[str, Any]]

MIGRATIONS: Mapping[int, Migration] = {}
"""From each earlier schema version to the next one."""


def is_report(path: Path) -> bool:
    """Whether a file claims to be a report of ours. Raises `DataError` naming a file that is no JSON."""
    raw = read_json(path)
    return isinstance(raw, dict) and "schema_version" in raw


def load_report(path: Path) -> model.Report:
    """The report in a file of this schema version or an earlier one.

    Raises:
        DataError: The file is not a report, or breaks its schema; the message names the file and the key.
    """
    raw = read_json(path)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if not isinstance(version, int) or version < 1:
        raise DataError(f"{path}: not a report of pytest-spiral")
    if version > model.SCHEMA_VERSION:
        raise DataError(
            f"{path}: report schema {version}, this version reads up to {model.SCHEMA_VERSION}; update pytest-spiral"
        )
    try:
        if version == 1:
            return report_from_version_1(raw)
        return model.Report.model_validate_json(read_text(path), strict=True)
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error, 'report')}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a report of schema version 1: {error!r}") from None


def read_report(path: Path) -> dict[str, Any]:
    """The report in a file, brought up to this schema version and checked against its schema.

    Raises `DataError` naming the file and, for a report that breaks the schema, the key.
    """
    raw = read_json(path)
    if not isinstance(raw, dict) or not isinstance(raw.get("schema_version"), int):
        raise DataError(f"{path}: not a report of pytest-spiral")
    if raw["schema_version"] > SCHEMA_VERSION:
        raise DataError(
            f"{path}: report schema {raw['schema_version']}, this version reads up to {SCHEMA_VERSION}; "
            "update pytest-spiral"
        )
    report = migrated(raw, MIGRATIONS)
    fault = _first_fault(report)
    if fault is not None:
        raise DataError(f"{path}: {fault}")
    return report


def migrated(report: dict[str, Any], migrations: Mapping[int, Migration]) -> dict[str, Any]:
    """A report brought up to this version, step by step. Raises `DataError` for a version with no way forward."""
    while (version := report["schema_version"]) != SCHEMA_VERSION:
        if version not in migrations:
            raise DataError(f"report schema {version} can no longer be read; version {SCHEMA_VERSION} is current")
        report = migrations[version](report)
    return report


def _first_fault(report: Mapping[str, Any]) -> str | None:
    from jsonschema import Draft202012Validator

    schema = read_json(data_root() / "report.schema.json")
    error = next(iter(Draft202012Validator(schema).iter_errors(report)), None)
    if error is None:
        return None
    where = ".".join(str(step) for step in error.absolute_path) or "the report"
    return f"{where}: {error.message[:200]}"
