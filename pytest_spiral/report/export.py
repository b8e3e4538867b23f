"""A report in the formats of other programs: CSV, Parquet, JUnit XML, a Hugging Face model card, an Inspect log.

Cells of CSV files that a spreadsheet would run as a formula are made text; nothing else is changed.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_spiral.errors import ConfigError
from pytest_spiral.report.inspect_log import inspect_logs
from pytest_spiral.report.junit import gates_xml
from pytest_spiral.report.lookup import evaluated_models
from pytest_spiral.report.model import Report
from pytest_spiral.report.model_card import model_card
from pytest_spiral.report.tables import TABLES, Cell, Row, tables
from pytest_spiral.report.write import write_atomically

__all__ = ["FORMATS", "export", "neutral"]

# A spreadsheet takes a cell that starts with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBERS = frozenset({"value", "low", "high", "threshold", "cost_usd"})
_COUNTS = frozenset({"repeat", "index", "turn", "strength", "requests", "retries", "failures"}) | {
    *("prompt_tokens", "cached_tokens", "completion_tokens"),
}


def neutral(cell: Cell) -> Cell:
    """A cell that no spreadsheet runs: text that begins like a formula gets an apostrophe in front.

    >>> neutral("=1+1"), neutral("-0.5"), neutral(-0.5)
    ("'=1+1", "'-0.5", -0.5)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip(" ").startswith(_FORMULA) else cell


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(neutral, row) for row in rows)
    return out.getvalue()


def _model_cards(report: Report) -> dict[str, str]:
    models = enumerate(evaluated_models(report), start=1)
    return {f"model-card-{number}.md": model_card(report, model) for number, model in models}


def _write_parquet(report: Report, folder: Path) -> list[Path]:
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed; run `pip install 'pytest-spiral[parquet]'`"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, rows in tables(report).items():
        columns = TABLES[name]
        kinds = [
            (column, arrow.float64() if column in _NUMBERS else arrow.int64() if column in _COUNTS else arrow.string())
            for column in columns
        ]
        data = [dict(zip(columns, row, strict=True)) for row in rows]
        paths.append(folder / f"{name}.parquet")
        parquet.write_table(arrow.Table.from_pylist(data, schema=arrow.schema(kinds)), paths[-1])
    return paths


_TEXTS: Mapping[str, Callable[[Report], Mapping[str, str]]] = {
    "csv": lambda report: {f"{name}.csv": _csv(TABLES[name], rows) for name, rows in tables(report).items()},
    "junit": lambda report: {"gates.xml": gates_xml(report)},
    "model-card": _model_cards,
    "inspect": lambda report: {name: json.dumps(log, indent=1) + "\n" for name, log in inspect_logs(report).items()},
}
FORMATS = (*_TEXTS, "parquet")


def export(report: Report, name: str, folder: Path) -> list[Path]:
    """Write a report in one of `FORMATS` into a directory; the files written.

    Raises:
        ConfigError: The format needs a package that is not installed.
        OSError: A file could not be written.
    """
    if name == "parquet":
        return _write_parquet(report, folder)
    texts = _TEXTS[name](report)
    for file, text in texts.items():
        write_atomically(folder / file, text)
    return [folder / file for file in texts]
