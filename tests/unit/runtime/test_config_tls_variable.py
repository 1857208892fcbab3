"""Test that WALTZ_TLS sets the TLS of processes, and its precedence among the other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from waltz.cli.settings import CliSettings
from waltz.client.settings import ClientSettings, read_client_settings
from waltz.runtime.configuration import ConfigError, Settings, read_settings, settings_report
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig

PROCESSES = pytest.mark.parametrize(
    "model", [ServerConfig, StorageConfig, ClientSettings], ids=lambda model: model.process
)
VARIABLES = {
    "WALTZ_ZOOKEEPER": "zk:1",
    "WALTZ_ZOOKEEPER_SESSION_TIMEOUT": "6000",
    "WALTZ_SERVER_PORT": "0",
    "WALTZ_STORAGE_PORT": "0",
    "WALTZ_STORAGE_ADMIN_PORT": "0",
    "WALTZ_STORAGE_DIRECTORY": "/d",
}
PEM = {"certificate": "/own.pem", "key": "/own.key", "ca": "/own-ca.pem"}


def write(tmp_path: Path, values: Any, name: str = "tls.yml") -> str:
    file = tmp_path / name
    file.write_text(yaml.safe_dump(values))
    return str(file)


def tls(model: type[Settings], environment: dict[str, str], file: str | None = None) -> Any:
    """Return the TLS settings of a process."""
    path = None if file is None else Path(file)
    settings: Any = read_settings(model, path, VARIABLES | environment)
    return settings.tls_settings


def server_tls(environment: dict[str, str], file: str | None = None) -> Any:
    return tls(ServerConfig, environment, file)


@PROCESSES
def test_tls_variable_switches_tls_of_each_process(model: type[Settings]) -> None:
    assert tls(model, {}).enabled
    assert not tls(model, {"WALTZ_TLS": "off"}).enabled
    assert not tls(model, {"WALTZ_TLS": "OFF"}).enabled
    assert tls(model, {"WALTZ_TLS": "on"}).enabled
    assert tls(model, {"WALTZ_TLS": ""}).enabled


@PROCESSES
def test_tls_variable_with_file_sets_pem_files_of_each_process(
    model: type[Settings], tmp_path: Path
) -> None:
    found = tls(model, {"WALTZ_TLS": write(tmp_path, {**PEM, "serverName": "waltz"})})
    assert found.enabled
    assert (found.certificate, found.key) == (Path("/own.pem"), Path("/own.key"))
    assert (found.ca, found.server_name) == (Path("/own-ca.pem"), "waltz")


def test_tls_variable_overrides_the_settings_file(tmp_path: Path) -> None:
    own = write(tmp_path, {"server.tls": {"enabled": False, "ca": "/a"}}, "server.yml")
    assert not server_tls({}, own).enabled
    assert server_tls({"WALTZ_TLS": "on"}, own).enabled
    found = server_tls({"WALTZ_TLS": write(tmp_path, {"ca": "/b"})}, own)
    assert (found.enabled, found.ca) == (True, Path("/b"))


def test_tls_variable_keeps_settings_that_it_does_not_set(tmp_path: Path) -> None:
    own = write(tmp_path, {"server.tls": PEM}, "server.yml")
    assert server_tls({"WALTZ_TLS": "on"}, own).ca == Path("/own-ca.pem")
    found = server_tls({"WALTZ_TLS": write(tmp_path, {"verifyServerName": False})}, own)
    assert (found.ca, found.verify_server_name) == (Path("/own-ca.pem"), False)


def test_variable_of_a_setting_overrides_the_tls_variable(tmp_path: Path) -> None:
    file = {"WALTZ_TLS": write(tmp_path, PEM)}
    assert server_tls(file | {"WALTZ_SERVER_TLS_CA": "/c"}).ca == Path("/c")
    assert not server_tls(file | {"WALTZ_SERVER_TLS_ENABLED": "false"}).enabled
    assert server_tls({"WALTZ_TLS": "off", "WALTZ_SERVER_TLS_ENABLED": "true"}).enabled


def test_file_of_tls_variable_can_switch_tls_off(tmp_path: Path) -> None:
    assert not server_tls({"WALTZ_TLS": write(tmp_path, {"enabled": False})}).enabled


def test_tls_variable_does_not_change_tls_to_zookeeper(tmp_path: Path) -> None:
    environment = VARIABLES | {"WALTZ_TLS": write(tmp_path, PEM)}
    access = read_settings(ServerConfig, None, environment).zookeeper_access
    assert access == read_settings(ServerConfig, None, VARIABLES).zookeeper_access


def test_client_options_have_the_tls_of_the_variable() -> None:
    _, _, options = read_client_settings(None, VARIABLES | {"WALTZ_TLS": "off"})
    assert options.tls is not None
    assert not options.tls.enabled


def test_settings_of_the_command_line_leave_the_variable_to_its_option() -> None:
    report = settings_report(CliSettings, None, VARIABLES | {"WALTZ_TLS": "missing.yml"})
    assert not report.problems


@pytest.mark.parametrize("value", ["missing.yml", "true", "/"])
def test_unusable_tls_variable_error_says_what_it_must_be(value: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"^\$WALTZ_TLS must be on, off or a file: cannot read {value}: "
    ):
        server_tls({"WALTZ_TLS": value})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"certificat": "/c"}, "unknown setting server.tls.certificat; did you mean server.tls.c"),
        ({"enabled": "perhaps"}, "server.tls.enabled is 'perhaps': expected true or false"),
        ({"ca": None}, "server.tls.ca is None: "),
        ({"server.tls.ca": "/c"}, "unknown setting server.tls.server.tls.ca"),
    ],
)
def test_unusable_content_of_tls_file_names_file_and_variable(
    tmp_path: Path, content: dict[str, Any], expected: str
) -> None:
    file = write(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        server_tls({"WALTZ_TLS": file})
    assert str(caught.value).startswith(f"{file} of $WALTZ_TLS: {expected}")


def test_tls_file_that_is_no_map_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^\$WALTZ_TLS must be on, off or a file: .* YAML map"):
        server_tls({"WALTZ_TLS": write(tmp_path, ["ca"])})


def test_pem_files_of_tls_variable_must_fit_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.tls\.certificate and server\.tls\.key go"):
        server_tls({"WALTZ_TLS": write(tmp_path, {"certificate": "/c"})})


def test_settings_report_has_variable_as_origin_and_reports_it_as_a_problem(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, {"ca": "/c"})
    report = settings_report(StorageConfig, None, VARIABLES | {"WALTZ_TLS": file})
    origins = {each.key.name: each.origin for each in report.settings}
    assert origins["storage.tls.ca"] == f"{file} of $WALTZ_TLS"
    report = settings_report(StorageConfig, None, VARIABLES | {"WALTZ_TLS": "on"})
    origins = {each.key.name: each.origin for each in report.settings}
    assert origins["storage.tls.enabled"] == "$WALTZ_TLS"
    report = settings_report(StorageConfig, None, {"WALTZ_TLS": "missing.yml"})
    assert [problem.split(" must")[0] for problem in report.problems] == [
        "$WALTZ_TLS",
        "without a settings file, $WALTZ_ZOOKEEPER_CONNECT_STRING, "
        "$WALTZ_ZOOKEEPER_SESSION_TIMEOUT, $WALTZ_STORAGE_PORT, $WALTZ_STORAGE_ADMIN_PORT, "
        "$WALTZ_STORAGE_DIRECTORY",
    ]
