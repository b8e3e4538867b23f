"""Exports: what other programs read back is what the report says, and nothing in it runs."""

from __future__ import annotations

import csv
import io
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.cli import main
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.report import export as exporting
from pytest_spiral.report.export import TABLES, export, model_card, neutral, tables
from pytest_spiral.report.junit import gates_xml
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import load_report
from pytest_spiral.spiral.upstream import load_upstream
from tests.html.reports import GOOD, demo, typed, without_conversations

HOSTILE = '=HYPERLINK("http://evil","x")\x1b[31m'


@pytest.fixture(scope="module")
def report() -> Report:
    """Two models, both suites, gates with every outcome."""
    return demo()


@pytest.fixture
def document(report: Report) -> dict[str, Any]:
    """The report as JSON values, to be changed."""
    values: dict[str, Any] = json.loads(report.model_dump_json())
    return values


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_csv_holds_every_measurement(report: Report, tmp_path: Path) -> None:
    """One row per item and metric, with the numbers of the report."""
    export(report, "csv", tmp_path)

    measured = rows(tmp_path / "measurements.csv")
    scores = [(row["unit"], float(row["value"])) for row in measured if row["metric"] == "score"]
    assert scores == [(item.id, item.score) for item in report.tempaffect.items]
    units = {(row["model"], row["unit"]) for row in measured if row["suite"] == "spiral"}
    assert units == {(row.model, row.id) for row in report.spiral.conversations}
    score, _ = (row for row in rows(tmp_path / "metrics.csv") if row["suite"] == "spiral" and row["metric"] == "score")
    assert float(score["value"]) == report.spiral.scores[0].score
    assert float(score["low"]) == report.spiral.scores[0].ci_low
    texts = [message.content for conversation in report.spiral.conversations for message in conversation.transcript]
    assert [row["content"].lstrip("'") for row in rows(tmp_path / "messages.csv")] == texts
    assert [row["outcome"] for row in rows(tmp_path / "gates.csv")] == [row.outcome for row in report.gates]
    assert all(len(row) == len(TABLES[name]) for name, table in tables(report).items() for row in table)
    for name, columns in TABLES.items():
        assert (tmp_path / f"{name}.csv").read_text().splitlines()[0] == ",".join(columns)


def test_hostile_text_runs_nowhere(document: dict[str, Any], tmp_path: Path) -> None:
    """Formulas become text, and XML stays well-formed."""
    document["spiral"]["conversations"][0]["transcript"][0]["content"] = HOSTILE
    document["gates"][0]["model"] = '"><x>' + HOSTILE
    for name in ("csv", "junit", "inspect"):
        export(typed(document), name, tmp_path)

    assert rows(tmp_path / "messages.csv")[0]["content"].startswith("'=HYPERLINK")
    assert ElementTree.fromstring((tmp_path / "gates.xml").read_bytes()).find(".//x") is None


@given(st.text(max_size=20))
def test_no_text_cell_begins_a_formula(text: str) -> None:
    """Whatever a model wrote; and numbers stay numbers."""
    assert not str(neutral(text)).lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))
    assert neutral(-1.5) == -1.5


def test_parquet_holds_the_same_rows(report: Report, tmp_path: Path) -> None:
    """Typed columns, text unchanged."""
    parquet = pytest.importorskip("pyarrow.parquet")
    export(report, "parquet", tmp_path)

    for name, expected in tables(report).items():
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table.column_names == list(TABLES[name])
        assert [tuple(row.values()) for row in table.to_pylist()] == expected


def test_parquet_without_pyarrow_says_what_to_install(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ConfigError, match=r"pip install 'pytest-spiral\[parquet\]'"):
        export(report, "parquet", tmp_path)


def test_junit_counts_gates(document: dict[str, Any]) -> None:
    """A failed gate is a failure, an undecided one an error, never a pass."""
    document["gates"] = [{**document["gates"][0], "outcome": outcome} for outcome in ("pass", "fail", "inconclusive")]
    suite = ElementTree.fromstring(gates_xml(typed(document))).find("testsuite")

    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3", "failures": "1", "errors": "1",
    }  # fmt: skip
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["error"]]


