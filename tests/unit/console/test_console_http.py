"""The console's HTTP: pages of the log, the search, the names it answers to, its headers."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from aiohttp import ClientError, ClientSession, TCPConnector

import waltz.console
from tests.support.certificates import Authority
from tests.support.client_cluster import ClientCluster
from tests.support.console_world import sample
from tests.unit.console.test_console_poller import ScriptedSource
from waltz.client.opening import Opening
from waltz.console.core.hosts import allowed_names
from waltz.console.core.records import MAX_SHOWN_BYTES
from waltz.console.shell.http import serve_console
from waltz.console.shell.log_reader import LogPageReader, ReadBounds
from waltz.console.shell.poller import Poller
from waltz.net import ListenFailed, TlsConfig, TlsConfigError
from waltz.testing import InProcessClient

STATIC = Path(waltz.console.__file__).parent / "static"
HOSTILE = b"<script>alert(1)</script>\x1b[2J\xe2\x80\xae"


BOUNDS = ReadBounds(answer_seconds=5.0)


class Served:
    """A console over an in-process cluster, and a client of it."""

    def __init__(self, session: ClientSession, port: int, reader: LogPageReader) -> None:
        self._session = session
        self.port = port
        self.reader = reader
        self.headers: dict[str, str] = {}

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self._session.get(url, headers=headers) as response:
            self.headers = dict(response.headers)
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, (await response.json() if is_json else text)

    async def post(self, path: str) -> int:
        async with self._session.post(f"http://127.0.0.1:{self.port}{path}") as response:
            return response.status


@asynccontextmanager
async def console(
    cluster: ClientCluster | None = None,
    source: ScriptedSource | None = None,
    bounds: ReadBounds = BOUNDS,
) -> AsyncIterator[Served]:
    def open_client() -> Opening[InProcessClient[bytes]]:
        assert cluster is not None
        return cluster.connect()

    reader = LogPageReader(open_client, bounds)
    poller = Poller(source or ScriptedSource(sample()), wall_clock=lambda: 1000.0)
    allowed = allowed_names("127.0.0.1", ["console.example"])
    async with (
        aclosing(poller),
        aclosing(reader),
        serve_console("127.0.0.1", 0, allowed, poller, reader) as port,
        ClientSession(connector=TCPConnector(limit=0)) as session,
    ):
        yield Served(session, port, reader)


@asynccontextmanager
async def filled(count: int, *, size: int = 8) -> AsyncIterator[tuple[ClientCluster, Served]]:
    async with ClientCluster(2) as cluster:
        if count:
            await cluster.fill(0, count, size)
        async with console(cluster) as served:
            yield cluster, served


def ids(page: dict[str, Any]) -> list[int]:
    return [record["id"] for record in page["records"]]


async def test_page_shows_the_end_of_the_log() -> None:
    async with filled(120) as (_, served):
        status, page = await served.get("/api/log/0?count=5")
        assert (status, ids(page), page["next_id"]) == (200, [115, 116, 117, 118, 119], None)
        assert page["high_water_mark"] == 119
        assert page["records"][0]["data"]["text"] == "00000115"


async def test_page_from_an_id_names_the_next() -> None:
    async with filled(120) as (_, served):
        _, page = await served.get("/api/log/0?first=7&count=3&format=hex")
        assert (ids(page), page["next_id"], page["is_truncated"]) == ([7, 8, 9], 10, False)
        assert page["records"][0]["data"]["format"] == "hex"


async def test_page_of_empty_log_and_beyond_the_end_is_empty() -> None:
    async with filled(3) as (_, served):
        _, empty = await served.get("/api/log/1")
        assert (empty["records"], empty["high_water_mark"]) == ([], -1)
        _, beyond = await served.get("/api/log/0?first=50")
        assert (beyond["records"], beyond["high_water_mark"]) == ([], 2)


async def test_page_beyond_the_bound_in_bytes_is_cut_and_marked() -> None:
    async with filled(8, size=400_000) as (_, served):
        _, page = await served.get("/api/log/0?first=0&count=8")
        assert page["is_truncated"] is True
        assert 0 < len(page["records"]) < 8
        assert page["next_id"] == len(page["records"])
        data = page["records"][0]["data"]
        assert (data["size"], data["truncated"]) == (400_000, True)
        assert len(data["text"]) <= MAX_SHOWN_BYTES


async def test_server_without_ranges_is_read_by_a_stream() -> None:
    async with ClientCluster(versions=(0, 1, 2)) as cluster:
        await cluster.fill(0, 10)
        async with console(cluster) as served:
            _, page = await served.get("/api/log/0?first=4&count=3")
            assert (ids(page), page["next_id"]) == ([4, 5, 6], 7)
            wanted = ":".join(str(page["records"][1][name]) for name in ("client_id", "generation"))
            _, found = await served.get(f"/api/find?request={wanted}:0:{page['records'][1]['seq']}")
            assert found["found"] == 5


async def test_hostile_data_arrive_as_escaped_text() -> None:
    async with filled(0) as (cluster, served):
        client = await cluster.client()
        await client.append(0, HOSTILE)
        _, page = await served.get("/api/log/0")
        shown = page["records"][0]["data"]["text"]
        assert shown == "<script>alert(1)</script>\\x1b[2J\\u202e"


async def test_search_finds_the_transaction_of_a_request_id() -> None:
    async with filled(30) as (_, served):
        _, page = await served.get("/api/log/0?first=12&count=1")
        record = page["records"][0]
        request = f"{record['client_id']}:{record['generation']}:0:{record['seq']}"
        status, found = await served.get(f"/api/find?request={request}")
        assert (status, found["found"]) == (200, 12)
        _, before = await served.get(f"/api/find?request={request}&before=12")
        assert before == {
            "partition": 0,
            "found": None,
            "first_id": 0,
            "last_id": 11,
            "complete": True,
        }


async def test_search_is_bounded_and_continues() -> None:
    async with (
        ClientCluster() as cluster,
        console(cluster, bounds=ReadBounds(search_headers=3, search_requests=2)) as served,
    ):
        await cluster.fill(0, 20)
        _, found = await served.get("/api/find?request=9999:1:0:1")
        assert (found["first_id"], found["last_id"], found["complete"]) == (14, 19, False)
        _, older = await served.get("/api/find?request=9999:1:0:1&before=14")
        assert (older["first_id"], older["last_id"], older["complete"]) == (8, 13, False)


@pytest.mark.parametrize(
    ("path", "status", "part"),
    [
        ("/api/log/0?count=201", 400, "count must be a whole number from 1 to 200"),
        ("/api/log/0?count=0", 400, "count must be"),
        ("/api/log/0?first=-1", 400, "first must be"),
        ("/api/log/0?first=9999999999999999999", 400, "first must be"),
        ("/api/log/0?format=xml", 400, "format must be one of auto, text, json, hex"),
        ("/api/log/x", 400, "partition must be"),
        ("/api/log/99", 404, "99"),
        ("/api/find?request=1:2", 400, "a request id has four numbers"),
        ("/api/find?request=1:2:99:3", 404, "99"),
        ("/api/cluster?after=x", 400, "after must be"),
    ],
)
async def test_bad_requests_are_answered_with_one_sentence(
    path: str, status: int, part: str
) -> None:
    async with filled(1) as (_, served):
        found, answer = await served.get(path)
        assert (found, part in answer["error"]) == (status, True), answer


async def test_page_of_a_log_without_server_is_an_error_with_its_reason() -> None:
    bounds = ReadBounds(answer_seconds=0.2)
    async with ClientCluster() as cluster, console(cluster, bounds=bounds) as served:
        await served.get("/api/log/0")
        await cluster.close()
        status, answer = await served.get("/api/log/0")
        assert status == 503
        assert answer["error"]


async def test_page_of_a_log_with_an_unusable_tls_file_is_an_error_of_the_console() -> None:
    """The request is right: another status would blame the browser, while files are renewed."""

    async def open_client() -> NoReturn:
        raise TlsConfigError("cannot read client.pem")

    async with console() as served:
        served.reader._open_client = open_client
        assert await served.get("/api/log/0") == (503, {"error": "cannot read client.pem"})


async def test_only_known_names_are_served() -> None:
    async with console() as served:
        assert (await served.get("/", Host="console.example:80"))[0] == 200
        for path in ("/", "/api/cluster", "/main.js", "/none"):
            status, answer = await served.get(path, Host="evil.example")
            assert (status, "not served here" in answer["error"]) == (403, True)


async def test_api_request_from_another_site_is_refused() -> None:
    async with console() as served:
        for site in ("cross-site", "same-site"):
            headers = {"Sec-Fetch-Site": site}
            assert (await served.get("/api/cluster", **headers))[0] == 403
            assert (await served.get("/", **headers))[0] == 200
        assert (await served.get("/api/cluster", **{"Sec-Fetch-Site": "same-origin"}))[0] == 200


async def test_every_answer_forbids_foreign_content() -> None:
    async with console() as served:
        for path in ("/", "/main.js", "/console.css", "/api/cluster", "/none", "/api/log/x"):
            await served.get(path)
            policy = served.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert served.headers["X-Content-Type-Options"] == "nosniff"
            assert served.headers["X-Frame-Options"] == "DENY"
            assert "Access-Control-Allow-Origin" not in served.headers


async def test_post_request_is_refused_on_every_path() -> None:
    async with console() as served:
        for path in ("/", "/api/cluster", "/api/log/0", "/api/find"):
            assert await served.post(path) == 405


async def test_files_outside_the_page_are_not_served() -> None:
    async with console() as served:
        for path in ("/../pyproject.toml", "/static/main.js", "/%2e%2e/hosts.py", "/core/view.py"):
            assert (await served.get(path))[0] == 404


async def test_too_many_waiting_pages_are_refused() -> None:
    source = ScriptedSource(sample())
    async with console(source=source) as served:
        source.gate.clear()
        waiting = [asyncio.create_task(served.get("/api/cluster")) for _ in range(101)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result() for each in done] == [(503, {"error": "too many pages are open"})]
        source.gate.set()
        assert sorted([status for status, _ in await asyncio.gather(*waiting)])[-2:] == [200, 503]
        assert (await served.get("/api/cluster"))[0] == 200, "an answered request waits no more"


async def test_port_in_use_names_the_option() -> None:
    async with console() as served:
        poller, reader = Poller(ScriptedSource(sample())), served.reader
        with pytest.raises(ListenFailed, match=r"choose another address or port"):
            async with serve_console("127.0.0.1", served.port, (), poller, reader):
                pass


@asynccontextmanager
async def https_console(tls: TlsConfig) -> AsyncIterator[int]:
    reader = LogPageReader(ClientCluster().connect, BOUNDS)
    poller = Poller(ScriptedSource(sample()), wall_clock=lambda: 1000.0)
    allowed = allowed_names("127.0.0.1", ())
    async with (
        aclosing(poller),
        aclosing(reader),
        serve_console("127.0.0.1", 0, allowed, poller, reader, tls) as port,
    ):
        yield port


async def shown_certificate(port: int, authority: Authority) -> str:
    """Return the name in the certificate of the console, verified as a browser does."""
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    trusting.check_hostname = False
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    name: str = writer.get_extra_info("peercert")["subject"][0][0][1]
    writer.close()
    return name


def server_files(tls: TlsConfig) -> TlsConfig:
    return TlsConfig(certificate=tls.certificate, key=tls.key)


async def test_page_is_served_by_https_and_not_by_http_with_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    tls = server_files(authority.issue("console.example"))
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    trusting.check_hostname = False
    async with https_console(tls) as port, ClientSession() as session:
        async with session.get(f"https://127.0.0.1:{port}/", ssl=trusting) as response:
            assert response.status == 200
            assert "<title>" in await response.text()
        with pytest.raises(ClientError):
            await session.get(f"http://127.0.0.1:{port}/")


async def test_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    tls, renewed = (server_files(authority.issue(name)) for name in ("first", "second"))
    async with https_console(tls) as port:
        assert await shown_certificate(port, authority) == "first"
        for newer, older in ((renewed.key, tls.key), (renewed.certificate, tls.certificate)):
            shutil.move(str(newer), str(older))
        assert await shown_certificate(port, authority) == "second"


async def test_missing_certificate_is_an_error_before_anything_is_served(tmp_path: Path) -> None:
    missing = TlsConfig(certificate=tmp_path / "missing.crt", key=tmp_path / "missing.key")
    with pytest.raises(TlsConfigError, match=r"missing\.crt"):
        async with https_console(missing):
            pass


def test_page_has_no_inline_script_or_style_and_loads_only_its_own_files() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<style|\son[a-z]+=|\sstyle=|javascript:", page) == []
    assert re.findall(r"<script(?![^>]*\ssrc=)", page) == []
    assert all(path.startswith(("/", "#")) for path in re.findall(r'(?:src|href)="([^"]*)"', page))
    for script in STATIC.glob("*.js"):
        source = script.read_text()
        for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert unsafe not in source, f"{script.name}: {unsafe}"
        imported = re.findall(r'from "([^"]*)"', source)
        assert all((STATIC / name.removeprefix("/")).exists() for name in imported)
    assert "url(" not in (STATIC / "console.css").read_text()
