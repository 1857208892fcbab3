"""The operator's own health and metrics, for probes and for Prometheus. Touches the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web

Health = Callable[[], str | None]
"""Returns why the operator is not well, None if it is."""

Metrics = Callable[[], Mapping[str, float]]
"""Returns names of metrics and their values; what ends in ``_total`` only grows."""


@asynccontextmanager
async def serve_http(
    host: str | None, port: int, health: Health, metrics: Metrics
) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port in use."""

    async def healthz(_: web.Request) -> web.Response:
        problem = health()
        return web.Response(text=problem or "ok\n", status=200 if problem is None else 503)

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(text=as_text(metrics()), content_type="text/plain", charset="utf-8")

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    application.router.add_get("/metrics", exposition)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def as_text(values: Mapping[str, float]) -> str:
    """Return metrics in the text form of Prometheus."""
    lines = []
    for name, value in values.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {name} {kind}", f"{name} {value:g}"]
    return "\n".join(lines) + "\n"
