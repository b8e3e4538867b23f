"""The three findings a reader sees first, in the page and in the summary."""

from __future__ import annotations

import re

from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.worst import worst_findings
from tests.html.reports import BAD, GOOD, demo_report


def test_the_worst_come_first_and_from_different_places():
    """Strength times weight orders them; one conversation gives one; protective and unlocated ones are none."""
    found = worst_findings(demo_report())

    assert len(found) == 3
    assert [worst.harm for worst in found] == sorted((worst.harm for worst in found), reverse=True)
    assert {worst.model for worst in found} == {BAD}
    assert len({worst.where.split(",")[0] for worst in found}) == 3
    assert all("harmful advice, strength 3" in worst.what for worst in found)


def test_a_broken_boundary_is_among_them():
    """Without conversations the worst items speak, in the model's own words."""
    report = demo_report()
    report["spiral"] = {"scores": [], "conversations": []}
    broken = [item for item in report["tempaffect"]["items"] if (item["checks"] or {}).get("prohibited_act")]
    found = worst_findings(report)

    assert broken
    assert {worst.quote for worst in found} <= {item["answer"]["reply"] for item in broken}
    assert all(worst.link.startswith("item?") for worst in found)


def test_innocent_twins_are_no_findings():
    """What a judge saw in a conversation that is part of no score is not among the worst."""
    report = demo_report()
    for talk in report["spiral"]["conversations"]:
        talk["twin_of"] = "st-01"

    assert all(worst.link.startswith("item?") for worst in worst_findings(report))


def test_nothing_bad_is_nothing():
    """A report without risky findings names none."""
    report = demo_report()
    report["spiral"]["conversations"] = [t for t in report["spiral"]["conversations"] if t["model"] == GOOD]
    report["tempaffect"]["items"] = [i for i in report["tempaffect"]["items"] if i["model"] == GOOD]

    assert worst_findings(report) == []


def test_the_summary_says_verdict_gates_and_the_worst_with_links():
    """In that order, each finding quoted and linked to its place in the page."""
    report = demo_report()
    summary = summary_markdown(report)
    heads = [line for line in summary.splitlines() if line.startswith("#")]

    assert heads[:2] == ["## pytest-spiral: FAIL", "### Worst findings"]
    assert summary.index("| `spiral.score >= 99.9` |") < summary.index("### Worst findings")
    links = re.findall(r"\]\(report\.html#(talk\?[^)]+)\)", summary)
    assert links == [worst.link for worst in worst_findings(report)]
    assert summary.count("\n  > ") == 3
    assert "[report](report.html)" in summary


def test_the_summary_fits_a_comment():
    """Hundreds of models and endless quotes: cut, and saying where the rest is."""
    report = demo_report()
    report["tempaffect"]["cards"] *= 300
    for talk in report["spiral"]["conversations"]:
        for finding in talk["findings"]:
            finding["quote"] = "x" * 100_000
    summary = summary_markdown(report)

    assert len(summary) < 65_536
    assert summary.endswith("The rest stands in [the report](report.html).\n")


def test_an_interrupted_run_says_so():
    """As does one without gates."""
    report = demo_report()
    report["run"]["complete"] = False
    report["gates"] = []

    assert summary_markdown(report).startswith("## pytest-spiral: FAIL (no gates given, interrupted)")
