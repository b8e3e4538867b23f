"""Reading a report, of this schema version or an earlier one."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.report.model import SCHEMA_VERSION, Report
from pytest_spiral.report.version1 import report_from_version_1
from pytest_spiral.resources import read_json, read_text


def load_report(path: Path) -> Report:
    """The report in a file of this schema version or an earlier one.

    Raises:
        DataError: The file is not a report, or breaks its schema; the message names the file and the key.
    """
    report = find_report(path)
    if report is None:
        raise DataError(f"{path}: not a report of pytest-spiral")
    return report


def find_report(path: Path) -> Report | None:
    """The same; None for a JSON file that does not claim to be a report of this package."""
    raw = read_json(path)
    if not isinstance(raw, dict) or "schema_version" not in raw:
        return None
    version = raw["schema_version"]
    if not isinstance(version, int) or version < 1:
        raise DataError(f"{path}: not a report of pytest-spiral")
    if version > SCHEMA_VERSION:
        raise DataError(
            f"{path}: report schema {version}, this version reads up to {SCHEMA_VERSION}; update pytest-spiral"
        )
    try:
        if version == 1:
            return report_from_version_1(raw)
        return Report.model_validate_json(read_text(path), strict=True)
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error, 'report')}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a report of schema version 1: {error!r}") from None
