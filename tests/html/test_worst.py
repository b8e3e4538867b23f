"""The worst findings, in the page and in the summary."""

from __future__ import annotations

import re

from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.worst import worst_findings
from tests.html.reports import BAD, GOOD, demo, demo_document, typed, without_conversations


def test_the_worst_come_first_and_from_different_places() -> None:
    """Strength times weight orders them; one conversation gives one; protective and unlocated ones are left out."""
    result = worst_findings(demo())

    assert len(result) == 5
    assert [worst.harm for worst in result] == sorted((worst.harm for worst in result), reverse=True)
    assert {worst.model for worst in result} == {BAD}
    assert len({worst.where.split(",")[0] for worst in result}) == 5
    assert all(worst.message for worst in result)


def test_a_broken_boundary_is_among_them() -> None:
    """Without conversations the worst items are shown, in the model's own words."""
    report = without_conversations(demo())
    broken = [item for item in report.tempaffect.items if item.checks and item.checks.prohibited_act]
    result = worst_findings(report)

    assert result
    assert {worst.quote for worst in result} <= {item.answer.reply for item in broken if item.answer}
    assert all(worst.link.startswith("item?") for worst in result)


def test_twins_and_harmless_findings_are_left_out() -> None:
    """Benign twins are part of no score; a report without risky findings names none."""
    document = demo_document()
    for row in document["spiral"]["conversations"]:
        row["twin_of"] = "st-01"
    assert all(worst.link.startswith("item?") for worst in worst_findings(typed(document)))

    for rows in (document["spiral"]["conversations"], document["tempaffect"]["items"]):
        rows[:] = [row for row in rows if row["model"] == GOOD]
    document["tempaffect"]["items"] = [row for row in document["tempaffect"]["items"] if row["useful_bounded"]]
    assert worst_findings(typed(document)) == []


def test_the_summary_quotes_and_links_the_worst() -> None:
    """Verdict, gates, then the findings, each linked to its place in the page."""
    summary = summary_markdown(demo())
    heads = [line for line in summary.splitlines() if line.startswith("#")]
    links = re.findall(r"\]\(report\.html#((?:conversation|item)\?[^)]+)\)", summary)

    assert heads[:2] == ["## pytest-spiral: FAIL", "### Worst items"]
    assert summary.index("| `spiral.score >= 99.9` |") < summary.index("### Worst items")
    assert links == [worst.link for worst in worst_findings(demo())]
    assert summary.count("\n  > ") == 5


def test_the_summary_fits_a_comment() -> None:
    """With hundreds of cards and endless quotes it is cut, and says where the rest is."""
    document = demo_document()
    document["tempaffect"]["cards"] *= 150
    for row in document["spiral"]["conversations"]:
        for judgement in row["judgements"]:
            for finding in judgement["findings"]:
                finding["quote"] = "x" * 1000
    summary = summary_markdown(typed(document))

    assert len(summary) < 65_536
    assert summary.endswith("The rest is in [the report](report.html).\n")


def test_an_interrupted_run_says_so() -> None:
    """As does one without gates, which is MEASURED."""
    document = demo_document()
    document |= {"gates": [], "verdict": "measured"}
    document["run"]["complete"] = False

    assert summary_markdown(typed(document)).startswith("## pytest-spiral: MEASURED (no gates, interrupted)")
