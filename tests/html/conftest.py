"""A real browser for the pages, without a network."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_spiral.report.html.build import report_page
from tests.html.browser import find_browser
from tests.html.reports import demo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium; skips where there is none.

    Not for the whole session, because its event loop would prevent asynchronous tests from running.
    """
    executable = find_browser()
    if executable is None:
        pytest.skip("no Chromium: `make browser` installs one")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield opened
        opened.close()


def wait_until(page: Page, condition: str, argument: object = None, seconds: float = 10) -> None:
    """Wait until a JavaScript function of one argument is true on the page.

    Not playwright's `wait_for_function`: it evaluates strings within the page, which the page's own policy refuses.
    """
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition, argument):
        assert time.monotonic() < deadline, f"never true within {seconds} s: {condition}"
        page.wait_for_timeout(20)


class Visitor:
    """A page in the browser that records every error and every request."""

    def __init__(self, browser: Browser, file: Path, **options: Any) -> None:
        self.file = file
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _dismiss(self, dialog: Dialog) -> None:
        self.errors.append("dialog")
        dialog.dismiss()

    def open(self, address: str = "") -> Page:
        """Load the page anew at an address, and wait until it is drawn."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.file.as_uri()}#{address}")
        self.page.wait_for_selector("html[data-drawn]", timeout=20_000)
        return self.page

    def go(self, address: str) -> Page:
        """Follow an address within the loaded page."""
        before = self.page.get_attribute("html", "data-drawn")
        self.page.evaluate("address => { location.hash = address }", address)
        wait_until(self.page, "before => document.documentElement.dataset.drawn !== before", before)
        return self.page

    def check(self) -> None:
        """Nothing went wrong, and nothing but the file itself was requested."""
        foreign = [url for url in self.requests if url.split("#")[0] not in (self.file.as_uri(), "about:blank")]

        assert self.errors == []
        assert foreign == []


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Opens files in windows of their own; afterwards, none of them may have raised an error or used the network."""
    visitors: list[Visitor] = []

    def open_file(file: Path, **options: Any) -> Visitor:
        visitors.append(Visitor(browser, file, **options))
        return visitors[-1]

    yield open_file
    for visitor in visitors:
        visitor.context.close()
        visitor.check()


@pytest.fixture(scope="session")
def demo_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small report with something of everything."""
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(report_page(demo()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shared_window(browser: Browser, demo_page: Path) -> Iterator[Visitor]:
    """One window for all tests of a module that read the demo page."""
    visitor = Visitor(browser, demo_page)
    yield visitor
    visitor.context.close()


@pytest.fixture
def window(shared_window: Visitor) -> Iterator[Visitor]:
    """The demo page, opened anew; afterwards it may have raised no error and used no network."""
    shared_window.open()
    yield shared_window
    shared_window.check()


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Directory for screenshots; skips where the environment names none."""
    folder = os.environ.get("SPIRAL_SCREENSHOTS_DIR")
    if not folder:
        pytest.skip("SPIRAL_SCREENSHOTS_DIR names no directory")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path
