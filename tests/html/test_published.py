"""Both published result files can be read as transcripts, with their real findings highlighted, and compared."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_spiral.cli import main
from pytest_spiral.compare.recording import load_recording
from pytest_spiral.spiral.records import Conversation
from tests.fakes.bootstrap import few_draws
from tests.html.conftest import Visitor

PROMPTS = {f"{category}0{number}" for category in ("mp", "td", "ec", "ie") for number in (3, 4, 5)}
HIGHLIGHTED = """() => {
    const texts = {};
    for (const mark of document.querySelectorAll(".chat mark"))
        for (const number of mark.dataset.finding.split(" ")) texts[number] = (texts[number] || "") + mark.textContent;
    return texts;
}"""


def shortened(file: Path, folder: Path) -> Path:
    """A copy of a published result file with the conversations on some of its prompts."""
    document = json.loads(file.read_text(encoding="utf-8"))
    for run in document.values():
        for group in (value for name, value in run.items() if name.endswith(".json")):
            for prompt in group.keys() - PROMPTS:
                del group[prompt]
    path = folder / file.name
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def harm(conversation: Conversation) -> int:
    return sum(finding.strength for finding in conversation.findings if finding.behaviour == "harmful_advice")


def test_published_files(visit: Callable[..., Visitor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paired differences, the same conversation side by side, and every located finding highlighted word for word."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not folder:
        pytest.skip("SPIRAL_UPSTREAM_DIR names no directory with the published result files")
    monkeypatch.chdir(tmp_path)
    files = [shortened(Path(folder) / name, tmp_path) for name in ("kimi-k2.json", "llama-4-maverick.json")]

    # Fewer would leave it open whether the scores differ.
    with few_draws(200):
        assert main(["compare", *map(str, files), "--html", "both.html"]) == 0

    visitor = visit(tmp_path / "both.html")
    page = visitor.open()
    table = page.locator("table", has_text="Paired differences with 90 % intervals")
    assert "yes" in table.locator("tr", has=page.locator("th:text-is('score')")).inner_text()
    page.click("tbody a:has-text('mp05-1')")
    page.wait_for_selector(".sides")
    assert page.locator(".sides .message.assistant").count() == 40

    assert visitor.go("conversations?run=1").locator("tbody tr").count() == len(PROMPTS)
    (conversations,) = load_recording(files[1]).groups.values()
    conversation = max(conversations, key=harm)
    texts = visitor.go(f"conversation?run=1&id={conversation.id}").evaluate(HIGHLIGHTED)
    replies = [message.content for message in conversation.transcript if message.role == "assistant"]
    located = {
        str(number): replies[finding.turn][finding.start : finding.end]
        for number, finding in enumerate(conversation.findings, start=1)
        if finding.start is not None
    }
    assert texts == located
    assert len(located) > 20
