"""The server's HTTP port (spec/behaviour.md sections 12 and 13). Touches the network."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from waltz.runtime.http import serve_http
from waltz.runtime.metrics import ProcessMetrics
from waltz_server.shell.metrics import METRICS, health, readiness
from waltz_server.shell.node import ServerNode


@asynccontextmanager
async def start_http(node: ServerNode) -> AsyncIterator[int | None]:
    """Serve the node's HTTP port while the context is open; yield the port, None if it is off."""
    metrics = ProcessMetrics(METRICS, node, time.monotonic)
    node.observe_partitions(
        lambda acquired: metrics.add_partition(acquired.core.id, acquired), metrics.remove_partition
    )
    config = node.config
    async with serve_http(
        "waltz-server",
        config.bind_host,
        config.http_port,
        metrics,
        health=lambda: health(node),
        readiness=lambda: readiness(node),
    ) as port:
        yield port
