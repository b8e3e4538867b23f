"""A real browser for the pages, without a network."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_spiral.report.html.build import report_page
from tests.html.browser import browser_of
from tests.html.reports import demo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

Scheme = Literal["light", "dark"]


def wait_until(page: Page, condition: str, argument: object = None, seconds: float = 10) -> None:
    """Wait until a JavaScript function of one argument is true on the page.

    Not playwright's `wait_for_function`: it evaluates strings within the page, which the page's own policy refuses.
    """
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition, argument):
        assert time.monotonic() < deadline, f"never true within {seconds} s: {condition}"
        page.wait_for_timeout(20)


class Visitor:
    """A window of the browser that records every error and every request."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.storage = self.context.new_cdp_session(self.page)
        self.file = Path()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self.requests.append(request.url))

    def turn_to(self, file: Path, size: tuple[int, int], scheme: Scheme) -> None:
        """Be as good as a new window, for a file: nothing stored, nothing else open, nothing recorded."""
        for page in self.context.pages:
            if page is not self.page:
                page.close()
        self.page.goto("about:blank")
        self.storage.send("Storage.clearDataForOrigin", {"origin": "file://", "storageTypes": "all"})
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.emulate_media(media="null", color_scheme=scheme)
        self.file = file
        self.errors.clear()
        self.requests.clear()

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


@dataclass(frozen=True)
class Driver:
    """A browser, a window for all tests, because a new one takes longer than most of them, and what runs both."""

    browser: Browser
    window: Visitor
    loop: asyncio.AbstractEventLoop


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    """Headless Chromium for all tests of pages; skips where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("the test extra is not installed")
    with sync_playwright() as playwright:
        executable = browser_of(playwright)
        if executable is None:
            pytest.skip("no Chromium: `make browser` installs one")
        opened = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        found = Driver(opened, Visitor(opened), asyncio.get_running_loop())
        # Playwright's loop counts as running for as long as its driver lives, and other tests need one of their own.
        asyncio.events._set_running_loop(None)
        yield found
        asyncio.events._set_running_loop(found.loop)
        found.window.context.close()
        opened.close()


@pytest.fixture
def browser(driver: Driver) -> Iterator[Browser]:
    """The browser, whose loop runs during the test only."""
    asyncio.events._set_running_loop(driver.loop)
    yield driver.browser
    asyncio.events._set_running_loop(None)


@pytest.fixture
def visit(browser: Browser, driver: Driver) -> Iterator[Callable[..., Visitor]]:
    """Opens one file after another, in the shared window as if it were new; what changes a window has its own.

    None of them may raise an error or use the network.
    """
    visitors: list[Visitor] = []

    def open_file(
        file: Path, *, size: tuple[int, int] = (1280, 900), scheme: Scheme = "light", own: bool = False, **options: Any
    ) -> Visitor:
        for earlier in visitors:
            earlier.check()
        visitors.append(Visitor(browser, **options) if own else driver.window)
        visitors[-1].turn_to(file, size, scheme)
        return visitors[-1]

    yield open_file
    for visitor in visitors:
        if visitor is not driver.window:
            visitor.context.close()
        visitor.check()


@pytest.fixture(scope="session")
def demo_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small report with something of everything."""
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_text(report_page(demo()), encoding="utf-8")
    return path


@pytest.fixture
def window(visit: Callable[..., Visitor], demo_page: Path) -> Visitor:
    """The demo page, opened anew."""
    visitor = visit(demo_page)
    visitor.open()
    return visitor


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Directory for screenshots; skips where the environment names none."""
    folder = os.environ.get("SPIRAL_SCREENSHOTS_DIR")
    if not folder:
        pytest.skip("SPIRAL_SCREENSHOTS_DIR names no directory")
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path
