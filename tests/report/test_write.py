"""Files of a report: complete, whole or not at all, and text in them that no reader acts on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from pytest_spiral.report.lines import plain
from pytest_spiral.report.markdown import escape, summary_markdown
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import load_report
from pytest_spiral.report.schema import report_schema
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.report.write import file_slug, write_atomically, write_report
from pytest_spiral.resources import data_root
from pytest_spiral.text import whole_characters
from tests.fakes.report_page import page_data
from tests.html.reports import demo

HOSTILE = "\x1b[31m<script>alert(1)</script>\u202e|`_*[x](y)\ud800\n@all"


@pytest.fixture(scope="module")
def report() -> Report:
    """Two models, both suites, gates with every outcome."""
    return demo()


def with_output(report: Report, output: str) -> Report:
    """The report with another output of its first item, as a worker would have sent it."""
    document = json.loads(report.model_dump_json())
    document["tempaffect"]["items"][0]["output"] = whole_characters(output)
    return Report.model_validate_json(json.dumps(document))


def test_the_shipped_schema_is_generated() -> None:
    """After a change of the model: python -m pytest_spiral.report.schema > data/report.schema.json."""
    assert json.loads((data_root() / "report.schema.json").read_text(encoding="utf-8")) == report_schema()


def test_a_written_report_keeps_the_schema_and_reads_back(report: Report, tmp_path: Path) -> None:
    """Every key is one of the shipped schema, and reading gives the report that was written."""
    write_report(report, tmp_path / "r")
    text = (tmp_path / "r" / "report.json").read_text(encoding="utf-8")
    document = json.loads(text)

    assert text == report.model_dump_json() + "\n"
    schema = json.loads((data_root() / "report.schema.json").read_text(encoding="utf-8"))
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document)] == []
    assert load_report(tmp_path / "r" / "report.json") == report
    assert (tmp_path / "latest").resolve() == (tmp_path / "r").resolve()


def test_a_message_is_written_once(report: Report, tmp_path: Path) -> None:
    """In plain text only `report.json` holds transcripts, and no other file in the directory repeats them."""
    document = json.loads(report.model_dump_json())
    document["spiral"]["conversations"][0]["transcript"][1]["content"] = text = "A reply like no other. " * 20
    write_report(Report.model_validate_json(json.dumps(document)), tmp_path / "r")

    result = {path.name: path.read_text().count(text) for path in (tmp_path / "r").rglob("*") if path.is_file()}
    assert {name: count for name, count in result.items() if count} == {"report.json": 1}


def test_every_card_has_a_file(report: Report, tmp_path: Path) -> None:
    """Named after model and mode, also where two names differ only in what no file name can hold."""
    first, *others = report.tempaffect.cards
    twin = first.model_copy(update={"model": first.model.replace("/", ":")})
    cards = (first, twin, *others)

    write_report(
        report.model_copy(update={"tempaffect": report.tempaffect.model_copy(update={"cards": cards})}), tmp_path / "r"
    )

    written = {path.name: json.loads(path.read_text()) for path in (tmp_path / "r" / "cards").iterdir()}
    slug = file_slug(first.model)
    assert len(written) == len(cards)
    assert written[f"{slug}-{first.prompting_mode}.json"]["model"] == first.model
    assert written[f"{slug}-2-{first.prompting_mode}.json"]["model"] == twin.model


def test_hostile_output_is_written_and_inert(report: Report, tmp_path: Path) -> None:
    """Half a surrogate pair becomes the replacement character; everything else stays, escaped where it is shown."""
    write_report(with_output(report, HOSTILE), tmp_path / "r")

    written = load_report(tmp_path / "r" / "report.json")
    assert written.tempaffect.items[0].output == HOSTILE.replace("\ud800", "\ufffd")
    page = tmp_path / "r" / "report.html"
    assert "<script>alert(1)" in page_data(page, "s0")
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")


def test_foreign_text_is_inert() -> None:
    """Neither terminals nor Markdown readers act on what a model wrote."""
    assert not {"\x1b", "\u202e", "\n"} & set(plain(HOSTILE))
    assert "<script>" not in escape(HOSTILE)
    assert "\\[x\\]\\(y\\)" in escape(HOSTILE)
    assert "\\@all" in escape(HOSTILE)


def test_the_summary_fits_80_columns(report: Report) -> None:
    """No line is wider than a terminal, however long the name of a model is."""
    renamed = Report.model_validate_json(report.model_dump_json().replace("demo/steady", "x" * 200))

    assert all(len(line) <= 80 for line, _ in summary_lines(renamed, "reports/r") if "x" * 80 not in line)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """A write that fails leaves the old file and no temporary one."""
    path = tmp_path / "file"
    write_atomically(path, "old")

    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")

    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_summary_is_appended_to_the_job_summary(report: Report, tmp_path: Path) -> None:
    """What other steps wrote there stays. Its reader has no page beside it, so it has no link to one."""
    job = tmp_path / "job.md"
    job.write_text("before\n")

    write_report(report, tmp_path / "r", str(job))

    assert job.read_text() == "before\n" + summary_markdown(report, page=None)
    assert "](report.html" in (tmp_path / "r" / "summary.md").read_text()
    assert "](" not in job.read_text()
