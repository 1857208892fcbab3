"""Serve the operator's health and metrics to probes and Prometheus. Touches the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.registry import Collector

from waltz.runtime.metrics import exposition

Health = Callable[[], str | None]
"""A function that returns the reason why the operator is unhealthy, or None if it is healthy."""


@asynccontextmanager
async def serve_http(
    host: str | None, port: int, health: Health, metrics: Collector
) -> AsyncIterator[int]:
    """Serve while the context is open; yield the port, which the system chooses for ``port`` 0.

    Without a ``host``, all addresses of this machine are served.
    """

    async def healthz(_: web.Request) -> web.Response:
        problem = health()
        return web.Response(text=f"{problem or 'ok'}\n", status=200 if problem is None else 503)

    async def show_metrics(request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "")
        text, content_type = exposition(list(metrics.collect()), accept)
        return web.Response(body=text, headers={"Content-Type": content_type})

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    application.router.add_get("/metrics", show_metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
