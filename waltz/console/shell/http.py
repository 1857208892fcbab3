"""Serve the page, its files, and the values that it shows, as JSON. Touches the network.

No request changes anything. The headers of every answer forbid the browser to load or run anything
but the page's own files, and to show the page inside another page.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib import resources
from typing import Any

from aiohttp import web

from waltz.client import PartitionUnknown, PermissionDenied, TransactionNotFound, WaltzError
from waltz.console.core.hosts import refusal
from waltz.console.core.records import DataFormat, parse_request_id
from waltz.console.shell.log_reader import MAX_PAGE_RECORDS, LogPageReader
from waltz.console.shell.poller import Poller
from waltz.net import (
    PLAINTEXT,
    ListenFailed,
    TlsConfig,
    TlsConfigError,
    connect_problem,
    join_address,
)

log = logging.getLogger(__name__)

_FILES = {
    "": ("index.html", "text/html"),
    "console.css": ("console.css", "text/css"),
    "dom.js": ("dom.js", "text/javascript"),
    "format.js": ("format.js", "text/javascript"),
    "cluster.js": ("cluster.js", "text/javascript"),
    "log.js": ("log.js", "text/javascript"),
    "main.js": ("main.js", "text/javascript"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
"""For each path: the file in ``static``, and its content type."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "waltz-console",
}
"""The headers of every answer."""
_MOST_WAITING = 100
"""How many requests may wait for the next sample at once."""
_LARGEST_ID = (1 << 63) - 1
"""The largest id of a transaction that the protocol can have."""
_LARGEST_PARTITION = (1 << 31) - 1
_DEFAULT_COUNT = 50
"""How many records are in an answer if the request does not say it."""
_SHUTDOWN_SECONDS = 1.0
"""How long the requests under way may continue when the console ends."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve_console(
    host: str,
    port: int,
    allowed: Collection[str],
    poller: Poller,
    reader: LogPageReader,
    tls: TlsConfig = PLAINTEXT,
) -> AsyncIterator[int]:
    """Serve the console while the context is open; yield the port in use.

    Requests are answered if their Host header is in ``allowed``. ``tls`` has the certificate for
    HTTPS. Raises ListenFailed, and TlsConfigError if the certificate cannot be used.
    """
    context = _https_context(tls)
    application = console_application(allowed, poller, reader)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, ssl_context=context).start()
        except OSError as error:
            raise ListenFailed(
                f"cannot serve the console on {join_address(host, port)}: "
                f"{connect_problem(error)}; choose another address or port with --host and --port"
            ) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _https_context(tls: TlsConfig) -> ssl.SSLContext | None:
    """Return the TLS context of the port, None for plain HTTP. Raises TlsConfigError."""
    context = tls.listening_context()
    if context is None:
        return None

    def use_newest(connection: ssl.SSLSocket | ssl.SSLObject, *_: Any) -> None:
        # This runs in each handshake, so a renewed certificate applies without a restart
        # (test_renewed_certificate_is_used_without_a_restart).
        connection.context = tls.listening_context() or context

    context.sni_callback = use_newest
    return context


def console_application(
    allowed: Collection[str], poller: Poller, reader: LogPageReader
) -> web.Application:
    """Return the application that answers all requests."""
    application = web.Application(middlewares=[_guard(allowed), _errors])
    application.on_response_prepare.append(_add_headers)
    for path, (name, content_type) in _FILES.items():
        application.router.add_get(f"/{path}", _file_handler(name, content_type))
    _Api(poller, reader).add_to(application.router)
    return application


class _Api:
    """The handlers of the requests for JSON."""

    def __init__(self, poller: Poller, reader: LogPageReader) -> None:
        self._poller = poller
        self._reader = reader
        self._waiting = 0
        """How many requests wait for the next sample."""

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the paths."""
        router.add_get("/api/cluster", self._cluster)
        router.add_get("/api/log/{partition}", self._log)
        router.add_get("/api/find", self._find)

    async def _cluster(self, request: web.Request) -> web.Response:
        """Answer with the newest view, once it is current and its number is not ``after``."""
        after = _number_parameter(request, "after", default=0)
        if self._waiting >= _MOST_WAITING:
            return _error_response(503, "too many pages are open")
        self._waiting += 1
        try:
            return _json_response(await self._poller.newer_than(after))
        finally:
            self._waiting -= 1

    async def _log(self, request: web.Request) -> web.Response:
        """Answer with some records: those from the id ``first`` on, or without it the last ones."""
        partition = _bounded_number(
            request.match_info["partition"], "partition", least=0, most=_LARGEST_PARTITION
        )
        first = _number_parameter(request, "first", default=None)
        count = _number_parameter(
            request, "count", default=_DEFAULT_COUNT, least=1, most=MAX_PAGE_RECORDS
        )
        name = request.query.get("format", DataFormat.AUTO.value)
        if name not in set(DataFormat):
            raise ValueError(f"format must be one of {', '.join(DataFormat)}")
        page = await self._reader.page(partition, first, count, DataFormat(name))
        return _json_response(asdict(page))

    async def _find(self, request: web.Request) -> web.Response:
        """Answer with the transaction of a request id, or with the ids that were searched."""
        req_id = parse_request_id(request.query.get("request", ""))
        result = await self._reader.find(req_id, _number_parameter(request, "before", None))
        return _json_response(asdict(result))


def _file_handler(name: str, content_type: str) -> Handler:
    """Return a handler that answers with a file of the page. The file is read once, here."""
    content = resources.files("waltz.console").joinpath("static", name).read_bytes()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=content, content_type=content_type, charset="utf-8")

    return answer


def _guard(allowed: Collection[str]) -> Any:
    """Return the middleware that refuses requests by their Host header and their origin."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        # A link on another site may open the page, but no other site may read the console's values.
        is_page = not request.path.startswith("/api/")
        fetch_site = None if is_page else request.headers.get("Sec-Fetch-Site")
        reason = refusal(request.headers.get("Host"), fetch_site, allowed)
        if reason is not None:
            return _error_response(403, reason)
        return await handler(request)

    return guard


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request that raises an expected error with the error's text as JSON."""
    try:
        return await handler(request)
    except (PartitionUnknown, TransactionNotFound) as error:
        return _error_response(404, str(error))
    except PermissionDenied as error:
        return _error_response(403, str(error))
    except (WaltzError, TlsConfigError) as error:
        # 503 also for TlsConfigError: a TLS file may be unusable only while it is renewed.
        return _error_response(503, str(error))
    except ValueError as error:
        return _error_response(400, str(error))


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _json_response(value: Any, status: int = 200) -> web.Response:
    return web.json_response(value, status=status, dumps=json.dumps)


def _error_response(status: int, text: str) -> web.Response:
    return _json_response({"error": text}, status)


def _number_parameter(
    request: web.Request,
    name: str,
    default: Any,
    least: int = 0,
    most: int = _LARGEST_ID,
) -> Any:
    """Return the parameter ``name`` as a whole number, ``default`` if the request lacks it.

    Raises ValueError if the number is not from ``least`` to ``most``.
    """
    text = request.query.get(name)
    return default if text is None else _bounded_number(text, name, least, most)


def _bounded_number(text: str, name: str, least: int, most: int) -> int:
    """Return the number in ``text``, the value of the parameter ``name``.

    Raises ValueError if it is not a whole number from ``least`` to ``most``.
    """
    # A number of 20 digits or more is above every bound, which has at most 19 digits.
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise ValueError(f"{name} must be a whole number from {least} to {most}")
    return int(text)
