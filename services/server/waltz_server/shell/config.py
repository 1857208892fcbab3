"""The server's settings: those of Waltz 0.13.2 and its own (spec/behaviour.md section 14).

Touches one file and the environment, when they are read.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waltz.net.core.backoff import Backoff
from waltz.net.tls import TlsConfig
from waltz.runtime.configuration import (
    KEY_STORES,
    Key,
    Schema,
    cluster_keys,
    endpoint_keys,
    port,
    positive,
    read_schema,
    text,
    tls_config,
    tls_keys,
    tls_problems,
)
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.partition import PartitionSettings

_KEYS = (
    *cluster_keys(),
    Key("server.port", port, meaning="client-facing port; 0 takes a free one"),
    *endpoint_keys("server."),
    Key("server.advertised.host", text, None, "host told to clients; not set: the host name"),
    Key("server.advertised.port", port, None, "port told to clients; not set: server.port"),
    Key("server.optimisticLockTableSize", positive, 30_000, "slots of a partition's lock table"),
    Key("server.feedCacheSize", positive, 64 << 20, "bytes of feed, shared by the partitions"),
    Key("server.minFetchSize", positive, 100, "transactions fed for one feed request at least"),
    Key("server.realtimeThreshold", positive, 1000, "distance to the end that counts as near"),
    Key(
        "server.transactionDataCacheSize",
        positive,
        128 << 20,
        "bytes of recent data, shared by the partitions",
    ),
    Key("storage.maxBatchSize", positive, 500, "transactions in one append to the storages"),
    Key(
        "storage.initialRetryInterval",
        positive,
        100,
        "milliseconds until a partition tries again after a failed session or replica, at first",
    ),
    Key(
        "storage.maxRetryInterval",
        positive,
        20_000,
        "milliseconds until it tries again, at most: the pause doubles",
    ),
    Key("storage.checkpointInterval", positive, 250_000, "transactions in one store session"),
    *tls_keys("server.tls."),
)

_MEANINGLESS = {
    "server.region": "no server uses it",
    "server.transactionDataCacheAllocation": "there is one kind of memory here",
    "server.ssl.": KEY_STORES,
    "server.graphite.": "metrics are read from the HTTP port",
}


def _problems(values: Mapping[str, Any], ignored: Mapping[str, Any]) -> Iterator[str]:
    if values["server.minFetchSize"] >= values["server.realtimeThreshold"]:
        yield "server.realtimeThreshold must exceed server.minFetchSize"
    if values["server.port"] and values["server.port"] == values["server.jetty.port"]:
        yield "server.port and server.jetty.port must differ"
    yield from tls_problems("server.", values, ignored)


SCHEMA = Schema("server", _KEYS, _MEANINGLESS, _problems)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """A server's settings, checked. Sizes in bytes, times in seconds."""

    zookeeper: str
    session_timeout_ms: int
    cluster_root: str
    port: int
    http_port: int | None
    bind_host: str | None
    advertised_host: str
    advertised_port: int | None
    ports_file: Path | None
    feed_cache_bytes: int
    data_cache_bytes: int
    partition: PartitionSettings
    tls: TlsConfig


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> ServerConfig:
    """Read the settings in the file at ``path`` and the environment; raises ConfigError."""
    values = read_schema(SCHEMA, path, environment)
    partition = PartitionSettings(
        lock_table_size=values["server.optimisticLockTableSize"],
        min_fetch=values["server.minFetchSize"],
        realtime_threshold=values["server.realtimeThreshold"],
        replication=ReplicationLimits(
            batch_records=values["storage.maxBatchSize"],
            checkpoint_interval=values["storage.checkpointInterval"],
        ),
        retry=Backoff(
            values["storage.initialRetryInterval"] / 1000,
            values["storage.maxRetryInterval"] / 1000,
        ),
    )
    return ServerConfig(
        zookeeper=values["zookeeper.connectString"],
        session_timeout_ms=values["zookeeper.sessionTimeout"],
        cluster_root=values["cluster.root"],
        port=values["server.port"],
        http_port=values["server.jetty.port"],
        bind_host=values["server.bind.host"],
        advertised_host=values["server.advertised.host"] or socket.getfqdn(),
        advertised_port=values["server.advertised.port"],
        ports_file=values["server.ports.file"],
        feed_cache_bytes=values["server.feedCacheSize"],
        data_cache_bytes=values["server.transactionDataCacheSize"],
        partition=partition,
        tls=tls_config(values, "server.tls."),
    )
