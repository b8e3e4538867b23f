"""A real browser for the pages, without a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.html.browser import find_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium. Skips where there is none.

    Not for the whole session: while it is there, its event loop is in the way of asynchronous tests.
    """
    found = find_browser()
    if found is None:
        pytest.skip("no Chromium: `make browser` installs one")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visitor:
    """A page in the browser that remembers every complaint and every request."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.file = file
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.complaints.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: str = "") -> Any:
        """Load the page anew at an address, and wait until it is drawn."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.file.as_uri()}#{address}")
        self.page.wait_for_selector("html[data-drawn]", timeout=20_000)
        return self.page

    def go(self, address: str) -> Any:
        """Follow an address within the loaded page."""
        before = self.page.get_attribute("html", "data-drawn")
        self.page.evaluate("address => { location.hash = address }", address)
        self.page.wait_for_function("before => document.documentElement.dataset.drawn !== before", arg=before)
        return self.page

    @property
    def foreign_requests(self) -> list[str]:
        """Everything asked for beyond the file itself."""
        return [url for url in self.requests if url.split("#")[0] not in (self.file.as_uri(), "about:blank")]


@pytest.fixture
def visit(browser) -> Iterator[Callable[..., Visitor]]:
    """Makes a visitor of a file; afterwards nobody may have complained or asked the network for anything."""
    visitors: list[Visitor] = []

    def open_file(file: Path, **options: Any) -> Visitor:
        visitors.append(Visitor(browser, file, **options))
        return visitors[-1]

    yield open_file
    for visitor in visitors:
        visitor.context.close()
        assert visitor.complaints == []
        assert visitor.foreign_requests == []


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Path:
    """The page of a small report with something of everything."""
    from pytest_spiral.report.html.build import report_page
    from tests.html.reports import demo_report

    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(report_page(demo_report()), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Folder for screenshots. Skips where the environment names none."""
    folder = os.environ.get("SPIRAL_SCREENSHOTS_DIR")
    if not folder:
        pytest.skip("SPIRAL_SCREENSHOTS_DIR names no folder")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path
