"""How a client is set up: by arguments, or by a file as for Waltz 0.13.2. Reads that file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from waltz.client.values import Serializer
from waltz.config import (
    KEY_STORES,
    REQUIRED,
    Key,
    positive,
    read_settings,
    text,
    tls_config,
    tls_keys,
)
from waltz.net import TlsConfig

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
    serializer: Serializer | None = None
    session_timeout_ms: int = 30_000
    connect_timeout_seconds: float = 10.0
    append_timeout_seconds: float | None = None
    answer_timeout_seconds: float | None = None
    max_in_flight: int = 1000
    long_wait_seconds: float = 5.0
    stream_buffer: int = 10_000


_KEYS = (
    Key("zookeeper.connectString", text, REQUIRED, "host:port of ZooKeeper, comma-separated"),
    Key("zookeeper.sessionTimeout", positive, REQUIRED, "milliseconds"),
    Key("cluster.root", text, REQUIRED, "the cluster's znode"),
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


def read_client_settings(path: Path) -> tuple[str, str, ClientOptions]:
    """Return ZooKeeper's address, the cluster's root and the options in a configuration file.

    Raises waltz.config.ConfigError.
    """
    values = read_settings(path, _KEYS, _MEANINGLESS)
    options = ClientOptions(
        tls=tls_config(values, _TLS_PREFIX),
        session_timeout_ms=values["zookeeper.sessionTimeout"],
        max_in_flight=values["client.maxConcurrentTransactions"],
        long_wait_seconds=values["client.longWaitThreshold"] / 1000,
    )
    return values["zookeeper.connectString"], values["cluster.root"], options
