"""The documentation site in a real browser, as wide as a desktop and as a phone.

Screenshots of the top of each page are in ``build/screenshots``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.support.browser import SCREENSHOTS, Browser, needs_browser

ROOT = Path(__file__).parents[2]
WIDTHS = {"desktop": 1280, "phone": 390}
HEIGHT = 844

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

_BROKEN_HEADINGS = """
const lines = (node, from, to) => {
  const range = document.createRange();
  range.setStart(node, from);
  range.setEnd(node, to);
  return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
};
const broken = [];
for (const heading of document.querySelectorAll("article th")) {
  const texts = document.createTreeWalker(heading, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[^\\s-]+/g)) {
      const end = word.index + word[0].length;
      if (lines(texts.currentNode, word.index, end) > 1) broken.push(word[0]);
    }
  }
}
return broken;
"""
"""Finds words in the headings of tables that continue on a second line."""


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


def pages(site: Path) -> list[str]:
    """Return the addresses of all pages below that of the site."""
    return [page.relative_to(site).as_posix() for page in sorted(site.rglob("*.html"))]


def nav_pages(entries: list[Any]) -> Iterator[str]:
    """Yield the addresses of the pages in a part of the navigation of ``mkdocs.yml``."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, list):
                yield from nav_pages(value)
            else:
                path = PurePosixPath(value).with_suffix(".html")
                yield str(path.with_name("index.html") if path.stem == "README" else path)


@pytest.mark.slow
@needs_browser
def test_pages_fit_a_desktop_and_a_phone(site: Path, tmp_path: Path) -> None:
    """One browser for all pages: its start takes longer than each page."""
    wanted = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    found = pages(site)
    assert set(nav_pages(wanted)) <= set(found)
    with served(site) as address, Browser.open(tmp_path) as browser:
        for page in found:
            browser.go(address + page)
            name = page.removesuffix(".html").replace("/", "-")
            for size, width in WIDTHS.items():
                browser.set_page(width, HEIGHT, dark=False)
                browser.save_screenshot(SCREENSHOTS / f"docs-{name}-{size}.png", whole=False)
                _check_page(browser, f"{page} at {width} px", width)


def _check_page(browser: Browser, where: str, width: int) -> None:
    needed, shown = browser.run(_WIDTHS)
    assert shown == width, f"{where}: the page has not the width of the window"
    assert needed <= shown, f"{where} scrolls sideways"
    assert browser.run(_OUTSIDE) == [], where
    assert browser.run(_BROKEN_HEADINGS) == [], where
    if width == WIDTHS["desktop"]:
        assert browser.run(_BROKEN_NAMES) == [], where