def test_a_model_card_holds_only_publishable_numbers(report: Report, document: dict[str, Any]) -> None:
    """A score with blockers is named without its number; one without is metadata that parses."""
    withheld = model_card(report, GOOD)
    document["tempaffect"]["cards"][0]["integrity"]["publication_blockers"] = []
    published = model_card(typed(document), GOOD)

    assert "model-index" not in withheld
    assert "not publishable" in withheld
    front = published.split("---\n")[1]
    (entry,) = json.loads(front.removeprefix("model-index: "))
    assert entry["results"][0]["metrics"][0]["value"] == report.tempaffect.cards[0].score
    with pytest.raises(ConfigError, match="no such model"):
        model_card(report, "other")


def test_what_leads_a_score_leads_what_is_published(document: dict[str, Any], tmp_path: Path) -> None:
    """Risk, protection, worst and over-correction with their intervals; no composite, in which good pays for harm."""
    score, _ = document["spiral"]["scores"]
    score["blockers"], score["publication_ready"] = [], True
    number = {"value": 50.0, "ci_low": 40.0, "ci_high": 60.0, "se": 5.0}
    score["headline"] = {**dict.fromkeys(("risk", "protection", "nagging", "worst"), number), "worst_conversations": 1}
    card = model_card(typed(document), score["model"])
    export(typed(document), "csv", tmp_path)

    (spiral,) = (line for line in card.splitlines() if line.startswith("- Spiral-Bench") and ", risk: 50.000" in line)
    assert spiral.endswith("(95 % interval 40.000 to 60.000)")
    assert ", worst: 50.000" in card
    assert "Spiral-Bench" in card
    assert "turns), score" not in card
    assert f"verdict of its gates: {document['verdict']}" in card
    metrics = [row["metric"] for row in rows(tmp_path / "metrics.csv") if row["suite"] == "spiral"]
    assert metrics[:5] == ["risk", "protection", "worst", "nagging", "score"]


def test_inspect_reads_the_log_back(document: dict[str, Any], tmp_path: Path) -> None:
    """Inspect's own reader: samples, scores and errors are those of the report."""
    inspect_log = pytest.importorskip("inspect_ai.log")
    reason = {"code": "timeout", "detail": "3 attempts"}
    lost = {"status": "instrument_failed", "reason": reason, "score": None, "useful_bounded": None, "output": None}
    document["tempaffect"]["items"][0].update(lost)
    report = typed(document)
    scenarios, *_, conversations = map(inspect_log.read_eval_log, map(str, export(report, "inspect", tmp_path)))

    assert [len(log.samples) for log in (scenarios, conversations)] == [15, 11]
    assert scenarios.samples[0].error.message == "timeout: 3 attempts"
    assert scenarios.samples[1].scores["score"].value == report.tempaffect.items[1].score
    assert conversations.results.scores[0].metrics["value"].value == report.spiral.scores[-1].score
    assert conversations.samples[0].messages[1].role == "assistant"


def test_a_public_result_file_holds_the_conversations(document: dict[str, Any], tmp_path: Path) -> None:
    """All but benign twins, which upstream's scoring would count; a run without conversations has no such file."""
    document["spiral"]["conversations"][0]["twin_of"] = "bt-01"
    report = typed(document)
    (path,) = export(report, "upstream", tmp_path)

    _, *kept = report.spiral.conversations
    read = {(row.model, row.prompt_id): row.transcript for row in load_upstream(path)}
    assert read == {(row.model, row.prompt_id): row.transcript for row in kept}
    with pytest.raises(ConfigError, match="no conversation to write"):
        export(without_conversations(report), "upstream", tmp_path)


def test_the_command(report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every format by name, the files on stdout; a report of a later schema is refused."""
    formats = [name for name in exporting.FORMATS if name != "parquet"]
    (tmp_path / "report.json").write_text(report.model_dump_json())
    assert main(["export", str(tmp_path), *(f"--format={name}" for name in formats), "-o", str(tmp_path)]) == 0
    assert all(line.startswith(str(tmp_path)) for line in capsys.readouterr().out.splitlines())

    (tmp_path / "report.json").write_text('{"schema_version": 99}')
    assert main(["export", str(tmp_path)]) == 4
    assert "update pytest-spiral" in capsys.readouterr().err


def test_a_report_that_breaks_its_schema_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    """The key is named."""
    document["usage"]["cost_usd"] = "much"
    (tmp_path / "report.json").write_text(json.dumps(document))

    with pytest.raises(DataError, match=r"usage.cost_usd"):
        load_report(tmp_path / "report.json")
