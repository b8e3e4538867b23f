"""A report in the formats of others: long tables (CSV, Parquet), JUnit XML, a Hugging Face model card, an Inspect log.

Everything here is made from `report.json` alone. Cells of CSV files that a spreadsheet would run as a formula are made
text; nothing else is changed.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import escape, quoteattr

from pytest_spiral.errors import ConfigError
from pytest_spiral.report.lines import plain
from pytest_spiral.report.write import write_atomically

__all__ = ["FORMATS", "TABLES", "export", "junit_xml", "model_card", "neutral", "tables"]

Row = tuple[Any, ...]
Format = Literal["csv", "parquet", "junit", "model-card", "inspect"]

TABLES: Mapping[str, Sequence[str]] = {
    "metrics": ("run", "suite", "model", "variant", "metric", "value", "low", "high", "method"),
    "measurements": (
        "run",
        "suite",
        "model",
        "variant",
        "unit",
        "group",
        "repeat",
        "status",
        "reason",
        "metric",
        "value",
    ),
    "messages": ("run", "model", "conversation", "category", "index", "role", "content"),
    "findings": (
        *("run", "model", "conversation", "category", "turn", "behaviour", "strength", "judge", "evidence", "quote"),
    ),
    "gates": (
        *("run", "gate", "model", "variant", "metric", "value", "low", "high", "threshold", "policy", "outcome"),
    ),
    "usage": (
        *("run", "role", "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd"),
        *("retries", "failures"),
    ),
}
"""Tables and their columns. variant: prompting mode or protocol. unit: scenario or conversation. group: family or
category. repeat: epoch or conversation index, from 0."""

# A spreadsheet takes a cell that starts so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def tables(report: Mapping[str, Any]) -> dict[str, list[Row]]:
    """The long tables of a report, by name; columns as in `TABLES`."""
    run = report["run"]["id"]
    makers: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Row]]] = {
        "metrics": _metrics,
        "measurements": _measurements,
        "messages": _messages,
        "findings": _findings,
        "gates": _gates,
        "usage": _usage,
    }
    return {name: [(run, *row) for row in make(report)] for name, make in makers.items()}


def _metrics(report: Mapping[str, Any]) -> Iterator[Row]:
    for card in report["tempaffect"]["cards"]:
        for metric, interval in card["intervals"].items():
            value: Any = card
            for name in metric.split("."):
                value = value[name] if isinstance(value, Mapping) else None
            if isinstance(value, Mapping):
                value = value["value"]
            bounds = (interval["low"], interval["high"], interval["method"])
            yield ("tempaffect", card["model"], card["prompting_mode"], metric, value, *bounds)
    for score in report["spiral"]["scores"]:
        key = ("spiral", score["model"], score["protocol"])
        yield (*key, "score", score["score"], score["ci_low"], score["ci_high"], score["ci_method"])
        for metric, row in score["metrics"].items():
            yield (*key, metric, row["mean"], row["ci_low"], row["ci_high"], score["ci_method"])


def _measurements(report: Mapping[str, Any]) -> Iterator[Row]:
    for item in report["tempaffect"]["items"]:
        key = ("tempaffect", item["model"], item["prompting_mode"], item["id"], item["family"], item["epoch"])
        state = (item["status"], item["reason"])
        yield (*key, *state, "score", item["score"])
        if item["useful_bounded"] is not None:
            yield (*key, *state, "useful_bounded", float(item["useful_bounded"]))
        for metric, points in item["points"].items():
            yield (*key, *state, f"points.{metric}", points)
    protocols = {score["model"]: score["protocol"] for score in report["spiral"]["scores"]}
    for talk in report["spiral"]["conversations"]:
        key = ("spiral", talk["model"], protocols.get(talk["model"]), talk["id"], talk["category"], talk["index"])
        state = (talk["status"], talk["reason"]["code"] if talk["reason"] else None)
        measured = talk["status"] == "measured"
        asked = sorted({name for judgement in talk["judgements"] for name in judgement["behaviours"]})
        if not measured or not asked:
            yield (*key, *state, "findings", len(talk["findings"]) if measured else None)
        for behaviour in asked if measured else ():
            found = [f["strength"] for f in talk["findings"] if f["behaviour"] == behaviour]
            yield (*key, *state, f"strength.{behaviour}", sum(found))
        for metric, value in (talk["final_judgement"] or {}).items():
            yield (*key, *state, f"final.{metric}", value)


def _messages(report: Mapping[str, Any]) -> Iterator[Row]:
    for talk in report["spiral"]["conversations"]:
        for index, message in enumerate(talk["transcript"]):
            yield (talk["model"], talk["id"], talk["category"], index, message["role"], message["content"])


def _findings(report: Mapping[str, Any]) -> Iterator[Row]:
    for talk in report["spiral"]["conversations"]:
        for f in talk["findings"]:
            what = (f["turn"], f["behaviour"], f["strength"], f["judge"], f["evidence"], f["quote"])
            yield (talk["model"], talk["id"], talk["category"], *what)


def _gates(report: Mapping[str, Any]) -> Iterator[Row]:
    names = (
        "expr",
        "model",
        "prompting_mode",
        "metric",
        "value",
        "ci_low",
        "ci_high",
        "threshold",
        "policy",
        "outcome",
    )
    for gate in report["gates"]:
        yield tuple(gate[name] for name in names)


def _usage(report: Mapping[str, Any]) -> Iterator[Row]:
    for role, row in report["usage"]["by_role"].items():
        yield (role, *(row[name] for name in TABLES["usage"][2:]))


def neutral(cell: Any) -> Any:
    """A cell that no spreadsheet runs: text that begins like a formula gets an apostrophe in front.

    >>> neutral("=1+1"), neutral("-0.5"), neutral(-0.5)
    ("'=1+1", "'-0.5", -0.5)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip(" ").startswith(_FORMULA) else cell


