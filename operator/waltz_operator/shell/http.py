"""The operator's own health and metrics, for probes and for Prometheus. Touches the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

Health = Callable[[], str | None]
"""Returns why the operator is not well, None if it is."""


@dataclass(frozen=True, slots=True)
class ByLabel:
    """The values of a metric of which there are several, by the values of its labels."""

    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


Metrics = Callable[[], Mapping[str, float | ByLabel]]
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


def as_text(values: Mapping[str, float | ByLabel]) -> str:
    """Return metrics in the text form of Prometheus."""
    lines = []
    for name, value in values.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines.append(f"# TYPE {name} {kind}")
        match value:
            case ByLabel(labels, by_label):
                lines += [f"{name}{_braced(labels, k)} {v:g}" for k, v in by_label.items()]
            case number:
                lines.append(f"{name} {number:g}")
    return "\n".join(lines) + "\n"


def _braced(labels: tuple[str, ...], values: tuple[str, ...]) -> str:
    """Return labels as they stand behind a name; names in Kubernetes need no escapes."""
    pairs = (f'{label}="{value}"' for label, value in zip(labels, values, strict=True))
    return f"{{{','.join(pairs)}}}"
