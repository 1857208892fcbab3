"""Serve the operator's health and metrics to probes and Prometheus. Touches the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

Health = Callable[[], str | None]
"""Returns why the operator is unhealthy, None if it is healthy."""


@dataclass(frozen=True, slots=True)
class ByLabel:
    """A metric with several values, by the values of its labels."""

    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


Metrics = Callable[[], Mapping[str, float | ByLabel]]
"""Returns metrics by name; a name that ends in ``_total`` is a counter."""


@asynccontextmanager
async def serve_http(
    host: str | None, port: int, health: Health, metrics: Metrics
) -> AsyncIterator[int]:
    """Serve while the context is open; yield the port in use."""

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


def as_text(values: Mapping[str, float | ByLabel]) -> str:
    """Return metrics in Prometheus' text format."""
    lines = []
    for name, value in values.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append(f"# TYPE {name} {kind}")
        match value:
            case ByLabel(labels, by_label):
                lines += [f"{name}{_label_text(labels, k)} {v:g}" for k, v in by_label.items()]
            case number:
                lines.append(f"{name} {number:g}")
    return "\n".join(lines) + "\n"


def _label_text(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return labels in the text format; names in Kubernetes need no escapes."""
    pairs = (f'{label}="{value}"' for label, value in zip(labels, values, strict=True))
    return f"{{{','.join(pairs)}}}"
