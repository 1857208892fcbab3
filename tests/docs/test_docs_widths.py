"""The documentation site in a real browser, as wide as a desktop and as a phone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.browser import Browser, needs_browser

DESKTOP, PHONE = 1280, 390
HEIGHT = 844
PAGES = (
    "api.html",
    "architecture.html",
    "commands.html",
    "console.html",
    "kubernetes.html",
    "metrics.html",
    "operations.html",
    "settings.html",
    "spec/disk.html",
    "spec/wire.html",
)
"""The pages with the widest tables, the longest lines of code, and pictures."""

_WIDTHS = "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"

_OUTSIDE = """
const width = document.documentElement.clientWidth;
const fits = element => element.getBoundingClientRect().right <= width + 1;
const scrolls = element => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
const hasBox = element => element !== document.body
  && (scrolls(element) && fits(element) || hasBox(element.parentElement));
return [...document.querySelectorAll("article table, article pre, article img, article p code")]
  .filter(element => !fits(element) && !hasBox(element))
  .map(element => element.tagName + ": " + element.innerText.slice(0, 60));
"""
"""Finds what is beyond the right edge of the page and not inside a box that scrolls."""

_BROKEN_NAMES = """
return [...document.querySelectorAll("article td:first-child code")]
  .filter(code => !/[\\s-]/.test(code.innerText) && code.getClientRects().length > 1)
  .map(code => code.innerText);
"""
"""Finds names in tables that continue on a second line."""


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each request on standard error."""

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder while the context is open; yield the address."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@needs_browser
def test_pages_fit_a_desktop_and_a_phone(site: Path, tmp_path: Path) -> None:
    """One browser for all pages: its start takes longer than each page."""
    with served(site) as address, Browser.open(tmp_path) as browser:
        for width in (DESKTOP, PHONE):
            browser.set_page(width, HEIGHT, dark=False)
            for page in PAGES:
                browser.go(address + page)
                needed, shown = browser.run(_WIDTHS)
                assert shown == width, f"{page}: the page has not the width of the window"
                assert needed <= shown, f"{page} at {width} px scrolls sideways"
                assert browser.run(_OUTSIDE) == [], f"{page} at {width} px"
                if width == DESKTOP:
                    assert browser.run(_BROKEN_NAMES) == [], f"{page} at {width} px"
