"""Test settings in a file: dotted and nested names, checks, and messages about problems."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from waltz.runtime.configuration import (
    ConfigError,
    Positive,
    Settings,
    TlsSettings,
    group,
    read_settings,
    setting,
)
from waltz.runtime.core.setting_names import flatten
from waltz.runtime.core.value_types import (
    boolean,
    integer,
    names,
    not_negative,
    one_of,
    port,
    positive,
    text,
)
from waltz.runtime.core.value_types import file as path_type
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig


class Empty(Settings):
    """A model without settings."""


class Small(Settings):
    """A model with one setting, and a group."""

    a: Positive = setting("a", "a number", 7)
    tls_settings: TlsSettings = group("x.tls", TlsSettings())


REQUIRED_BY_SERVER = {
    "zookeeper.connectString": "localhost:2181",
    "zookeeper.sessionTimeout": 6000,
    "cluster.root": "/cluster",
    "server.port": 55180,
}
REQUIRED_BY_STORAGE = {
    "zookeeper.connectString": "localhost:2181",
    "zookeeper.sessionTimeout": 6000,
    "cluster.root": "/cluster",
    "storage.port": 55280,
    "storage.admin.port": 55281,
    "storage.directory": "/data",
}
SSL = (
    "keyStore.location",
    "keyStore.password",
    "keyStore.type",
    "trustStore.location",
    "trustStore.password",
    "trustStore.type",
    "keyManager.algorithm",
    "trustManager.algorithm",
)
PEM_FILES = ("certificate", "key", "ca")
"""The settings that replace the key stores: without them the key stores are errors."""
GRAPHITE = ("hostname", "port", "prefix", "useUdp", "reportIntervalMs")
SERVER_KEYS_0_13_2 = REQUIRED_BY_SERVER | {
    "server.jetty.port": 55181,
    "server.region": "us-east-1",
    "server.optimisticLockTableSize": 40_000,
    "server.feedCacheSize": 1 << 20,
    "server.minFetchSize": 50,
    "server.realtimeThreshold": 500,
    "server.transactionDataCacheSize": 1 << 21,
    "server.transactionDataCacheAllocation": "direct",
    "storage.maxBatchSize": 200,
    "storage.initialRetryInterval": 50,
    "storage.maxRetryInterval": 5000,
    "storage.checkpointInterval": 1000,
    **{f"{prefix}.ssl.{key}": "x" for prefix in ("server", "storage") for key in SSL},
    **{f"server.tls.{key}": "x.pem" for key in PEM_FILES},
    **{f"server.graphite.{key}": "x" for key in GRAPHITE},
}
STORAGE_KEYS_0_13_2 = REQUIRED_BY_STORAGE | {
    "cluster.key": "5bcc32f5-2222-a1e6-c29f-774f268f433d",
    "cluster.numPartitions": 1,
    "storage.jetty.port": 55282,
    "storage.segment.size.threshold": 1 << 20,
    "storage.segment.cache.capacity": 9,
    **{f"storage.ssl.{key}": "x" for key in SSL},
    **{f"storage.tls.{key}": "x.pem" for key in PEM_FILES},
    **{f"storage.graphite.{key}": "x" for key in GRAPHITE},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yml"


def write(file: Path, values: Any) -> Path:
    file.write_text(yaml.safe_dump(values))
    return file


# ---- the server's and the storage's keys


def test_server_config_accepts_every_key_of_0_13_2(file: Path) -> None:
    config = read_settings(ServerConfig, write(file, SERVER_KEYS_0_13_2))
    partition = config.partition
    assert (config.port, config.http_port, config.session_timeout_ms) == (55180, 55181, 6000)
    assert (config.feed_cache_bytes, config.data_cache_bytes) == (1 << 20, 1 << 21)
    assert (partition.lock_table_size, partition.min_fetch) == (40_000, 50)
    assert partition.realtime_threshold == 500
    assert partition.replication.batch_records == 200
    assert partition.replication.checkpoint_interval == 1000
    assert (partition.retry.first_seconds, partition.retry.longest_seconds) == (0.05, 5.0)


def test_storage_config_accepts_every_key_of_0_13_2(file: Path) -> None:
    config = read_settings(StorageConfig, write(file, STORAGE_KEYS_0_13_2))
    assert (config.port, config.admin_port, config.http_port) == (55280, 55281, 55282)
    assert (config.segment_threshold, config.open_segments) == (1 << 20, 9)
    assert config.directory == Path("/data")


@pytest.mark.parametrize("key", sorted(REQUIRED_BY_SERVER.keys() - {"cluster.root"}))
def test_config_without_a_required_key_is_an_error(file: Path, key: str) -> None:
    values = {k: v for k, v in REQUIRED_BY_SERVER.items() if k != key}
    with pytest.raises(ConfigError, match=rf"{key} must be set"):
        read_settings(ServerConfig, write(file, values))


def test_server_config_has_the_defaults_of_0_13_2(file: Path) -> None:
    config = read_settings(ServerConfig, write(file, REQUIRED_BY_SERVER))
    partition = config.partition
    assert (config.http_port, config.bind_host, config.advertised_port) == (None, None, None)
    assert config.advertised_host
    assert (config.feed_cache_bytes, config.data_cache_bytes) == (64 << 20, 128 << 20)
    assert (partition.lock_table_size, partition.min_fetch) == (30_000, 100)
    assert partition.realtime_threshold == 1000
    assert partition.replication.checkpoint_interval == 250_000
    assert (partition.retry.first_seconds, partition.retry.longest_seconds) == (0.1, 20.0)


def test_key_without_effect_logs_one_warning_with_the_reason(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    without_effect = {
        k: v
        for k, v in SERVER_KEYS_0_13_2.items()
        if "ssl" in k or "graphite" in k or k == "server.region"
    }
    with caplog.at_level(logging.WARNING):
        pem_files = {k: "x.pem" for k in SERVER_KEYS_0_13_2 if "server.tls." in k}
        read_settings(ServerConfig, write(file, REQUIRED_BY_SERVER | without_effect | pem_files))
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == len(without_effect)
    assert all("has no effect: " in each for each in warned)
    assert any("server.ssl.keyStore.location" in each and "PEM" in each for each in warned)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("server.prot", "server.port"),
        ("server.jettyport", "server.jetty.port"),
        ("zookeeper.connectionString", "zookeeper.connectString"),
        ("storage.checkpointIntervall", "storage.checkpointInterval"),
    ],
)
def test_unknown_key_suggests_the_most_similar(file: Path, wrong: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(ServerConfig, write(file, REQUIRED_BY_SERVER | {wrong: 1}))
    assert str(caught.value) == f"{file}: unknown setting {wrong}; did you mean {near}?"


def test_unknown_key_without_a_similar_one_has_no_suggestion(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown setting qqq$"):
        read_settings(ServerConfig, write(file, REQUIRED_BY_SERVER | {"qqq": 1}))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"server.minFetchSize": 1000}, "server.realtimeThreshold must exceed"),
        ({"server.jetty.port": 55180}, "must differ"),
        ({"server.port": 70000}, "server.port is 70000: expected a port between 0 and 65535"),
        ({"server.port": "many"}, "server.port is 'many'"),
        ({"server.port": 1.5}, "server.port is 1.5: expected a whole number"),
        ({"server.port": True}, "server.port is True: expected a whole number"),
        ({"zookeeper.sessionTimeout": 0}, "a number above 0"),
        ({"zookeeper.connectString": " "}, "must not be empty"),
        ({"server.tls.enabled": "maybe"}, "true or false"),
        ({"server.feedCacheSize": [1]}, "server.feedCacheSize is"),
    ],
)
def test_bad_value_error_names_file_key_and_expectation(
    file: Path, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        read_settings(ServerConfig, write(file, REQUIRED_BY_SERVER | changes))
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_ports_of_0_may_be_equal(file: Path) -> None:
    zeros = {"server.port": 0, "server.jetty.port": 0}
    assert read_settings(ServerConfig, write(file, REQUIRED_BY_SERVER | zeros)).port == 0


# ---- the file


@pytest.mark.parametrize(
    ("content", "what"),
    [("a: [", "is not valid YAML"), ("- 1\n- 2\n", "must be a YAML map"), ("x", "must be a YAML")],
)
def test_file_that_is_no_map_is_an_error(file: Path, content: str, what: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError, match=what) as caught:
        read_settings(Empty, file, {})
    assert "\n" not in str(caught.value)


def test_error_of_malformed_yaml_says_in_words_where_it_is(file: Path) -> None:
    file.write_text("a: 1\nb: c: d\n")
    with pytest.raises(ConfigError) as caught:
        read_settings(Empty, file, {})
    assert str(caught.value) == (
        f"{file} is not valid YAML: mapping values are not allowed here (line 2, column 5)"
    )


def test_unreadable_file_error_names_the_file(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"cannot read {file}: No such file"):
        read_settings(Empty, file, {})
    with pytest.raises(ConfigError, match=f"cannot read {tmp_path}: Is a directory"):
        read_settings(Empty, tmp_path, {})


def test_file_that_is_no_text_is_an_error(file: Path) -> None:
    for content in (b"\xff\xfe\x00\x00", b"a: \xff"):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match="is not valid YAML"):
            read_settings(Empty, file, {})


def test_keys_that_are_no_strings_are_unknown_settings(file: Path) -> None:
    file.write_text("1: 2\n? [3]\n: 4\n")
    with pytest.raises(ConfigError):
        read_settings(Empty, file, {})


def test_empty_file_leaves_the_defaults(file: Path) -> None:
    file.write_text("")
    assert read_settings(Small, file, {}).a == 7


_SEGMENTS = st.text("abc", min_size=1, max_size=2)
_TREES = st.recursive(
    st.integers(0, 9),
    lambda inner: st.dictionaries(_SEGMENTS, inner, min_size=1, max_size=3),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


def _regroup(flat: dict[str, Any], cut: int) -> dict[str, Any]:
    """Return the same settings, each in a map below the first ``cut`` parts of its name."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        parts = name.split(".")
        head, rest = ".".join(parts[:cut]), ".".join(parts[cut:])
        if not rest or not head:
            tree[name] = value
        else:
            tree.setdefault(f"{head}", {})[rest] = value
    return tree


