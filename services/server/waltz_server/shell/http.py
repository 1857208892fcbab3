"""The server's HTTP port: metrics and health (spec/behaviour.md sections 12 and 13)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from waltz.runtime.http import serve_http
from waltz.runtime.metrics import Registry
from waltz.runtime.version import build_version
from waltz_server.core.metrics import CATALOGUE
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.node import ServerNode

_GROUP = "waltz-server"


@asynccontextmanager
async def start_http(node: ServerNode) -> AsyncIterator[int | None]:
    """Serve the node's HTTP port while the context lasts; yields the port, None if it is off."""
    registry = Registry(time.monotonic)
    _register_node(registry, node)
    node.on_hosted(
        lambda hosted: _register_partition(registry, hosted),
        lambda partition: registry.remove(_partition_group(partition)),
    )
    config = node.config
    async with serve_http(
        "waltz-server",
        config.bind_host,
        config.http_port,
        registry,
        CATALOGUE,
        lambda: _health(node),
    ) as port:
        yield port


def _register_node(registry: Registry, node: ServerNode) -> None:
    gauge = registry.gauge
    gauge(_GROUP, "is-closed", lambda: False)
    gauge(_GROUP, "is-healthy", lambda: _health(node)[0])
    gauge(_GROUP, "cluster-name", lambda: node.cluster_name)
    gauge(_GROUP, "server-id", lambda: node.server_id)
    gauge(_GROUP, "endpoint", lambda: "{}:{}".format(*node.endpoint))
    gauge(_GROUP, "waltz-server-num-partitions", lambda: len(node.partitions()))
    gauge(_GROUP, "waltz-version-id", build_version)
    gauge(_GROUP, "replica-info", node.replicas)
    gauge(_GROUP, "tls-certificate-days-left", node.config.tls.certificate_days_left)
    registry.meter(
        _GROUP,
        "feed-cache-miss",
        lambda: sum(h.core.feed_cache_misses for h in node.partitions()),
    )
    registry.meter(
        _GROUP,
        "transaction-cache-miss",
        lambda: sum(h.core.data_cache_misses for h in node.partitions()),
    )


def _partition_group(partition: int) -> str:
    return f"{_GROUP}.partition-{partition}"


def _register_partition(registry: Registry, hosted: HostedPartition) -> None:
    core, group = hosted.core, _partition_group(hosted.core.id)
    gauge, feeds = registry.gauge, hosted.core.feeds
    gauge(group, "is-closed", lambda: not core.store.is_open)
    gauge(group, "generation", lambda: core.generation)
    gauge(group, "high-water-mark", lambda: core.high_water_mark)
    gauge(group, "pending-append", lambda: core.open_appends)
    gauge(group, "append-queue-size", lambda: core.store.queued)
    for kind in ("real-time", "catchup"):
        gauge(group, f"total-{kind}-feed-context-added", partial(feeds.added.get, kind))
        gauge(group, f"total-{kind}-feed-context-removed", partial(feeds.removed.get, kind))
    registry.meter(group, "transaction", lambda: core.counters.transactions)
    registry.meter(group, "successful-append", lambda: core.counters.committed)
    registry.meter(group, "rejected-append", lambda: core.counters.rejected)
    registry.timer(group, "response-latency", hosted.latency)


def _health(node: ServerNode) -> tuple[bool, dict[str, Any]]:
    """Healthy: ZooKeeper is in touch, or was not long ago, and every partition's store opened."""
    health = node.store.health
    grace = 2 * node.config.session_timeout_ms / 1000
    since = health.unhealthy_since
    in_touch = since is None or time.monotonic() - since < grace
    partitions = {str(h.core.id): h.core.store.healthy for h in node.partitions()}
    healthy = in_touch and all(partitions.values())
    report: dict[str, Any] = {
        "healthy": healthy,
        "zookeeper": in_touch,
        "partitions": partitions,
    }
    waiting = {str(h.core.id): h.core.store.waiting_for for h in node.partitions()}
    if any(waiting.values()):
        report["waiting"] = {partition: why for partition, why in waiting.items() if why}
    return healthy, {"server-health-check": report}
