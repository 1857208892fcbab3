"""The HTTP port of a process: ping, build information, metrics, health. Touches the network.

Paths and formats are those of spec/behaviour.md section 12. In addition, a request of Prometheus
gets the metrics in the format of Prometheus. A process without a configured port serves no HTTP.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from waltz.net import ListenFailed, join_address
from waltz.runtime.metrics import ProcessMetrics, accepts_exposition, exposition
from waltz.runtime.version import build_version

log = logging.getLogger(__name__)

Health = Callable[[], tuple[bool, dict[str, Any]]]
"""Returns whether the process is healthy, and the report that ``/health`` shows.

For ``/ready``, a function of the same type returns whether the process is ready, and its report.
"""

_LONGEST_REASON = 200
"""How many characters of an error's text are logged. The text may quote what a peer sent."""
_OPEN_ANSWERS_SECONDS = 0.5
"""How long a process that stops waits for its open HTTP answers, and again after it cancels them.

A server leaves the cluster and a storage closes its files only afterwards. A peer that does not
read its answer must not delay that until the process is killed."""


class _PeerErrorLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs each error that a peer caused as one line, and all other errors with a traceback."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """Log ``exc_info``, the error that aiohttp reports by ``msg``."""
        # A peer can also cause a UnicodeError: aiohttp copies bytes of a bad request to its answer,
        # and fails if these bytes are not text.
        if isinstance(exc_info, HttpProcessingError | ConnectionError | UnicodeError):
            reason = " ".join(str(exc_info).split())[:_LONGEST_REASON]
            self.warning(f"{msg}: %s", *args, reason)
        else:
            super().exception(msg, *args, exc_info=exc_info, **more)


@asynccontextmanager
async def serve_http(
    service: str,
    host: str | None,
    port: int | None,
    metrics: ProcessMetrics[Any, Any],
    health: Health,
    readiness: Health | None = None,
) -> AsyncIterator[int | None]:
    """Serve HTTP while the context is open; yield the port in use, None if ``port`` is None.

    If ``host`` is None, listen at all addresses of this machine. Port 0 makes the system choose a
    port. The path ``/ready`` exists only with ``readiness``. At the end of the context, open
    answers have a moment to finish. Raises ListenFailed.
    """
    if port is None:
        yield None
        return
    application = _application(service, metrics, health, readiness)
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=_PeerErrorLogger(log),
        shutdown_timeout=_OPEN_ANSWERS_SECONDS,
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ListenFailed(
                f"cannot serve HTTP on {join_address(host or '*', port)}: "
                f"{error.strerror or error}; choose another port, or stop the process that listens "
                "on it"
            ) from error
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _application(
    service: str,
    metrics: ProcessMetrics[Any, Any],
    health: Health,
    readiness: Health | None,
) -> web.Application:
    """Return the application with the handlers of all paths; see `serve_http`."""

    async def ping(_: web.Request) -> web.Response:
        return web.Response(text="pong\n")

    async def build_info(_: web.Request) -> web.Response:
        return _json({"service_name": service, "version": build_version()}, is_pretty=False)

    async def show_metrics(request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "")
        if not accepts_exposition(accept):
            return _json(metrics.json.http_form(), _is_pretty(request))
        # Another thread encodes the text. With many partitions, encoding takes long and would delay
        # the appends, which the event loop handles.
        collected = metrics.collect()
        text, content_type = await asyncio.to_thread(exposition, collected, accept)
        return web.Response(body=text, headers={"Content-Type": content_type, "Vary": "Accept"})

    async def health_check(request: web.Request) -> web.Response:
        healthy, report = health()
        return _json(report, _is_pretty(request), status=200 if healthy else 500)

    async def readiness_check(request: web.Request) -> web.Response:
        assert readiness is not None
        ready, report = readiness()
        return _json(report, _is_pretty(request), status=200 if ready else 503)

    application = web.Application()
    application.router.add_get("/ping", ping)
    application.router.add_get("/buildinfo", build_info)
    application.router.add_get("/metrics", show_metrics)
    application.router.add_get("/health", health_check)
    if readiness is not None:
        application.router.add_get("/ready", readiness_check)
    return application


def _is_pretty(request: web.Request) -> bool:
    return request.query.get("pretty") == "true"


def _json(value: dict[str, Any], is_pretty: bool, status: int = 200) -> web.Response:
    text = json.dumps(value, indent=2 if is_pretty else None)
    return web.Response(text=text, content_type="application/json", status=status)