@given(_TREES, st.integers(1, 4))
def test_flatten_gives_the_same_names_for_any_split_of_dots_and_maps(
    tree: dict[str, Any], cut: int
) -> None:
    flat = flatten(tree)
    prefixes = {name.rsplit(".", n)[0] for name in flat for n in range(1, 5) if "." in name}
    if not prefixes & flat.keys():
        assert flatten(_regroup(flat, cut)) == flat
    assert flatten(flat) == flat


# ---- types of values


@pytest.mark.parametrize(
    ("convert", "good", "bad"),
    [
        (
            integer,
            {"12": 12, " +7\n": 7, "-0012": -12, -3: -3, 4.0: 4},
            ("", "x", None, 1.5, True, "1.5", "1_000", "１２", b"12", float("inf"), "9" * 5000),
        ),
        (path_type, {"a/b": Path("a/b")}, (None, "", 5, "\0")),
        (positive, {1: 1, "7": 7}, (0, -1, "0")),
        (not_negative, {0: 0, "7": 7}, (-1, "x")),
        (port, {0: 0, 65535: 65535}, (-1, 65536)),
        (boolean, {True: True, False: False, "TRUE": True, "false": False}, (1, "yes", None, "")),
        (text, {"x": "x", 5: "5"}, (None, "", "  ", True, ["x"], b"x")),
        (
            names,
            {"a, b": ("a", "b"), "a": ("a",)},
            (None, "", "a,,b", [], ["a", 5], ["a", ""]),
        ),
        (one_of("heap", "direct"), {"heap": "heap"}, ("stack", None)),
    ],
)
def test_value_type_converts_good_values_and_rejects_others(
    convert: Any, good: dict[Any, Any], bad: tuple[Any, ...]
) -> None:
    assert [convert(value) for value in good] == list(good.values())
    for value in bad:
        with pytest.raises((ValueError, TypeError)):
            convert(value)


def test_tls_settings_make_a_tls_config(file: Path) -> None:
    given_ = {"x.tls.certificate": "c.pem", "x.tls.key": "k.pem", "x.tls.serverName": "name"}
    config = read_settings(Small, write(file, given_), {}).tls_settings.config()
    assert config.enabled
    assert (config.certificate, config.key, config.ca) == (Path("c.pem"), Path("k.pem"), None)
    assert config.server_name == "name"
    off = read_settings(Small, write(file, {"x.tls.enabled": False}), {})
    assert not off.tls_settings.config().enabled
