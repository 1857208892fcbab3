"""``waltz config explain``: the value, the origin and the problem of every setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from waltz.cli.cluster_options import Target, named_cluster
from waltz.cli.config.commands import Process, _settings_class, app
from waltz.cli.settings import read_cli_settings
from waltz.client.settings import read_client_settings
from waltz.metadata.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from waltz.net import TlsConfig
from waltz.runtime.configuration import ConfigError, keys


def explain(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(app, ["explain", *arguments], env=variables)


def as_json(*arguments: str, **variables: str) -> Any:
    return json.loads(explain(*arguments, "-o", "json", **variables).stdout)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.yml"
    path.write_text(
        "zookeeper: {connectString: 'zk:2181', sessionTimeout: 6000}\ncluster.root: /x\n"
        "server: {port: 1, region: eu, tls.ca: /ca.pem}\n"
    )
    return path


@pytest.mark.parametrize("process", list(Process))
def test_explain_without_file_shows_every_setting(process: Process) -> None:
    ended = explain(process.value)
    assert ended.exit_code == 0, ended.output
    for key in keys(_settings_class(process)):
        line = next(line for line in ended.stdout.splitlines() if line.split()[:1] == [key.name])
        assert key.meaning in line
        assert key.kind in line
        assert ("must be set" in line) == key.required


def test_explain_shows_the_origin_of_every_value(file: Path) -> None:
    found = as_json("server", str(file), WALTZ_SERVER_PORT="2")
    settings = {setting["name"]: setting for setting in found["settings"]}
    assert settings["server.port"] == {
        "name": "server.port",
        "value": 2,
        "origin": "$WALTZ_SERVER_PORT",
        "type": "port",
        "required": True,
        "default": None,
        "variable": "WALTZ_SERVER_PORT",
        "meaning": "port for clients; 0 takes a free one",
    }
    assert (settings["cluster.root"]["value"], settings["cluster.root"]["origin"]) == (
        "/x",
        str(file),
    )
    assert settings["server.tls.ca"]["value"] == "/ca.pem"
    assert settings["server.minFetchSize"]["origin"] == "default"
    assert found["problems"] == []
    assert found["warnings"] == [f"{file}: server.region has no effect: no server uses the region"]


def test_explain_as_yaml_equals_json(file: Path) -> None:
    assert yaml.safe_load(explain("server", str(file), "-o", "yaml").stdout) == as_json(
        "server", str(file)
    )


def test_explain_shows_all_problems_at_once(file: Path) -> None:
    file.write_text("server.port: many\nserver.prot: 1\n")
    ended = explain("server", str(file))
    assert ended.exit_code == 1
    for problem in (
        "server.port is 'many': expected a whole number",
        "unknown setting server.prot; did you mean server.port?",
        "zookeeper.connectString, zookeeper.sessionTimeout must be set",
    ):
        assert problem in ended.stdout


def test_explain_of_unreadable_file_is_an_error_of_one_line(tmp_path: Path) -> None:
    ended = explain("server", str(tmp_path / "none.yml"))
    assert ended.exit_code == 1
    assert (
        ended.stderr == f"waltz: cannot read {tmp_path / 'none.yml'}: No such file or directory\n"
    )


# ---- the file of the tools of 0.13.2


def test_cluster_option_accepts_the_settings_file_of_0_13_2(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cli.yml"
    path.write_text(
        "zookeeper.connectString: zk:2181\nzookeeper.connectTimeout: 10000\ncluster.root: /c\n"
        "tls: {serverName: waltz, certificate: /c.pem, key: /c.key, ca: /ca.pem}\n"
        "ssl.keyStore.location: /x.jks\n"
    )
    expected = TlsConfig(
        certificate=Path("/c.pem"), key=Path("/c.key"), ca=Path("/ca.pem"), server_name="waltz"
    )
    assert named_cluster(None, None, path, None) == Target("zk:2181", "/c", expected)
    assert named_cluster("other:1", "/d", path, "on") == Target("other:1", "/d", TlsConfig())
    assert read_cli_settings(path, {"WALTZ_CLUSTER_ROOT": "/e"}).root == "/e"
    assert "ssl.keyStore.location has no effect" in caplog.text
    path.write_text("zookeeper.connectString: zk:2181\nssl.trustStore.location: /x.jks\n")
    with pytest.raises(ConfigError, match=r"openssl pkcs12 .*; then set tls\.ca$"):
        read_cli_settings(path, {})


SHARED_FILE = (
    "zookeeper: {connectString: 'zk:2181', sessionTimeout: 6000, connectTimeout: 10000}\n"
    "cluster.root: /c\nssl.keyStore.type: JKS\n"
    "client: {autoMount: true, numTransactionRetryThreads: 1, numConsumerThreads: 10, "
    "longWaitThreshold: 5000, maxConcurrentTransactions: 5, ssl.keyStore.type: JKS}\n"
)
"""A file of all tools of 0.13.2: two read it as clients (spec/behaviour.md section 14)."""


def test_file_that_the_tools_of_0_13_2_share_is_accepted_by_verbs_and_clients(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cli.yml"
    path.write_text(SHARED_FILE)
    assert read_cli_settings(path, {}).root == "/c"
    assert read_client_settings(path, {})[1] == "/c"


def test_key_store_of_clients_in_the_file_of_the_tools_is_an_error_of_verbs(tmp_path: Path) -> None:
    """With 0.13.2, client-cli trusts only the servers in this store."""
    path = tmp_path / "cli.yml"
    path.write_text(f"{SHARED_FILE}client.ssl.trustStore.location: /x.jks\n")
    with pytest.raises(ConfigError, match=r"^.*client\.ssl\.trustStore.*; then set tls\.ca$"):
        read_cli_settings(path, {})


def test_cluster_option_has_the_access_to_zookeeper_of_the_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "cli.yml"
    path.write_text(
        "zookeeper: {connectString: zk:2281, tls: {enabled: true, ca: /zk.pem}}\n"
        "zookeeper.authentication.file: /user\n"
    )
    expected = ZooKeeperAccess(TlsConfig(ca=Path("/zk.pem")), Path("/user"))
    assert named_cluster(None, None, path, None).zookeeper_access == expected
    assert named_cluster("zk:2181", None, None, None).zookeeper_access == OPEN_ACCESS


def test_variables_of_cli_options_are_no_unknown_settings(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("zookeeper.connectString: zk:2181\n")
    options = {"WALTZ_TLS": "off", "WALTZ_CLUSTER": "x", "WALTZ_ZOOKEEPER": "y", "WALTZ_ROOT": "/"}
    assert read_cli_settings(file, options).zookeeper == "y"
    assert not caplog.records