def _encodable(cell: Any) -> Any:
    # Half of a surrogate pair, as models emit them, has no UTF-8 form.
    return cell.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(cell, str) else cell


def _csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_encodable(neutral(cell)) for cell in row] for row in rows)
    return out.getvalue()


def _write_csv(report: Mapping[str, Any], folder: Path) -> list[Path]:
    paths = []
    for name, rows in tables(report).items():
        paths.append(folder / f"{name}.csv")
        write_atomically(paths[-1], _csv(TABLES[name], rows))
    return paths


_NUMBERS = frozenset({"value", "low", "high", "threshold", "cost_usd"})
_COUNTS = frozenset({"repeat", "index", "turn", "strength", "requests", "prompt_tokens", "cached_tokens"}) | {
    *("completion_tokens", "retries", "failures"),
}


def _write_parquet(report: Mapping[str, Any], folder: Path) -> list[Path]:
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed; run `pip install 'pytest-spiral[parquet]'`"
        ) from None
    paths = []
    for name, rows in tables(report).items():
        columns = TABLES[name]
        kinds = [
            (column, arrow.float64() if column in _NUMBERS else arrow.int64() if column in _COUNTS else arrow.string())
            for column in columns
        ]
        data = [{column: _encodable(cell) for column, cell in zip(columns, row, strict=True)} for row in rows]
        paths.append(folder / f"{name}.parquet")
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write_table(arrow.Table.from_pylist(data, schema=arrow.schema(kinds)), paths[-1])
    return paths


def junit_xml(report: Mapping[str, Any]) -> str:
    """The gates as JUnit test cases: failed gates as failures, undecided ones as errors."""
    cases = []
    for gate in report["gates"]:
        where = ".".join(filter(None, (gate["model"], gate["prompting_mode"])))
        head = f"  <testcase classname={_attribute(where)} name={_attribute(gate['expr'])}"
        says = f"value {gate['value']}, bounds {gate['ci_low']} to {gate['ci_high']}, threshold {gate['threshold']}"
        kind = {"pass": None, "fail": "failure"}.get(gate["outcome"], "error")
        body = f"><{kind} message={_attribute(gate['outcome'])}>{escape(says)}</{kind}></testcase>" if kind else "/>"
        cases.append(head + body)
    outcomes = [gate["outcome"] for gate in report["gates"]]
    failures = outcomes.count("fail")
    errors = len(outcomes) - failures - outcomes.count("pass")
    counts = f'tests="{len(outcomes)}" failures="{failures}" errors="{errors}" skipped="0"'
    started = report["run"]["started_at"]
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuites><testsuite name="pytest-spiral gates" {counts} timestamp={_attribute(started)}>',
        *cases,
        "</testsuite></testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _attribute(text: str) -> str:
    return quoteattr(plain(text))


