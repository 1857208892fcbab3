"""Test that settings come from the file and the environment, and which takes precedence."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from waltz.client.settings import ClientSettings, read_client_settings
from waltz.runtime.configuration import (
    DEFAULT,
    ConfigError,
    Settings,
    Text,
    keys,
    read_settings,
    setting,
    settings_report,
)
from waltz.runtime.core.setting_names import environment_variable
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig

MODELS: tuple[type[Settings], ...] = (ServerConfig, StorageConfig, ClientSettings)
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
def test_variable_of_setting_is_its_name_in_capitals(name: str, expected: str) -> None:
    assert environment_variable(name) == expected


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.process)
def test_each_setting_has_a_variable_of_its_own_and_a_meaning(model: type[Settings]) -> None:
    known = keys(model)
    assert len({environment_variable(key.name) for key in known}) == len(known)
    assert all(key.meaning and "\n" not in key.meaning for key in known)


def test_server_config_without_file_is_read_from_the_environment() -> None:
    config = read_settings(
        ServerConfig, None, REQUIRED_VARIABLES | {"WALTZ_SERVER_TLS_ENABLED": "false"}
    )
    assert (config.zookeeper, config.session_timeout_ms) == ("zk:2181", 6000)
    assert (config.cluster_root, config.port) == ("/cluster", 0)
    assert not config.tls.enabled


def test_value_of_the_environment_replaces_that_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, {"server": {"port": 1, "minFetchSize": 7}})
    config = read_settings(ServerConfig, file, REQUIRED_VARIABLES | {"WALTZ_SERVER_PORT": "2"})
    assert config.port == 2
    assert config.partition.min_fetch == 7


def test_client_settings_come_from_file_and_environment(tmp_path: Path) -> None:
    file = write(tmp_path, {"client.maxConcurrentTransactions": 3, "cluster.root": "/a"})
    _, root, options = read_client_settings(file, REQUIRED_VARIABLES)
    assert (root, options.max_in_flight) == ("/cluster", 3)


def test_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.port": 1})
    assert (
        read_settings(ServerConfig, file, REQUIRED_VARIABLES | {"WALTZ_SERVER_PORT": ""}).port == 1
    )


def test_bad_variable_error_names_variable_and_setting() -> None:
    with pytest.raises(
        ConfigError, match=r"^\$WALTZ_SERVER_PORT: server.port is 'x': expected a whole"
    ):
        read_settings(ServerConfig, None, REQUIRED_VARIABLES | {"WALTZ_SERVER_PORT": "x"})


def test_missing_settings_without_file_are_named_by_their_variables() -> None:
    given_ = {k: v for k, v in REQUIRED_VARIABLES.items() if "ZOO" not in k}
    with pytest.raises(ConfigError) as caught:
        read_settings(ServerConfig, None, given_)
    assert str(caught.value) == (
        "without a settings file, $WALTZ_ZOOKEEPER_CONNECT_STRING, "
        "$WALTZ_ZOOKEEPER_SESSION_TIMEOUT must be set"
    )


def test_error_of_several_problems_has_the_first_and_their_number(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.port": "x", "server.prot": 1})
    with pytest.raises(ConfigError, match=r"\(and 2 more: waltz config explain server .*yml shows"):
        read_settings(ServerConfig, file, {})


def test_error_of_a_mistyped_required_setting_names_the_unknown_one_first(tmp_path: Path) -> None:
    values = {"server.prot": 1, "zookeeper.connectString": "zk:1", "zookeeper.sessionTimeout": 9}
    file = write(tmp_path, values)
    with pytest.raises(ConfigError, match=r"unknown setting server\.prot; did you mean"):
        read_settings(ServerConfig, file, {})


def test_setting_given_dotted_and_nested_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.port": 1, "server": {"port": 2}})
    with pytest.raises(ConfigError, match=r"config\.yml: server\.port is set twice$"):
        read_settings(ServerConfig, file, REQUIRED_VARIABLES)


@pytest.mark.parametrize(
    ("content", "twice"),
    [
        ("server.port: 1\nserver.port: 2\n", "server.port"),
        ("server:\n  port: 1\n  port: 2\n", "port"),
    ],
)
def test_key_written_twice_is_an_error(tmp_path: Path, content: str, twice: str) -> None:
    file = tmp_path / "config.yml"
    file.write_text(content)
    with pytest.raises(
        ConfigError, match=rf"config\.yml: {twice} is set twice, the second time in"
    ):
        read_settings(ServerConfig, file, REQUIRED_VARIABLES)


def test_yaml_merge_key_merges_a_map_into_another(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text("server.bind: &a {host: x}\nserver.advertised: {<<: *a, port: 5}\n")
    config = read_settings(ServerConfig, file, REQUIRED_VARIABLES)
    assert (config.bind_host, config.advertised_host, config.advertised_port) == ("x", "x", 5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("WALTZ_SERVER_PROT", "did you mean WALTZ_SERVER_PORT?"),
        ("WALTZ_CLUSTER_ROOOT", "did you mean WALTZ_CLUSTER_ROOT?"),
        ("WALTZ_SERVER_QQQ", "unknown setting"),
    ],
)
def test_variable_similar_to_a_setting_logs_a_warning(
    name: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        read_settings(ServerConfig, None, REQUIRED_VARIABLES | {name: "1"})
    assert f"${name} has no effect: " in caplog.text
    assert expected in caplog.text


@pytest.mark.parametrize("name", ["WALTZ_CLUSTER", "WALTZ_PROFILE"])
@pytest.mark.parametrize("model", [ServerConfig, StorageConfig])
def test_variable_of_the_command_line_is_ignored_by_a_process_with_one_warning(
    model: type[Settings], name: str
) -> None:
    variables = {"WALTZ_ZOOKEEPER": "zk:1", "WALTZ_ROOT": "/own", name: "cluster.json"}
    report = settings_report(model, None, variables)
    values = {each.key.name: each.value for each in report.settings}
    assert (values["zookeeper.connectString"], values["cluster.root"]) == ("zk:1", "/own")
    (warning,) = report.warnings
    assert warning.startswith(f"${name} has no effect: a {model.process} ignores it; to name")
    # The configuration file of a client names its cluster, and is the choice of the program.
    assert settings_report(ClientSettings, None, variables).warnings == ()


def test_variables_of_other_programs_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    others = {"WALTZ": "1", "WALTZ_STORAGE_TLS_CA": "x", "PATH": "/bin"}
    links = {
        "WALTZ_SERVER_SERVICE_HOST": "10.0.0.1",
        "WALTZ_SERVER_SERVICE_PORT_CLIENTS": "55180",
        "WALTZ_SERVER_PORT_55180_TCP_ADDR": "10.0.0.1",
    }
    read_settings(ServerConfig, None, REQUIRED_VARIABLES | others | links)
    assert not caplog.records


def test_kubernetes_service_address_is_not_read_as_a_port(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, {"server.port": 55180})
    linked = REQUIRED_VARIABLES | {"WALTZ_SERVER_PORT": "tcp://10.0.0.1:55180"}
    assert read_settings(ServerConfig, file, linked).port == 55180
    assert "enableServiceLinks: false" in caplog.text


def test_settings_report_has_the_origin_of_each_value(tmp_path: Path) -> None:
    file = write(tmp_path, {"server.minFetchSize": 7, "server.region": "x"})
    resolved = settings_report(ServerConfig, file, REQUIRED_VARIABLES)
    origins = {setting.key.name: setting.origin for setting in resolved.settings}
    assert origins["server.minFetchSize"] == str(file)
    assert origins["server.port"] == "$WALTZ_SERVER_PORT"
    assert origins["server.feedCacheSize"] == DEFAULT
    assert not resolved.problems
    assert len(resolved.warnings) == 1


_NAMES = ("a", "b.c", "b.dE", "f")


class Small(Settings):
    """A model with a few texts."""

    process = "x"
    a: Text = setting("a", "a text", "default")
    b_c: Text = setting("b.c", "a text", "default")
    b_de: Text = setting("b.dE", "a text", "default")
    f: Text = setting("f", "a text", "default")


_SOME = st.dictionaries(st.sampled_from(_NAMES), st.text("xyz", min_size=1, max_size=3))


@given(_SOME, _SOME)
def test_value_is_taken_from_environment_then_file_then_default(
    in_file: dict[str, str], in_environment: dict[str, str]
) -> None:
    environment = {environment_variable(name): value for name, value in in_environment.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write(yaml.safe_dump(in_file))
        file.flush()
        resolved = settings_report(Small, Path(file.name), environment)
    expected = dict.fromkeys(_NAMES, "default") | in_file | in_environment
    assert {each.key.name: each.value for each in resolved.settings} == expected
    config = resolved.config
    assert config is not None
    assert [config.a, config.b_c, config.b_de, config.f] == list(expected.values())
    assert not resolved.problems
    assert not resolved.warnings


@given(st.dictionaries(st.text("abWALTZ_.", max_size=9), st.text(max_size=5), max_size=5))
def test_settings_report_accepts_any_environment(environment: dict[str, str]) -> None:
    for model in MODELS:
        settings_report(model, None, environment)


# ---- TLS, and key stores of 0.13.2


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        ({"certificate": "/c"}, "server.tls.certificate and server.tls.key go together"),
        ({"key": "/k"}, "server.tls.certificate and server.tls.key go together"),
        ({"serverName": "x"}, "server.tls.serverName is verified only with server.tls.ca"),
    ],
)
def test_tls_settings_that_do_not_fit_together_are_named(
    tmp_path: Path, tls: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        read_settings(ServerConfig, write(tmp_path, {"server.tls": tls}), REQUIRED_VARIABLES)
    read_settings(
        ServerConfig, write(tmp_path, {"server.tls": tls | {"enabled": False}}), REQUIRED_VARIABLES
    )


def test_key_store_without_pem_file_is_an_error_with_the_conversion_commands(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, {"server.ssl.keyStore.location": "/etc/waltz/my server.jks"})
    with pytest.raises(ConfigError) as caught:
        read_settings(ServerConfig, file, REQUIRED_VARIABLES)
    expected = str(caught.value)
    assert "keytool -importkeystore -srckeystore '/etc/waltz/my server.jks'" in expected
    assert "openssl pkcs12 -in '/etc/waltz/my server.jks-converted.p12'" in expected
    assert expected.endswith("then set server.tls.certificate and server.tls.key")


def test_pkcs12_trust_store_is_converted_by_openssl_alone(tmp_path: Path) -> None:
    store = {"location": "/trust.p12", "type": "PKCS12", "password": "secret"}
    file = write(tmp_path, {"server.ssl.trustStore": store})
    with pytest.raises(ConfigError) as caught:
        read_settings(ServerConfig, file, REQUIRED_VARIABLES)
    expected = str(caught.value)
    assert "keytool" not in expected
    assert "-nokeys -out /trust.p12-ca.pem; then set server.tls.ca" in expected
    assert "secret" not in expected


def test_key_store_with_tls_off_is_only_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, {"server.ssl.keyStore.location": "/x", "server.tls.enabled": False})
    assert not read_settings(ServerConfig, file, REQUIRED_VARIABLES).tls.enabled
    assert "server.ssl.keyStore.location has no effect" in caplog.text


@pytest.mark.parametrize("model", [ServerConfig, StorageConfig, ClientSettings])
def test_shared_variables_name_the_cluster_unless_its_own_variables_do(
    model: type[Settings],
) -> None:
    shared = {"WALTZ_ZOOKEEPER": "zk:1", "WALTZ_ROOT": "/shared"}
    other = {
        "WALTZ_ZOOKEEPER_SESSION_TIMEOUT": "6000",
        "WALTZ_STORAGE_DIRECTORY": "/d",
        "WALTZ_CLUSTER_ROOT": "/own",
    }
    values = settings_report(model, None, shared | other)
    found = {each.key.name: each.value for each in values.settings}
    assert (found["zookeeper.connectString"], found["cluster.root"]) == ("zk:1", "/own")


def test_shared_variable_sets_the_access_of_clients_only() -> None:
    shared = {
        "WALTZ_ZOOKEEPER": "zk:1",
        "WALTZ_ROOT": "/r",
        "WALTZ_ACCESS": "outside",
        "WALTZ_ZOOKEEPER_SESSION_TIMEOUT": "6000",
    }
    assert read_settings(ClientSettings, None, shared).access == "outside"
    assert read_settings(
        ClientSettings, None, shared | {"WALTZ_CLIENT_ACCESS": "inside"}
    ).access == ("inside")
    assert read_client_settings(None, shared)[2].access == "outside"
    assert settings_report(ServerConfig, None, shared).warnings == ()
    with pytest.raises(ConfigError, match=r"\$WALTZ_ACCESS: client.access is 'away': expected one"):
        read_settings(ClientSettings, None, shared | {"WALTZ_ACCESS": "away"})
