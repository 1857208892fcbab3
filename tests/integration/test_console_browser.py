"""The console over a real cluster: with half of it dead, and in a real browser without a window.

Screenshots are in ``build/screenshots``. The tests with a browser need Chromium and chromedriver.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.support.browser import SCREENSHOTS, Browser, needs_browser
from waltz.client import connect
from waltz.local import LocalCluster, Shape

pytestmark = pytest.mark.slow

PARTITIONS = 3
RECORDS = 120
HOSTILE = b"<img src=x onerror=alert(1)><script>alert(2)</script>"
SIZES = {"desktop": (1280, 860), "phone": (390, 844)}
VIEWS = ("overview", "partitions", "storages", "servers", "log", "timeline")
_MOST_TABS = 60
"""More than one round through a page."""


async def _fill(cluster: LocalCluster) -> None:
    async with connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls) as client:
        for n in range(RECORDS):  # one after the other: the order of overlapping appends may differ
            await client.append(0, json.dumps({"order": n, "items": [n, n + 1]}).encode(), header=7)
        await client.append(1, HOSTILE)
        await client.append(1, bytes(range(256)) * 100)
        await client.append(1, ("x" * 300 + "\n").encode() * 30)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[LocalCluster]:
    shape = Shape(partitions=PARTITIONS, storages=3, servers=2)
    cluster = LocalCluster(tmp_path / "cluster", shape, session_timeout_ms=3000)
    asyncio.run(cluster.start())
    try:
        asyncio.run(_fill(cluster))
        yield cluster
    finally:
        asyncio.run(cluster.stop())


@contextmanager
def console(cluster: LocalCluster) -> Iterator[str]:
    """Run ``waltz console`` for the cluster; yield the address of its page."""
    command = [sys.executable, "-m", "waltz.cli", "console", "--port", "0", "--interval", "0.2"]
    command += ["--min-disk-free", "0"]
    command += ["--cluster", str(cluster.layout.description)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            yield next(word for word in line.split() if word.startswith("http"))
        finally:
            process.terminate()


def get(url: str) -> Any:
    with urlopen(url, timeout=60) as answer:
        return json.load(answer)


def newest(url: str, number: int = 0) -> dict[str, Any]:
    value: dict[str, Any] = get(f"{url}api/cluster?after={number}")
    return value


def watch_until(url: str, condition: Any) -> dict[str, Any]:
    """Follow the samples like a page until one satisfies ``condition``."""
    value = newest(url)
    for _ in range(300):
        if condition(value):
            return value
        value = newest(url, value["number"])
    raise AssertionError(json.dumps(value["health"], indent=1))


def test_console_shows_a_cluster_of_which_half_is_dead(running: LocalCluster) -> None:
    with console(running) as url:
        healthy = watch_until(url, lambda value: value["health"]["state"] == "healthy")
        assert healthy["totals"]["healthy_replicas"] == 3 * PARTITIONS
        assert healthy["partitions"][0]["high_water_mark"] == RECORDS - 1
        assert all(each["disk_size_bytes"] > 0 for each in healthy["storages"])

        for name in ("storage/1", "storage/2", "server/0"):
            running.kill(name)
        value = watch_until(
            url,
            lambda value: (
                value["health"]["state"] == "unavailable"
                and [each["state"] for each in value["partitions"]] == ["unavailable"] * PARTITIONS
            ),
        )
        dead = [each for each in value["storages"] if not each["answers"]]
        assert len(dead) == 2
        unknown = ("held", "greatest_lag", "log_bytes", "disk_free_bytes", "damaged", "refused")
        assert {each[name] for each in dead for name in unknown} == {None}
        names = {each["storage"] for each in dead}
        for partition in value["partitions"]:
            for replica in partition["replicas"]:
                is_dead = replica["storage"] in names
                assert (replica["state"] == "unknown") is is_dead
                if is_dead:
                    assert (replica["lag"], replica["damaged_records"]) == (None, None)
        assert {storage for storage in names if storage in json.dumps(value["health"])} == names
        kinds = {entry["kind"] for entry in value["timeline"]}
        assert {"storage", "server", "recovery"} <= kinds

        # A log without a quorum may be unreadable. Then the answer says so, in bounded time.
        status, page = _log_page(url)
        assert (status, bool(page["records" if status == 200 else "error"])) in (
            (200, True),
            (503, True),
        )

        running.kill("zookeeper")
        without = watch_until(url, lambda value: value["problem"] is not None)
        assert without["health"]["state"] == "unknown"
        assert len(without["partitions"]) == PARTITIONS


def _log_page(url: str) -> tuple[int, Any]:
    try:
        return 200, get(f"{url}api/log/0?count=5")
    except HTTPError as error:
        return error.code, json.load(error)


def test_console_starts_while_zookeeper_is_dead_and_recovers(running: LocalCluster) -> None:
    running.kill("zookeeper")
    with console(running) as url:
        value = newest(url)
        assert value["problem"]
        assert (value["totals"], value["partitions"]) == (None, [])
        asyncio.run(running.start_one("zookeeper"))
        recovered = watch_until(url, lambda value: value["problem"] is None)
        assert len(recovered["partitions"]) == PARTITIONS


@needs_browser
def test_browser_shows_healthy_degraded_and_half_dead_cluster_without_errors(
    running: LocalCluster, tmp_path: Path
) -> None:
    """One browser for all: its start takes longer than each part."""
    with console(running) as url, Browser.open(tmp_path) as browser:
        browser.set_page(*SIZES["desktop"], dark=False)
        browser.go(url)
        browser.wait_for_text("All 3 partitions accept appends", "#view")
        _check_keyboard(browser)
        _check_log(browser)
        _take_screenshots(browser, url, "healthy")
        _check_killed_storage(browser, url, running)
        _take_screenshots(browser, url, "degraded")
        _check_half_dead(browser, url, running)
        _take_screenshots(browser, url, "half-dead", tuple(v for v in VIEWS if v != "log"))
        assert browser.errors() == []


@needs_browser
def test_page_says_that_the_console_does_not_answer(running: LocalCluster, tmp_path: Path) -> None:
    with Browser.open(tmp_path) as browser:
        with console(running) as url:
            browser.go(url)
            browser.wait_for_text("All 3 partitions accept appends", "#view")
        browser.wait_for_text("The console does not answer", "#notice")
        browser.wait_for_text("Not current", "#live-state")


def _check_keyboard(browser: Browser) -> None:
    """Reach each view, the pause button and the log by the keyboard alone."""
    browser.press("Tab")
    assert browser.focused() == "Skip to content"
    order = []
    for _ in range(7):
        browser.press("Tab")
        order.append(browser.focused())
    assert order == ["Pause", *(view.capitalize() for view in VIEWS)]
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") != "none"
    browser.press("Enter")
    browser.wait_for_text("Timeline", "h1")
    assert browser.focused() == "Timeline", "the focus moves to the heading of the new view"

    _tab_to(browser, "Skip to content")
    browser.press("Enter")
    assert browser.run("return document.activeElement.id") == "content"
    _tab_to(browser, "Pause")
    browser.press("Enter")
    browser.wait_for_text("Paused", "#live-state")
    assert browser.run("return document.activeElement.getAttribute('aria-pressed')") == "true"
    browser.press("Enter")
    browser.wait_for_text("Live", "#live-state")

    _tab_to(browser, "Partitions")
    browser.press("Enter")
    browser.wait(lambda: browser.text("tbody th a") == "0", "the first partition")
    _tab_to(browser, "0")
    number = browser.text("#live-state")
    browser.wait(lambda: browser.text("#live-state") != number, "a second later")
    assert browser.focused() == "0", "the focus stays while the values change"
    browser.press("Enter")
    browser.wait_for_text("of a log that ends at 119", "#log-results")


def _tab_to(browser: Browser, name: str) -> None:
    """Press Tab until the element with this text, label or name has the focus."""
    passed = []
    for _ in range(_MOST_TABS):
        browser.press("Tab")
        if browser.focused() == name:
            return
        passed.append(browser.focused()[:40])
    raise AssertionError(f"Tab does not reach {name!r}, only {passed}")


def _check_log(browser: Browser) -> None:
    """Browse and search the log by the keyboard alone. A letter or Home chooses an option."""
    _tab_to(browser, "From id")
    browser.press("10")
    _tab_to(browser, "Transactions")
    browser.press("1")
    browser.wait_for_text("Ids 10 to 19 of a log that ends at 119", "#log-results")
    assert '{"order": 10, "items": [10, 11]}' in browser.text("#log-results pre")
    request = browser.text("tbody tr:nth-child(3) td .name")
    _tab_to(browser, "Newer")
    browser.press("Enter")
    browser.wait_for_text("Ids 20 to 29", "#log-results")
    _tab_to(browser, "Request id")
    browser.press(request, "Enter")
    browser.wait_for_text("Found: transaction 12 of partition 0", "#log-results")
    browser.wait_for_text("Ids 12 to 21", "#log-results")
    _tab_to(browser, "Data as")
    browser.press("h")
    browser.wait_for_text("00000000  7b 22", "#log-results")
    browser.press("Home")
    browser.wait_for_text('{"order": 12, "items": [12, 13]}', "#log-results")

    _tab_to(browser, "Partition")
    browser.press("1")
    browser.wait_for_text(HOSTILE.decode(), "#log-results")
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
    browser.wait_for_text("the first 1024 bytes of 25600", "#log-results")
    browser.wait_for_text("waltz log read 1 1 --raw", "#log-results")
    _tab_to(browser, "Request id")
    browser.press("nonsense", "Enter")
    browser.wait_for_text("a request id has four numbers", "#log-results")
    failed = [
        message for message in browser.errors() if "/api/find?request=nonsense" not in message
    ]
    assert failed == []


def _check_killed_storage(browser: Browser, url: str, running: LocalCluster) -> None:
    """Kill a storage while its table is watched."""
    browser.go(f"{url}#/storages")
    browser.wait(lambda: browser.text("tbody").count("answers") == 3, "three storages")
    storage = running.plan.storages[1].address
    running.kill("storage/1")
    row = f"tr[data-key='{storage}']"
    browser.wait_for_text("no answer", row)
    cells = browser.run(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", f"{row} td"
    )
    assert [cell.split("\n")[0] for cell in cells[2:]] == ["unknown"] * 6
    browser.go(f"{url}#/overview")
    browser.wait_for_text(f"Storage {storage} does not answer", "#view")
    browser.wait_for_text("Since ", ".statements")
    browser.wait_for_text("2 of 3", "[data-key='Storages answering']")
    browser.wait_for_text("unknown", "[data-key='Damaged records']")
    browser.go(f"{url}#/timeline")
    browser.wait_for_text(f"Storage {storage} stopped answering", ".timeline")


def _check_half_dead(browser: Browser, url: str, running: LocalCluster) -> None:
    running.kill("storage/2")
    running.kill("server/0")
    browser.go(f"{url}#/overview")
    browser.wait_for_text("3 of 3 partitions accept no appends", "#view")
    browser.wait_for_text("1 of 3 replicas are available, and 2 are needed", "#view")
    browser.go(f"{url}#/partitions")
    browser.wait_for_text("lag unknown", "tbody")


def _take_screenshots(
    browser: Browser, url: str, state: str, views: tuple[str, ...] = VIEWS
) -> None:
    """Take pictures of all views, and check that no view needs horizontal scrolling."""
    for size, (width, height) in SIZES.items():
        for dark in (False, True):
            browser.set_page(width, height, dark=dark)
            for view in views:
                browser.go(f"{url}#/{view}{'?count=10' if view == 'log' else ''}")
                shown = "#log-results section" if view == "log" else "#view section"
                browser.wait_for_text(view.capitalize(), "h1")
                browser.wait_until_shown(shown)
                overflow = (
                    "const e = document.documentElement; return e.scrollWidth - e.clientWidth"
                )
                assert browser.run(overflow) <= 0, f"{view} at {width} px scrolls sideways"
                scheme = "dark" if dark else "light"
                browser.save_screenshot(SCREENSHOTS / f"{state}-{view}-{size}-{scheme}.png")
    browser.set_page(*SIZES["desktop"], dark=False)
