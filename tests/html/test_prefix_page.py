"""Replies to prefixes on the page: numbers by what stands before them, and the history before the reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pytest_spiral.chat import Message
from pytest_spiral.evaluate.report import evaluate_imported
from pytest_spiral.report.html.build import report_page
from pytest_spiral.settings import PREFIX_PROTOCOL
from pytest_spiral.spiral import Conversation, load_protocol
from pytest_spiral.spiral.records import Beginning
from tests.fakes.bootstrap import few_draws
from tests.html.conftest import Visitor
from tests.spiral.builders import conversation, finding

PROTOCOL = load_protocol(PREFIX_PROTOCOL)
HOSTILE = "<img src=x onerror='window.broken = 1'>"


def replied(number: int) -> Conversation:
    """A reply that holds where it is called for, which it is for every other prefix."""
    called = number % 2
    history = (Message("user", f"{HOSTILE} {number}"), Message("assistant", HOSTILE))
    about = Beginning(history, "slid" if called else "benign", "clearly" if called else "none", f"o{number}", HOSTILE)
    found = [finding(0, "pushback", 2)] if called else []
    transcript = (Message("user", "and now?"), Message("assistant", f"A plainer reply, {number}."))
    made = conversation(f"p{number}", turns=1, findings=found, finals={}, beginning=about, transcript=transcript)
    return replace(made, judgements=(replace(made.judgements[0], behaviours=PROTOCOL.behaviours),))


def test_numbers_and_history(tmp_path: Path, visit: Callable[..., Visitor]) -> None:
    """Inert, whatever a history or the name of a manner says; nobody is called a simulated user."""
    with few_draws():
        groups = {"m": [replied(number) for number in range(8)]}
        report = evaluate_imported("one", groups, PROTOCOL, 1, {})
    file = tmp_path / "report.html"
    file.write_text(report_page(report), encoding="utf-8")
    visitor = visit(file)
    overview = visitor.open("spiral").inner_text("main")
    page = visitor.open("conversation?id=p1-1&model=m")
    page.click("text=The beginning, which the model did not write: slid, 1 reply")

    assert "prefix balance, 0 to 100\n100.0" in overview
    assert "history slid" in overview
    assert HOSTILE in page.inner_text("main")
    assert "Simulated user" not in page.inner_text(".message.user")
    assert page.evaluate("window.broken") is None
