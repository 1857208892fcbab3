"""Read the settings file of the command line tools of Waltz 0.13.2 (spec/behaviour.md section 14).

Reads this file, the file of ``--tls``, and the environment. The option ``--cluster`` accepts a
settings file, so users of 0.13.2 can keep theirs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from waltz.client.settings import AccessSetting, TlsFile
from waltz.net import TlsConfig
from waltz.runtime.configuration import (
    READS_PEM_FILES,
    ConfigError,
    Text,
    TlsSettings,
    ZooKeeperSettings,
    group,
    read_settings,
    setting,
)
from waltz.runtime.configuration.cluster import CLUSTER_ROOT, ZOOKEEPER
from waltz.runtime.core.setting_names import DEFAULT_ROOT

_OWN_TIMES = "each verb has its own time limit; some have an option for it"
"""Why the two settings of times have no effect."""
_OF_CLIENTS = "the settings of clients have no effect on a verb; some have an option for it"
"""Why the settings of clients have no effect.

In 0.13.2 all tools share one settings file. The tools ``client-cli`` and ``performance-cli`` use a
client, and read the settings of clients from this file."""

_WITHOUT_EFFECT = {
    "zookeeper.sessionTimeout": _OWN_TIMES,
    "zookeeper.connectTimeout": _OWN_TIMES,
    "ssl.": READS_PEM_FILES,
    "client.ssl.": READS_PEM_FILES,
    "client.autoMount": _OF_CLIENTS,
    "client.numTransactionRetryThreads": _OF_CLIENTS,
    "client.numConsumerThreads": _OF_CLIENTS,
    "client.longWaitThreshold": _OF_CLIENTS,
    "client.maxConcurrentTransactions": _OF_CLIENTS,
    "client.mockDriver": _OF_CLIENTS,
}
"""Settings of Waltz 0.13.2 that are ignored, and why.

A name that ends with a dot stands for all names that begin with it."""


class CliSettings(ZooKeeperSettings):
    """The address of a cluster, and the settings for connections to its processes."""

    process = "cli"
    without_effect = _WITHOUT_EFFECT

    zookeeper: Text = setting("zookeeper.connectString", ZOOKEEPER)
    root: Text = setting("cluster.root", CLUSTER_ROOT, DEFAULT_ROOT)
    access: AccessSetting = setting(
        "access",
        "inside: dial the addresses that servers and storages have registered; outside: dial their "
        "outside addresses",
        "inside",
    )
    tls_settings: TlsSettings = group("tls", TlsSettings())

    def problems(self, ignored: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each combination of values that cannot be used.

        ``ignored`` has the settings of `without_effect` that are set, with their values.
        """
        yield from super().problems(ignored)
        # The first argument is the prefix of the names of TLS settings, which is empty in this
        # file. With 0.13.2, the same file may have key stores of clients, such as
        # ``client.ssl.keyStore``. The TLS settings replace these, too.
        yield from self.tls_settings.tls_problems("", ignored, "client.")


def read_cli_settings(path: Path, environment: Mapping[str, str] = os.environ) -> CliSettings:
    """Read the settings in the file at ``path`` and the environment; raises ConfigError."""
    return read_settings(CliSettings, path, environment)


def read_tls_file(path: Path) -> TlsConfig:
    """Read the file of the option ``--tls``; raises ConfigError."""
    return read_settings(TlsFile, path, {}).config()


__all__ = ["CliSettings", "ConfigError", "read_cli_settings", "read_tls_file"]
