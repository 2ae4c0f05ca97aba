"""A real browser for tests: the one that is named or installed, else the one that npm brings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

from studio.build import BROWSER, install, run

VARIABLE = "OMNIGRAPH_TEST_BROWSER"
"""Names the program of a Chromium or Chrome."""
INSTALLED = ("chromium", "chromium-browser", "google-chrome")
FIND = "import c from '@sparticuz/chromium'; console.log(await c.executablePath())"


def browser_program() -> str:
    """The program of a browser; raises `RuntimeError` if there is none and none can be installed.

    A missing browser is an error, not a skipped test: nobody would notice a page that is broken.
    """
    if named := os.environ.get(VARIABLE):
        return named
    for name in INSTALLED:
        if found := shutil.which(name):
            return found
    install(BROWSER)
    return run(BROWSER, "node", "--input-type=module", "--eval", FIND).strip()


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser without a window."""
    program = browser_program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--headless=shell"]
        )
        try:
            yield browser
        finally:
            browser.close()


def wait_until(page: Page, condition: str) -> None:
    """Wait for an expression of JavaScript to hold.

    Playwright's own `wait_for_function` evaluates texts, which the policy of the page forbids.
    """
    page.evaluate(
        f"async () => {{ while (!({condition})) await new Promise(requestAnimationFrame); }}"
    )


def axe_source() -> str:
    """The script of axe, which looks for what keeps people from using a page."""
    install(BROWSER)
    return (BROWSER / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
