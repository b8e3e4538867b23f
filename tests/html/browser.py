"""The browser that the pages are tested in. Run as a script it installs one where it can: `make browser`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

SYSTEM_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser_of(playwright: Playwright) -> str | None:
    """Playwright's own Chromium where it is installed, else the system's; None where there is none."""
    own = Path(playwright.chromium.executable_path)
    return str(own) if own.exists() else next(filter(None, map(shutil.which, SYSTEM_BROWSERS)), None)


def find_browser() -> str | None:
    """The browser, where Playwright itself is installed."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        return browser_of(playwright)


def install() -> None:
    """The system's package where we may install it, else Playwright's download. Neither is an error: tests skip."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        apt = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=apt, check=False)
        packages = ["chromium", "fonts-dejavu-core"]
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env=apt, check=False)
    if find_browser() is None:
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False, timeout=300)


if __name__ == "__main__":
    if find_browser() is None:
        install()
    print(f"browser: {find_browser() or 'none can be had; tests of the pages skip'}")
