"""Where settings come from: the file, the environment, and which of them counts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from waltz.client.settings import SCHEMA as CLIENT
from waltz.client.settings import read_client_settings
from waltz.runtime.configuration import (
    ConfigError,
    Key,
    Schema,
    look_up,
    read_schema,
    text,
    variable,
)
from waltz.runtime.configuration.resolving import DEFAULT, Given, from_environment, resolve
from waltz_server.shell.config import SCHEMA as SERVER
from waltz_server.shell.config import load
from waltz_storage.shell.config import SCHEMA as STORAGE

SCHEMAS = (SERVER, STORAGE, CLIENT)
REQUIRED_VARIABLES = {
    "WALTZ_ZOOKEEPER_CONNECT_STRING": "zk:2181",
    "WALTZ_ZOOKEEPER_SESSION_TIMEOUT": "6000",
    "WALTZ_CLUSTER_ROOT": "/cluster",
    "WALTZ_SERVER_PORT": "0",
}


def write(tmp_path: Path, values: Any) -> Path:
    file = tmp_path / "config.yml"
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("server.port", "WALTZ_SERVER_PORT"),
        ("server.bind.host", "WALTZ_SERVER_BIND_HOST"),
        ("server.optimisticLockTableSize", "WALTZ_SERVER_OPTIMISTIC_LOCK_TABLE_SIZE"),
        ("server.tls.serverName", "WALTZ_SERVER_TLS_SERVER_NAME"),
    ],
)
def test_the_variable_of_a_setting(name: str, expected: str) -> None:
    assert variable(name) == expected


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.process)
def test_no_two_settings_share_a_variable_and_each_says_what_it_means(schema: Schema) -> None:
    assert len({variable(key.name) for key in schema.keys}) == len(schema.keys)
    assert all(key.meaning and "\n" not in key.meaning for key in schema.keys)


def test_everything_may_come_from_the_environment() -> None:
    config = load(None, REQUIRED_VARIABLES | {"WALTZ_SERVER_TLS_ENABLED": "false"})
    assert (config.zookeeper, config.session_timeout_ms) == ("zk:2181", 6000)
    assert (config.cluster_root, config.port) == ("/cluster", 0)
    assert not config.tls.enabled


def test_the_environment_counts_before_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, {"server": {"port": 1, "minFetchSize": 7}})
    config = load(file, REQUIRED_VARIABLES | {"WALTZ_SERVER_PORT": "2"})
    assert config.port == 2
    assert config.partition.min_fetch == 7


def test_a_client_may_be_set_up_by_both(tmp_path: Path) -> None:
    file = write(tmp_path, {"client.maxConcurrentTransactions": 3, "cluster.root": "/a"})
    _, root, options = read_client_settings(file, REQUIRED_VARIABLES)
    assert (root, options.max_in_flight) == ("/cluster", 3)


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.port": 1})
    assert load(file, REQUIRED_VARIABLES | {"WALTZ_SERVER_PORT": ""}).port == 1


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^\$WALTZ_SERVER_PORT: server.port is 'x': a whole"):
        load(None, REQUIRED_VARIABLES | {"WALTZ_SERVER_PORT": "x"})


def test_what_is_missing_without_a_file_says_how_to_set_it() -> None:
    given_ = {k: v for k, v in REQUIRED_VARIABLES.items() if "ZOO" not in k}
    with pytest.raises(ConfigError) as caught:
        load(None, given_)
    assert str(caught.value) == (
        "without a settings file, $WALTZ_ZOOKEEPER_CONNECT_STRING, "
        "$WALTZ_ZOOKEEPER_SESSION_TIMEOUT must be set"
    )


def test_of_several_problems_the_number_is_told(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.port": "x", "server.prot": 1})
    with pytest.raises(ConfigError, match=r"\(and 2 more: waltz config explain server .*yml shows"):
        load(file, {})


def test_a_setting_given_twice_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.port": 1, "server": {"port": 2}})
    with pytest.raises(ConfigError, match=r"config\.yml: server\.port is set twice$"):
        load(file, REQUIRED_VARIABLES)


@pytest.mark.parametrize(
    ("content", "twice"),
    [
        ("server.port: 1\nserver.port: 2\n", "server.port"),
        ("server:\n  port: 1\n  port: 2\n", "port"),
    ],
)
def test_a_key_written_twice_is_refused(tmp_path: Path, content: str, twice: str) -> None:
    file = tmp_path / "config.yml"
    file.write_text(content)
    with pytest.raises(
        ConfigError, match=rf"config\.yml: {twice} is set twice, the second time in"
    ):
        load(file, REQUIRED_VARIABLES)


def test_a_map_may_be_merged_into_another(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text("server.bind: &a {host: x}\nserver.advertised: {<<: *a, port: 5}\n")
    config = load(file, REQUIRED_VARIABLES)
    assert (config.bind_host, config.advertised_host, config.advertised_port) == ("x", "x", 5)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("WALTZ_SERVER_PROT", "did you mean WALTZ_SERVER_PORT?"),
        ("WALTZ_CLUSTER_ROOOT", "did you mean WALTZ_CLUSTER_ROOT?"),
        ("WALTZ_SERVER_QQQ", "there is no such setting"),
    ],
)
def test_a_variable_that_looks_like_a_setting_is_warned_of(
    name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        load(None, REQUIRED_VARIABLES | {name: "1"})
    assert f"${name} is not used: " in caplog.text
    assert said in caplog.text


def test_variables_of_others_are_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    others = {"WALTZ": "1", "WALTZ_TLS": "off", "WALTZ_STORAGE_TLS_CA": "x", "PATH": "/bin"}
    links = {
        "WALTZ_SERVER_SERVICE_HOST": "10.0.0.1",
        "WALTZ_SERVER_SERVICE_PORT_CLIENTS": "55180",
        "WALTZ_SERVER_PORT_55180_TCP_ADDR": "10.0.0.1",
    }
    load(None, REQUIRED_VARIABLES | others | links)
    assert not caplog.records


def test_the_address_of_a_kubernetes_service_is_no_port(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, {"server.port": 55180})
    linked = REQUIRED_VARIABLES | {"WALTZ_SERVER_PORT": "tcp://10.0.0.1:55180"}
    assert load(file, linked).port == 55180
    assert "enableServiceLinks: false" in caplog.text


def test_looking_up_tells_where_each_value_is_from(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.minFetchSize": 7, "server.region": "x"})
    resolved = look_up(SERVER, file, REQUIRED_VARIABLES)
    origins = {setting.key.name: setting.origin for setting in resolved.settings}
    assert origins["server.minFetchSize"] == str(file)
    assert origins["server.port"] == "$WALTZ_SERVER_PORT"
    assert origins["server.feedCacheSize"] == DEFAULT
    assert not resolved.problems
    assert len(resolved.warnings) == 1


_NAMES = ("a", "b.c", "b.dE", "f")
_SCHEMA = Schema("x", tuple(Key(name, text, "default") for name in _NAMES), {})
_SOME = st.dictionaries(st.sampled_from(_NAMES), st.text("xyz", min_size=1, max_size=3))


@given(_SOME, _SOME)
def test_the_nearest_source_wins(in_file: dict[str, str], in_environment: dict[str, str]) -> None:
    environment = {variable(name): value for name, value in in_environment.items()}
    from_file = {name: Given(value, "file") for name, value in in_file.items()}
    found, warnings = from_environment(_SCHEMA, environment)
    resolved = resolve(_SCHEMA, (from_file, found))
    defaults = dict.fromkeys(_NAMES, "default")
    assert resolved.values == defaults | in_file | in_environment
    assert not resolved.problems
    assert not warnings


@given(st.dictionaries(st.text("abWALTZ_.", max_size=9), st.text(max_size=5), max_size=5))
def test_no_environment_breaks_it(environment: dict[str, str]) -> None:
    for schema in SCHEMAS:
        found, _ = from_environment(schema, environment)
        resolve(schema, ({}, found))


# ---- TLS, and key stores of 0.13.2


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"certificate": "/c"}, "server.tls.certificate and server.tls.key go together"),
        ({"key": "/k"}, "server.tls.certificate and server.tls.key go together"),
        ({"serverName": "x"}, "server.tls.serverName is verified only with server.tls.ca"),
    ],
)
def test_settings_of_tls_that_do_not_fit_are_named(
    tmp_path: Path, tls: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load(write(tmp_path, {"server.tls": tls}), REQUIRED_VARIABLES)
    load(write(tmp_path, {"server.tls": tls | {"enabled": False}}), REQUIRED_VARIABLES)


def test_a_key_store_without_a_pem_file_is_refused_with_the_commands(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.ssl.keyStore.location": "/etc/waltz/my server.jks"})
    with pytest.raises(ConfigError) as caught:
        load(file, REQUIRED_VARIABLES)
    said = str(caught.value)
    assert "keytool -importkeystore -srckeystore '/etc/waltz/my server.jks'" in said
    assert "openssl pkcs12 -in '/etc/waltz/my server-converted.p12'" in said
    assert said.endswith("then set server.tls.certificate and server.tls.key")


def test_a_pkcs12_trust_store_needs_openssl_alone(tmp_path: Path) -> None:
    store = {"location": "/trust.p12", "type": "PKCS12", "password": "secret"}
    file = write(tmp_path, {"server.ssl.trustStore": store})
    with pytest.raises(ConfigError) as caught:
        load(file, REQUIRED_VARIABLES)
    said = str(caught.value)
    assert "keytool" not in said
    assert "-nokeys -out /trust.pem; then set server.tls.ca" in said
    assert "secret" not in said


def test_a_key_store_is_only_warned_of_when_tls_is_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, {"server.ssl.keyStore.location": "/x", "server.tls.enabled": False})
    assert not read_schema(SERVER, file, REQUIRED_VARIABLES)["server.tls.enabled"]
    assert "server.ssl.keyStore.location has no effect" in caplog.text
