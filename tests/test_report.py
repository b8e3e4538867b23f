"""The report: the shape it promises, and text that no reader acts on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pytest_spiral.report.lines import plain
from pytest_spiral.report.markdown import escape
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.report.write import json_parts, write_atomically, write_report
from pytest_spiral.resources import data_root

HOSTILE = "\x1b[31m<script>alert(1)</script>\u202e|`_*[x](y)\ud800\n@all"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A real report of a dry run in this process."""
    folder = tmp_path_factory.mktemp("run")
    import subprocess
    import sys

    subprocess.run(
        [sys.executable, "-m", "pytest", "--model=dry/random_valid", "--run-id=r", "-q", "-p", "no:randomly",
         "--gate", "tempaffect.score >= 0.2", "--gate", "tempaffect.detectors.strategy_overuse <= 0.9"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return json.loads((folder / "reports" / "r" / "report.json").read_text())


@pytest.fixture(scope="module")
def schema():
    return json.loads((data_root() / "report.schema.json").read_text())


def test_the_report_keeps_its_schema(report, schema):
    """What is written is what the shipped schema says."""
    Draft202012Validator.check_schema(schema)

    assert [error.message for error in Draft202012Validator(schema).iter_errors(report)] == []


def test_a_score_on_a_lost_item_breaks_the_schema(report, schema):
    """The schema itself forbids a number where nothing was measured."""
    broken = json.loads(json.dumps(report))
    broken["tempaffect"]["items"][0]["status"] = "instrument_failed"

    assert not Draft202012Validator(schema).is_valid(broken)


def test_usage_counts_every_request(report):
    """150 answers, no failure, no cost for a model that is built in."""
    usage = report["usage"]["by_role"]["evaluated"]

    assert (usage["requests"], usage["failures"], usage["cost_usd"]) == (150, 0, 0.0)


def test_the_summary_fits_80_columns(report):
    """No line is wider than a terminal, whatever the model is called."""
    report = json.loads(json.dumps(report).replace("dry/random_valid", "x" * 200))

    assert all(len(line) <= 80 for line, _ in summary_lines(report, "reports/r") if "x" * 80 not in line)


def test_foreign_text_is_inert():
    """Neither terminals nor Markdown readers act on what a model wrote."""
    assert "\x1b" not in plain(HOSTILE)
    assert "\u202e" not in plain(HOSTILE)
    assert "\n" not in plain(HOSTILE)
    assert "<script>" not in escape(HOSTILE)
    assert "\\[x\\]\\(y\\)" in escape(HOSTILE)
    assert "\\@all" in escape(HOSTILE)


def test_reports_with_hostile_output_can_be_written(report, tmp_path):
    """Lone surrogates and escapes in an output neither stop the report nor change in it."""
    item = {**report["tempaffect"]["items"][0], "output": HOSTILE}
    report = {**report, "tempaffect": {**report["tempaffect"], "items": [item]}}

    write_report(report, tmp_path / "r")

    assert json.loads((tmp_path / "r" / "report.json").read_text())["tempaffect"]["items"] == [item]
    assert "alert(1)" not in (tmp_path / "r" / "report.html").read_text()
    assert (tmp_path / "latest").resolve() == (tmp_path / "r").resolve()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    """A write that fails leaves the old file and no litter."""
    path = tmp_path / "file"
    write_atomically(path, "old")

    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")

    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_summary_is_appended_to_the_job_summary(report, tmp_path):
    """What other steps wrote there stays."""
    job = tmp_path / "job.md"
    job.write_text("before\n")

    write_report(report, tmp_path / "r", str(job))

    assert job.read_text() == "before\n" + (tmp_path / "r" / "summary.md").read_text()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(_VALUES, st.integers(0, 5))
def test_parts_are_the_whole(value, depth):
    """Written in parts a report is the JSON that it is in one piece."""
    assert "".join(json_parts(value, depth)) == json.dumps(value)
