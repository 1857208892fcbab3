"""Drive a real Chromium without a window, by the WebDriver protocol of chromedriver.

Touches processes and the loopback. Elements are named by CSS selectors.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

DRIVER = shutil.which("chromedriver")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="no chromium or chromedriver: apt-get install chromium chromium-driver",
)

SCREENSHOTS = Path(__file__).parents[2] / "build/screenshots"
"""Where tests save pictures of pages; the CI keeps this folder."""

_ANSWER_SECONDS = 60
_STARTED = re.compile(r"started successfully on port (\d+)")
_KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Shift": "\ue008",
    "Space": " ",
    "Home": "\ue011",
}
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--lang=en-GB",
)


class BrowserError(Exception):
    """The browser refused a command; the text says why."""


class Browser:
    """One window of a browser."""

    def __init__(self, session: str) -> None:
        self._session = session

    @classmethod
    @contextmanager
    def open(cls, directory: Path, *, dark: bool = False) -> Iterator[Self]:
        """Run a browser for the length of the context. Its files are in ``directory``."""
        assert DRIVER is not None
        with (directory / "chromedriver.log").open("w") as errors:
            driver = subprocess.Popen(
                [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=errors, text=True
            )
            try:
                assert driver.stdout is not None
                url = f"http://127.0.0.1:{_port(driver.stdout)}"
                profile = directory / ("dark" if dark else "light")
                options = [*_OPTIONS, f"--user-data-dir={profile}"]
                chrome = {"binary": BROWSER, "args": options}
                capabilities = {
                    "alwaysMatch": {
                        "goog:chromeOptions": chrome,
                        "goog:loggingPrefs": {"browser": "ALL"},
                    }
                }
                opened = _send("POST", f"{url}/session", {"capabilities": capabilities})
                session = f"{url}/session/{opened['sessionId']}"
                try:
                    yield cls(session)
                finally:
                    _send("DELETE", session)
            finally:
                driver.terminate()
                driver.wait()
                assert driver.stdout is not None
                driver.stdout.close()

    def go(self, url: str) -> None:
        """Open an address."""
        self._command("POST", "url", {"url": url})

    def set_page(self, width: int, height: int, *, dark: bool) -> None:
        """Set the size of the page, and whether the user prefers dark colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._cdp("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._cdp("Emulation.setEmulatedMedia", {"features": [scheme]})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return the value of a script, which ends with a return statement."""
        body = {"script": script, "args": arguments}
        return self._command("POST", "execute/sync", body)

    def text(self, selector: str = "body") -> str:
        """Return the visible text of an element, empty if there is none."""
        script = "const e = document.querySelector(arguments[0]); return e ? e.innerText : ''"
        return str(self.run(script, selector))

    def press(self, *keys: str) -> None:
        """Press keys one after the other: `_KEYS`, or characters."""
        actions = []
        for name in keys:
            for key in (_KEYS[name],) if name in _KEYS else tuple(name):
                actions += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._command("POST", "actions", {"actions": [source]})

    def focused(self) -> str:
        """Return the text, label or name of the element that has the focus."""
        return str(
            self.run(
                "const e = document.activeElement;"
                "return e.getAttribute('aria-label') || (e.labels && e.labels[0] ? "
                "e.labels[0].innerText : e.innerText || e.name || e.tagName)"
            )
        )

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
        """Return the value of ``condition`` once it is true. Raises AssertionError after a while.

        The time limit only ends a test that has failed.
        """
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}\n{self.text()}"
            # Frames are drawn at a rate of their own: wait for one instead of a fixed time.
            self._command(
                "POST",
                "execute/async",
                {"script": "requestAnimationFrame(() => arguments[0]())", "args": []},
            )
        return value

    def wait_for_text(self, text: str, selector: str = "body") -> None:
        """Wait until an element shows a text."""
        self.wait(lambda: text in self.text(selector), f"{text!r} in {selector}")

    def wait_until_shown(self, selector: str) -> None:
        """Wait until an element has visible text."""
        self.wait(lambda: self.text(selector), selector)

    def save_screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a picture of the page, or of the part that the window shows."""
        options = {"format": "png", "captureBeyondViewport": whole}
        picture = self._cdp("Page.captureScreenshot", options)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def errors(self) -> list[str]:
        """Return the errors on the console of the page since the last call."""
        entries = self._command("POST", "se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def _cdp(self, name: str, parameters: Mapping[str, Any]) -> Any:
        return self._command("POST", "goog/cdp/execute", {"cmd": name, "params": parameters})

    def _command(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return _send(method, f"{self._session}/{path}", body)


def _port(output: Any) -> int:
    for line in output:
        if found := _STARTED.search(line):
            return int(found[1])
    raise BrowserError("chromedriver did not start")


def _send(method: str, url: str, body: Mapping[str, Any] | None = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    request = Request(url, content, {"Content-Type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            return json.load(answer)["value"]
    except HTTPError as error:
        raise BrowserError(json.load(error)["value"]["message"]) from error
