"""Test the settings of connections to ZooKeeper: TLS and authentication."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from waltz.cli.settings import CliSettings
from waltz.client.settings import ClientSettings, read_client_settings
from waltz.metadata.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from waltz.net.tls import TlsConfig
from waltz.runtime.configuration import ConfigError, Settings, ZooKeeperSettings, read_settings
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig

REQUIRED = {
    "zookeeper.connectString": "zk:2281",
    "zookeeper.sessionTimeout": 6000,
    "cluster.root": "/cluster",
    "server.port": 55180,
    "storage.port": 55280,
    "storage.admin.port": 55281,
    "storage.directory": "/data",
}
TLS = {
    "zookeeper.tls.enabled": True,
    "zookeeper.tls.certificate": "/c.pem",
    "zookeeper.tls.key": "/c.key",
    "zookeeper.tls.ca": "/ca.pem",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yml"


def write(file: Path, model: type[Settings], values: dict[str, object]) -> Path:
    """Write the settings that ``model`` requires, and ``values``."""
    known = {field.validation_alias for field in model.model_fields.values()}
    required = {name: value for name, value in REQUIRED.items() if name in known}
    file.write_text(yaml.safe_dump(required | values))
    return file


@pytest.mark.parametrize("model", [ServerConfig, StorageConfig, ClientSettings, CliSettings])
def test_zookeeper_settings_of_each_process_make_its_access(
    file: Path, model: type[ZooKeeperSettings]
) -> None:
    values = TLS | {"zookeeper.tls.serverName": "zk", "zookeeper.authentication.file": "/user"}
    tls = TlsConfig(
        certificate=Path("/c.pem"), key=Path("/c.key"), ca=Path("/ca.pem"), server_name="zk"
    )
    access = read_settings(model, write(file, model, values), {}).zookeeper_access
    assert access == ZooKeeperAccess(tls, Path("/user"))


@pytest.mark.parametrize("model", [ServerConfig, StorageConfig, ClientSettings, CliSettings])
def test_access_to_zookeeper_is_open_by_default(file: Path, model: type[ZooKeeperSettings]) -> None:
    assert read_settings(model, write(file, model, {}), {}).zookeeper_access == OPEN_ACCESS


def test_client_options_have_the_access_to_zookeeper(file: Path) -> None:
    values = TLS | {"zookeeper.authentication.certificate": True}
    _, _, options = read_client_settings(write(file, ClientSettings, values), {})
    assert options.zookeeper_access.by_certificate
    assert options.zookeeper_access.tls.ca == Path("/ca.pem")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"zookeeper.tls.ca": "/ca.pem"}, r"no effect without zookeeper\.tls\.enabled"),
        (
            TLS | {"zookeeper.tls.key": None},
            "must not be empty",
        ),
        (
            {name: value for name, value in TLS.items() if not name.endswith("key")},
            r"zookeeper\.tls\.certificate and zookeeper\.tls\.key go together",
        ),
        (
            {"zookeeper.tls.enabled": True, "zookeeper.tls.serverName": "zk"},
            r"zookeeper\.tls\.serverName is verified only with zookeeper\.tls\.ca",
        ),
        (
            TLS
            | {
                "zookeeper.authentication.file": "/user",
                "zookeeper.authentication.certificate": True,
            },
            "exclude each other: set one",
        ),
        ({"zookeeper.authentication.file": "/user"}, "so that only ZooKeeper receives it"),
        (
            {"zookeeper.tls.enabled": True, "zookeeper.authentication.file": "/user"},
            "so that only ZooKeeper receives it",
        ),
        (
            {"zookeeper.tls.enabled": True, "zookeeper.authentication.certificate": True},
            r"needs zookeeper\.tls\.enabled and zookeeper\.tls\.certificate",
        ),
    ],
)
def test_zookeeper_settings_that_do_not_fit_together_are_named(
    file: Path, values: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_settings(ServerConfig, write(file, ServerConfig, values), {})
