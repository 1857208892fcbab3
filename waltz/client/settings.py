"""The options of a client, given as arguments or in a configuration file of Waltz 0.13.2.

Reads that file and the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from waltz.client.core.values import Serializer
from waltz.net import TlsConfig
from waltz.runtime.configuration import (
    KEY_STORES,
    Key,
    Schema,
    cluster_keys,
    positive,
    read_schema,
    tls_config,
    tls_keys,
    tls_problems,
)

_TLS_PREFIX = "client.tls."


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of a client, with their defaults. Times are in seconds.

    Attributes:
        tls: How connections to servers are secured. By default they are, and any server certificate
            is accepted, as in Waltz 0.13.2.
        serializer: Turns values into bytes and back. Without one, data is bytes.
        session_timeout_ms: The session timeout requested from ZooKeeper, in milliseconds.
        connect_timeout: How long ZooKeeper may take to answer when the client is opened.
        append_timeout: The timeout of every append and submit without one of its own; None: none.
        answer_timeout: The timeout of every other call without one of its own; None: none.
        max_in_flight: The number of appends without outcome per partition. Further ones wait.
        long_wait_seconds: How long an append may have no outcome before the client sends a flush.
        stream_buffer: The number of transactions that a stream holds before it stops reading.
    """

    tls: TlsConfig = field(default_factory=TlsConfig)
    serializer: Serializer[Any] | None = None
    session_timeout_ms: int = 30_000
    connect_timeout: float = 10.0
    append_timeout: float | None = None
    answer_timeout: float | None = None
    max_in_flight: int = 1000
    long_wait_seconds: float = 5.0
    stream_buffer: int = 10_000


class _PlainOptions(TypedDict, total=False):
    session_timeout_ms: int
    connect_timeout: float
    append_timeout: float | None
    answer_timeout: float | None
    max_in_flight: int
    stream_buffer: int


class ConnectOptions(_PlainOptions, total=False):
    """The options that `waltz.connect` takes; `ClientOptions` has their meaning and defaults."""

    tls: TlsConfig | None


def client_options(serializer: Serializer[Any] | None, options: ConnectOptions) -> ClientOptions:
    """Return the options of a client that is opened with these arguments."""
    plain: _PlainOptions = options
    tls = options.pop("tls", None) or TlsConfig()
    return ClientOptions(serializer=serializer, tls=tls, **plain)


_KEYS = (
    *cluster_keys(),
    Key(
        "client.longWaitThreshold",
        positive,
        5000,
        "milliseconds until a flush is sent for an append without outcome",
    ),
    Key(
        "client.maxConcurrentTransactions", positive, 1000, "appends without outcome per partition"
    ),
    *tls_keys(_TLS_PREFIX),
)

_MEANINGLESS = {
    "client.autoMount": "a partition is mounted when it is first used",
    "client.numTransactionRetryThreads": "submit retries on the event loop, without threads",
    "client.numConsumerThreads": "the application reads the stream itself, without threads",
    "client.mockDriver": "it is for tests of the reference",
    "client.ssl.": KEY_STORES,
}


SCHEMA = Schema(
    "client",
    _KEYS,
    _MEANINGLESS,
    lambda values, ignored: tls_problems("client.", values, ignored),
)


def read_client_settings(
    path: Path | None, environment: Mapping[str, str] = os.environ
) -> tuple[str, str, ClientOptions]:
    """Return ZooKeeper's address, the cluster's root and the options.

    Settings come from the file at ``path`` and from environment variables, which take precedence
    (``WALTZ_CLUSTER_ROOT`` is ``cluster.root``). Raises waltz.runtime.configuration.ConfigError.
    """
    values = read_schema(SCHEMA, path, environment)
    options = ClientOptions(
        tls=tls_config(values, _TLS_PREFIX),
        session_timeout_ms=values["zookeeper.sessionTimeout"],
        max_in_flight=values["client.maxConcurrentTransactions"],
        long_wait_seconds=values["client.longWaitThreshold"] / 1000,
    )
    return values["zookeeper.connectString"], values["cluster.root"], options
