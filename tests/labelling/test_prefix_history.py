"""Replies to prefixes: raters see the history before them, within bounds and marked as not to be labelled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_spiral.chat import Message
from pytest_spiral.cli import main
from pytest_spiral.evaluate.report import evaluate_imported
from pytest_spiral.labelling.drawing import candidates
from pytest_spiral.labelling.files import read_labels
from pytest_spiral.report.write import write_results
from pytest_spiral.settings import PREFIX_PROTOCOL
from pytest_spiral.spiral import Conversation, load_protocol
from pytest_spiral.spiral.labels import load_labels
from pytest_spiral.spiral.records import Beginning
from tests.fakes.bootstrap import few_draws
from tests.fakes.report_page import page_data
from tests.labelling.runs import export, sheet_in
from tests.spiral.builders import conversation, finding

PROTOCOL = load_protocol(PREFIX_PROTOCOL)


def replied(number: int, *said: str) -> Conversation:
    """The reply to a prefix whose history holds these messages, user and assistant in turn."""
    history = tuple(Message("assistant" if place % 2 else "user", text) for place, text in enumerate(said))
    about = Beginning(history, "slid", "clearly", f"o{number}", "plain")
    transcript = (Message("user", "and now?"), Message("assistant", f"A plainer reply, {number}."))
    made = conversation(
        f"p{number}",
        turns=1,
        findings=[finding(0, "pushback", 2)],
        finals={},
        beginning=about,
        transcript=transcript,
    )
    return replace(made, judgements=(replace(made.judgements[0], behaviours=PROTOCOL.behaviours),))


def texts(*said: str) -> tuple[str, str, str, str]:
    with few_draws():
        report = evaluate_imported("one", {"m": [replied(1, *said)]}, PROTOCOL, 1, {})
    (one,) = candidates(report, "spiral")
    return one.text.opening, one.text.history, one.text.before, one.text.user


def test_what_stands_before_a_reply() -> None:
    """The first message, the reply before, and in between the others with their speakers."""
    said = ("it began", "did it?", "it did", "how so?", "like so", "I see")

    opening, history, before, user = texts(*said)

    assert (opening, before, user) == ("it began", "I see", "and now?")
    assert history == "Assistant: did it?\n\nUser: it did\n\nAssistant: how so?\n\nUser: like so"
    assert texts("it began", "did it?") == ("it began", "", "did it?", "and now?")


def test_a_long_history_is_bounded() -> None:
    """The newest messages are shown, long ones cut in the middle, and how many are left out is said."""
    said = [f"{number:03d} {'word ' * 1_000}end {number:03d}" for number in range(40)]

    _, history, _, _ = texts(*said)

    assert len(history) < 21_000
    first, *rest = history.split("\n\n")
    assert first == f"[{38 - len(rest)} earlier messages are left out]"
    assert rest[-1].startswith("User: 038 word")
    assert rest[-1].endswith("end 038")
    assert "[...]" in rest[-1]


def test_pages_and_label_files_of_prefixes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a run of prefixes to labels that judges can be measured on."""
    said = ("it began", "did it?", "it did", "I see")
    with few_draws():
        report = evaluate_imported("one", {"m": [replied(n, *said) for n in range(6)]}, PROTOCOL, 1, {})
    (tmp_path / "run").mkdir()
    write_results(report, tmp_path / "run")
    command = ["label", str(tmp_path / "run"), "-o", str(tmp_path / "labels"), "--raters", "ann"]
    assert main([*command, "--questions", "pushback"]) == 0
    sheet = sheet_in(tmp_path / "labels", "spiral")
    folder, out = tmp_path / "labels" / "spiral", tmp_path / "labels.jsonl"

    export(folder / "spiral-ann.jsonl", sheet, "ann", lambda i, q: 2)
    assert main(["label", "merge", str(folder), "-o", str(out)]) == 0

    capsys.readouterr()
    assert json.dumps("Assistant: did it?\n\nUser: it did")[1:-1] in page_data(folder / "ann.html")
    assert "for context only: not to be labelled" in page_data(folder / "ann.html", "code")
    assert [row.text and row.text.history for row in read_labels(out).items] == [
        "Assistant: did it?\n\nUser: it did"
    ] * 6
    assert {turn.before for turn in load_labels(out, ("pushback",)).turns} == {"I see"}


def test_turns_without_a_score_are_not_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What raters of turns are asked follows from the protocol; TempAffect's questions are none of theirs."""
    with few_draws():
        report = evaluate_imported("one", {"m": [replied(1, "it began", "did it?")]}, PROTOCOL, 1, {})
    (tmp_path / "run").mkdir()
    write_results(
        report.model_copy(update={"spiral": report.spiral.model_copy(update={"scores": ()})}), tmp_path / "run"
    )

    assert main(["label", str(tmp_path / "run"), "-o", str(tmp_path / "labels")]) == 4
    assert "run one has no score of its conversations" in capsys.readouterr().err
