"""The settings file of the command line tools, as 0.13.2 has it (spec/behaviour.md section 14).

Touches that file and the environment, when they are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from waltz.net import TlsConfig
from waltz.runtime.cluster_file import DEFAULT_ROOT
from waltz.runtime.configuration import (
    KEY_STORES,
    Key,
    Schema,
    read_schema,
    text,
    tls_config,
    tls_keys,
    tls_problems,
)

_OWN_TIMES = "each verb knows how long it may wait, and has an option where that is to be chosen"

SCHEMA = Schema(
    "cli",
    (
        Key(
            "zookeeper.connectString",
            text,
            meaning="host:port of the ZooKeeper servers, with commas",
        ),
        Key("cluster.root", text, DEFAULT_ROOT, "the cluster's znode"),
        *tls_keys("tls."),
    ),
    {
        "zookeeper.sessionTimeout": _OWN_TIMES,
        "zookeeper.connectTimeout": _OWN_TIMES,
        "ssl.": KEY_STORES,
    },
    lambda values, ignored: tls_problems("", values, ignored),
)


@dataclass(frozen=True, slots=True)
class CliSettings:
    """Where a cluster is, and how to connect to its processes."""

    zookeeper: str
    root: str
    tls: TlsConfig


def read_cli_settings(path: Path, environment: Mapping[str, str] = os.environ) -> CliSettings:
    """Read the settings in the file at ``path`` and the environment; raises ConfigError."""
    values = read_schema(SCHEMA, path, environment)
    return CliSettings(
        values["zookeeper.connectString"], values["cluster.root"], tls_config(values, "tls.")
    )