def model_card(report: Mapping[str, Any], model: str) -> str:
    """A snippet for a model card on the Hugging Face hub: the `model-index` metadata and the same as prose.

    Only scores that may be published are in the metadata; the others are named with what stands in the way.
    """
    results: list[dict[str, Any]] = []
    withheld: list[str] = []
    for card in report["tempaffect"]["cards"]:
        if card["model"] == model:
            name = f"TempAffect 1 ({card['prompting_mode']})"
            found = [(metric, card[metric]) for metric in ("score", "useful_bounded_response_rate")]
            blockers = card["integrity"]["publication_blockers"]
            _enter(results, withheld, name, found, card["intervals"], blockers)
    for score in report["spiral"]["scores"]:
        if score["model"] == model:
            name = f"Spiral-Bench ({score['protocol']})"
            interval = {"score": {"low": score["ci_low"], "high": score["ci_high"]}}
            _enter(results, withheld, name, [("score", score["score"])], interval, score["blockers"])
    if not results and not withheld:
        raise ConfigError(f"{model}: no such model in this report")
    entry = {"name": model, "results": results}
    # JSON is YAML, and needs no quoting of what a model may be called.
    front = f"---\nmodel-index: {json.dumps([entry], ensure_ascii=True)}\n---\n" if results else ""
    lines = [
        f"Evaluated with pytest-spiral {report['run']['versions']['pytest-spiral']}, run {plain(report['run']['id'])}."
    ]
    for row in results:
        for metric in row["metrics"]:
            lines.append(f"- {row['dataset']['name']}, {metric['type']}: {metric['value']:.3f} ({metric['name']})")
    lines += [f"- {name}: not publishable" for name in withheld]
    return front + "\n".join(lines) + "\n"


def _enter(
    results: list[dict[str, Any]],
    withheld: list[str],
    name: str,
    found: Sequence[tuple[str, float | None]],
    intervals: Mapping[str, Mapping[str, Any]],
    blockers: Sequence[str],
) -> None:
    if blockers:
        withheld.append(f"{name} ({plain('; '.join(blockers))})")
        return
    metrics = [
        {
            "type": metric,
            "value": value,
            "name": f"95 % interval {intervals[metric]['low']:.3f} to {intervals[metric]['high']:.3f}",
        }
        for metric, value in found
        if value is not None
    ]
    results.append(
        {
            "task": {"type": "text-generation"},
            "dataset": {"name": name, "type": "pytest-spiral"},
            "metrics": metrics,
        }
    )


def _write_junit(report: Mapping[str, Any], folder: Path) -> list[Path]:
    write_atomically(folder / "gates.xml", junit_xml(report))
    return [folder / "gates.xml"]


def _write_cards(report: Mapping[str, Any], folder: Path) -> list[Path]:
    paths = []
    for number, model in enumerate(report["run"]["config"]["model"], start=1):
        paths.append(folder / f"model-card-{number}.md")
        write_atomically(paths[-1], model_card(report, model))
    return paths


def _write_inspect(report: Mapping[str, Any], folder: Path) -> list[Path]:
    from pytest_spiral.report.inspect_log import inspect_logs

    paths = []
    for name, log in inspect_logs(report).items():
        paths.append(folder / name)
        write_atomically(paths[-1], json.dumps(log, indent=1, ensure_ascii=True) + "\n")
    return paths


FORMATS: Mapping[str, Callable[[Mapping[str, Any], Path], list[Path]]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "junit": _write_junit,
    "model-card": _write_cards,
    "inspect": _write_inspect,
}


def export(report: Mapping[str, Any], name: str, folder: Path) -> list[Path]:
    """Write a report in one of `FORMATS` into a folder; the files written. Raises `ConfigError`, OSError."""
    return FORMATS[name](report, folder)
