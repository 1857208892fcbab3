"""How a client is set up: by arguments, or by a file as for Waltz 0.13.2.

Touches that file and the environment, when they are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """Everything about a client but which cluster it is for.

    ``serializer`` turns values into bytes and back; without one data is bytes.
    ``append_timeout_seconds`` bounds every `Client.append` and `Client.submit` that does not say
    otherwise, ``answer_timeout_seconds`` every other question (None: no bound).
    ``max_in_flight`` is the number of unresolved appends per partition beyond which others wait.
    ``long_wait_seconds`` is how long an append may be without outcome before it is asked after.
    ``stream_buffer`` is the number of transactions that a stream holds before it stops reading.
    """

    tls: TlsConfig = field(default_factory=TlsConfig)
    serializer: Serializer[Any] | None = None
    session_timeout_ms: int = 30_000
    connect_timeout_seconds: float = 10.0
    append_timeout_seconds: float | None = None
    answer_timeout_seconds: float | None = None
    max_in_flight: int = 1000
    long_wait_seconds: float = 5.0
    stream_buffer: int = 10_000


_KEYS = (
    *cluster_keys(),
    Key("client.longWaitThreshold", positive, 5000, "milliseconds before an append is asked after"),
    Key("client.maxConcurrentTransactions", positive, 1000, "unresolved appends per partition"),
    *tls_keys(_TLS_PREFIX),
)

_MEANINGLESS = {
    "client.autoMount": "a partition is mounted when it is first used",
    "client.numTransactionRetryThreads": "there are no threads; submit tries again by itself",
    "client.numConsumerThreads": "there are no threads; the application takes from the stream",
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
    """Return ZooKeeper's address, the cluster's root and the options that settings name.

    They are in the file at ``path`` and in environment variables, which count more
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
