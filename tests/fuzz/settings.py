"""Fuzz configuration files of server, storage and client, as text that is almost YAML."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.fuzz.mutation import mutate
from tests.fuzz.target import hold
from waltz.client.settings import read_client_settings
from waltz.local.core.plan import LocalClusterPlan, PlanError, Shape
from waltz.runtime.configuration import ConfigError, read_settings
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig

_COMMON: dict[str, Any] = {
    "zookeeper.connectString": "127.0.0.1:2181",
    "zookeeper.sessionTimeout": 6000,
    "cluster.root": "/waltz",
}
_SERVER: dict[str, Any] = {
    "server.port": 55180,
    "server.jetty.port": 55182,
    "server.advertised.host": "127.0.0.1",
    "server.minFetchSize": 100,
    "server.realtimeThreshold": 1000,
    "server.feedCacheSize": 67108864,
    "server.ssl.keyStore.location": "/somewhere",
    "storage.initialRetryInterval": 100,
    "storage.maxBatchSize": 500,
    "server.tls.enabled": False,
}
_STORAGE: dict[str, Any] = {
    "storage.port": 55280,
    "storage.admin.port": 55281,
    "storage.jetty.port": 55282,
    "storage.directory": "/somewhere",
    "storage.segment.size.threshold": 1000000,
    "storage.tls.certificate": "/somewhere/cert.pem",
    "storage.tls.key": "/somewhere/cert.key",
}
_CLIENT: dict[str, Any] = {"client.longWaitThreshold": 5000, "client.tls.ca": "/somewhere/ca.pem"}

_ODD_TEXTS = (
    b"&a ", b"*a", b"{", b"}", b"[", b"]", b": ", b"? ", b"- ", b"|\n", b"\t", b"\x00", b"\xff",
    b"!!timestamp ", b"!!int ", b"!!float ", b"!!bool ", b"!!binary ", b"!!set ", b"!!omap ",
    b"!!python/name:os.system ", b"---\n", b"%YAML 9.9\n", b"<<: ", b"'", b'"\\ud800"', b"#",
    b"2001-13-45", b"12:99:99", b"0x", b"1e999", b".nan", b"9" * 400, b"[" * 500, b"&a {b: *a}",
    b"{a: " * 500, "\u2028\u0085\ufeff😀".encode(),
)  # fmt: skip
_ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 200, 10**400, 1.5, float("inf"), float("nan"), "", " ", "x", [], {},
    [1], {"a": {"b": 1}}, "9" * 5000, "\0", "true", "6000", 65536, 100, 1000,
    55180, 55280, {1: 2}, "ü",
)  # fmt: skip


class Settings:
    """A configuration file after a byte that selects its program; 3 is a local cluster's plan."""

    name = "settings"
    modules = (
        "waltz.runtime.core.setting_names",
        "waltz.runtime.core.value_types",
        "waltz.runtime.configuration.key_stores",
        "waltz.runtime.configuration.reading",
        "waltz.runtime.configuration.settings",
        "waltz.runtime.configuration.sources",
        "waltz.runtime.configuration.tls",
        "waltz.runtime.configuration.yaml_file",
        "waltz.client.settings",
        "waltz_server.shell.config",
        "waltz_storage.shell.config",
    )

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="waltz-fuzz-")
        self._path = Path(self._folder.name) / "settings.yml"
        self._loads: tuple[Callable[[Path], Any], ...] = (
            lambda path: read_settings(ServerConfig, path),
            lambda path: read_settings(StorageConfig, path),
            read_client_settings,
            lambda path: LocalClusterPlan.from_json(path.read_text(errors="replace")),
        )

    def make(self, random: Random) -> bytes:
        """Return a complete file, in dotted or nested form."""
        choice = random.randrange(4)
        if choice == 3:
            plan = LocalClusterPlan.of(Shape(1, random.randrange(1, 4), 1), iter(range(1000, 1100)))
            return b"\x03" + plan.to_json().encode()
        values = _COMMON | (_SERVER, _STORAGE, _CLIENT)[choice]
        return bytes((choice,)) + _text(random, values)

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change a value, insert a construct of YAML, or change bytes."""
        kind = random.random()
        raw = data[1:]
        if kind < 0.4:
            at = random.randrange(len(raw) + 1)
            after = random.choice((at, raw.find(b": ", at) + 2))
            return data[:1] + raw[:after] + random.choice(_ODD_TEXTS) + raw[after:]
        if kind < 0.7 and data[0] % 4 != 3:
            values = _COMMON | (_SERVER, _STORAGE, _CLIENT)[data[0] % 4]
            name = random.choice([*values, "server.prot", "a", "zookeeper"])
            return data[:1] + _text(random, values | {name: random.choice(_ODD_VALUES)})
        return data[:1] + mutate(random, raw, other[1:])

    def check(self, data: bytes) -> bool:
        """Load it."""
        self._path.write_bytes(data[1:])
        try:
            self._loads[data[0] % 4](self._path)
        except (ConfigError, PlanError) as refused:
            hold(len(str(refused)) > 10, "a refusal is explained")
            return False
        return True


def _text(random: Random, values: dict[str, Any]) -> bytes:
    if random.random() < 0.5:
        nested: dict[str, Any] = {}
        for name, value in values.items():
            head, _, tail = name.partition(".")
            if tail:
                nested.setdefault(head, {})[tail] = value
            else:
                nested[head] = value
        values = nested
    return yaml.safe_dump(values, sort_keys=random.random() < 0.5, allow_unicode=True).encode()
