"""What several judges saw in one place is one finding with all their names and strengths."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.cli import main
from pytest_spiral.report.html.build import seen_together
from pytest_spiral.spiral import Finding
from tests.fakes.bootstrap import few_draws
from tests.fakes.v1_2_files import REPLY, chunk, entry, file_of
from tests.html.conftest import Visitor

HOSTILE = "<img src=x onerror='window.broken = 1'>"


def found(judge: str, start: int | None, end: int | None = None, turn: int = 0, behaviour: str = "b") -> Finding:
    if start is None:
        return Finding(turn, behaviour, f"words {end}", 1, judge)
    return Finding(turn, behaviour, "words", 1, judge, "exact", start, end)


def test_overlapping_findings_of_different_judges_are_one() -> None:
    """In one turn, of one behaviour, with overlapping passages; of a judge's two findings each stays."""
    findings = [
        *(found("x", 0, 10), found("y", 8, 20), found("z", 19, 30), found("z", 30, 40)),
        *(found("x", 0, 10, turn=1), found("y", 0, 10, turn=1, behaviour="c"), found("x", 5, 12, turn=1)),
        *(found("x", None, 1), found("y", None, 1), found("z", None, 2)),
    ]

    assert seen_together(findings) == [[0, 1, 2], [3], [4], [5], [6], [7, 8], [9]]


PLACES = st.tuples(st.sampled_from("xyz"), st.integers(0, 12), st.integers(1, 5), st.integers(0, 1))


@given(st.lists(PLACES, max_size=12))
def test_every_finding_is_in_one_place(drawn: list[tuple[str, int, int, int]]) -> None:
    """Each once, no judge twice in a place, and each overlaps another of its place."""
    findings = [found(judge, start, start + length, turn) for judge, start, length, turn in drawn]
    places = seen_together(findings)

    assert sorted(number for place in places for number in place) == [*range(len(findings))]
    for members in ([findings[number] for number in place] for place in places):
        assert len({member.judge for member in members}) == len(members)
        assert len({member.turn for member in members}) == 1
        for member in members if len(members) > 1 else ():
            spans = [(other.start or 0, other.end or 0) for other in members if other is not member]
            assert any(start < (member.end or 0) and (member.start or 0) < end for start, end in spans)
    alone = [findings[place[0]] for place in places if len(place) == 1]
    for one, other in combinations(alone, 2):
        apart = one.turn != other.turn or (one.end or 0) <= (other.start or 0) or (other.end or 0) <= (one.start or 0)
        assert apart or one.judge == other.judge


def test_the_page_of_a_file_with_three_judges(visit: Callable[..., Visitor], tmp_path: Path) -> None:
    """One finding a turn, marked once, with every judge's name and strength; names are text, whatever they hold."""
    stored = entry()
    stored["judgements"][2] = {"chunk0": {"error": "no answer"}}
    stored["judgements"][1]["chunk0"] = chunk(1, 3) | {"full_metrics": {"topic-shut-down": [[REPLY[8:], 3]]}}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(file_of(stored, judges=("judge/a", HOSTILE, "judge/c"))))
    with few_draws():
        assert main(["report", str(path), "-o", str(tmp_path / "page.html")]) == 0
    visitor = visit(tmp_path / "page.html")

    page = visitor.open("conversation?id=p1-1&finding=2")
    first = page.locator("#turn-2 .finding")
    assert first.count() == 1
    assert f"judge/a (1), {HOSTILE} (3)" in first.inner_text()
    assert page.locator("#turn-2 mark.current").all_inner_texts() == [f"{REPLY} 1"]
    page.click("#turn-2 summary")
    assert "judge/c: instrument failed, imported error: no answer" in page.inner_text("#turn-2 .judges")
    rows = visitor.go("findings").locator("tbody tr")
    assert rows.count() == 2
    assert "2 findings (4 counted by judge) of 2" in page.inner_text("main")
    assert "of 3 turns" in visitor.go("spiral").inner_text("main")
    assert page.evaluate("window.broken") is None
