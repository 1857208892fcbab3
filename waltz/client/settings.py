"""Read the options of a client from a configuration file (spec/behaviour.md section 14).

The file has the keys of Waltz 0.13.2. Touches the file and the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator

from waltz.client.options import ClientOptions
from waltz.metadata.core.outside_addresses import Access
from waltz.runtime.configuration import (
    READS_PEM_FILES,
    ClusterSettings,
    Positive,
    Settings,
    TlsSettings,
    group,
    read_settings,
    setting,
)
from waltz.runtime.core.value_types import one_of

_WITHOUT_EFFECT = {
    "client.autoMount": "a partition is mounted when it is first used",
    "client.numTransactionRetryThreads": "submit retries on the event loop, without threads",
    "client.numConsumerThreads": "the application reads the stream itself, without threads",
    "client.mockDriver": "it is for tests of Waltz 0.13.2",
    "client.ssl.": READS_PEM_FILES,
    "ssl.": "it is for the command line, whose tools of Waltz 0.13.2 share a file with clients",
    "zookeeper.connectTimeout": "it is for the command line of Waltz 0.13.2",
}
"""The keys of Waltz 0.13.2 that have no effect here, each with the reason.

A key that ends with a dot stands for all keys that begin with it."""

AccessSetting = Annotated[Access, BeforeValidator(one_of(*get_args(Access)))]
"""The type of the settings that say which addresses of servers and storages are dialed."""


class ClientSettings(ClusterSettings):
    """The settings of a client. Times are in milliseconds."""

    process = "client"
    without_effect = _WITHOUT_EFFECT

    long_wait_ms: Positive = setting(
        "client.longWaitThreshold",
        "milliseconds after which the client requests the outcome of an append by a flush",
        5000,
    )
    max_in_flight: Positive = setting(
        "client.maxConcurrentTransactions",
        "the most appends without an outcome per partition",
        1000,
    )
    access: AccessSetting = setting(
        "client.access",
        "inside: dial the addresses that servers have registered; outside: dial their outside "
        "addresses",
        "inside",
    )
    tls_settings: TlsSettings = group("client.tls", TlsSettings())

    def problems(self, ignored: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each combination of values that cannot be used.

        ``ignored`` is that of `waltz.runtime.configuration.Settings.problems`.
        """
        yield from super().problems(ignored)
        yield from self.tls_settings.tls_problems("client.", ignored)


class TlsFile(Settings, TlsSettings):
    """The file of ``--tls`` and ``WALTZ_TLS``; its keys are the TLS settings without a prefix."""


def read_client_settings(
    path: Path | None, environment: Mapping[str, str] = os.environ
) -> tuple[str, str, ClientOptions]:
    """Return the addresses of ZooKeeper, the cluster's root and the options.

    Settings come from the file at ``path`` (None: no file) and from environment variables, which
    take precedence; ``WALTZ_CLUSTER_ROOT`` is ``cluster.root``. Raises
    waltz.runtime.configuration.ConfigError.
    """
    settings = read_settings(ClientSettings, path, environment)
    options = ClientOptions(
        tls=settings.tls_settings.config(),
        access=settings.access,
        zookeeper_access=settings.zookeeper_access,
        session_timeout_ms=settings.session_timeout_ms,
        max_in_flight=settings.max_in_flight,
        # The clients of 0.13.2 wait without a limit.
        append_timeout=None,
        answer_timeout=None,
        long_wait_seconds=settings.long_wait_ms / 1000,
    )
    return settings.zookeeper, settings.cluster_root, options
