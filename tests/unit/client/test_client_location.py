"""Test which cluster `waltz.connect` opens, from its arguments, the environment and files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import waltz
import waltz.sync
from waltz.client.core.errors import ClusterNotFound
from waltz.client.location import ClusterLocation, find_cluster
from waltz.metadata.core.paths import BadRoot
from waltz.net import PLAINTEXT, TlsConfig, TlsConfigError
from waltz.runtime.configuration import ConfigError
from waltz.runtime.profiles import AS_DECLARED, Profile, Profiles, profiles_file, write_profiles

TLS = TlsConfig()
VARIABLES = (
    "WALTZ_ZOOKEEPER",
    "WALTZ_ROOT",
    "WALTZ_CLUSTER",
    "WALTZ_PROFILE",
    "WALTZ_TLS",
    "WALTZ_ACCESS",
)


def described(path: Path, zookeeper: str = "127.0.0.1:7", *, tls: bool = False) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"zookeeper": zookeeper, "root": "/of-file", "tls": tls}))
    return path


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is empty; no variable names a cluster."""
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path


def test_addresses_and_root_are_used_without_the_environment() -> None:
    variables = {"WALTZ_ZOOKEEPER": "other:1", "WALTZ_ROOT": "/other", "WALTZ_TLS": "off"}
    assert find_cluster("zk:1", "/r", None, variables) == ClusterLocation("zk:1", "/r", None)


def test_root_has_a_default() -> None:
    assert find_cluster("zk:1", None, None, {}).root == "/waltz"


@pytest.mark.parametrize("as_text", [True, False])
def test_file_names_the_cluster_and_its_tls(directory: Path, as_text: bool) -> None:
    path = described(directory / "cluster.json")
    place = str(path) if as_text else path
    wanted = ClusterLocation("127.0.0.1:7", "/of-file", PLAINTEXT)
    assert find_cluster(place, None, None, {"WALTZ_ROOT": "/other"}) == wanted
    assert find_cluster(place, "/r", TLS, {}) == ClusterLocation("127.0.0.1:7", "/r", TLS)


def test_file_of_a_cluster_with_tls_turns_tls_on(directory: Path) -> None:
    assert find_cluster(described(directory / "a.json", tls=True), None, None, {}).tls == TLS


def test_environment_names_zookeeper_root_and_tls() -> None:
    variables = {"WALTZ_ZOOKEEPER": "zk:1", "WALTZ_ROOT": "/r", "WALTZ_TLS": "off"}
    assert find_cluster(None, None, None, variables) == ClusterLocation("zk:1", "/r", PLAINTEXT)
    assert find_cluster(None, "/s", TLS, variables) == ClusterLocation("zk:1", "/s", TLS)
    assert find_cluster(None, None, None, {"WALTZ_ZOOKEEPER": "zk:1"}).tls is None


def test_environment_names_a_file_whose_values_other_variables_override(directory: Path) -> None:
    variables = {"WALTZ_CLUSTER": str(described(directory / "a.json")), "WALTZ_ROOT": "/r"}
    wanted = ClusterLocation("127.0.0.1:7", "/r", PLAINTEXT)
    assert find_cluster(None, None, None, variables) == wanted
    variables |= {"WALTZ_ZOOKEEPER": "zk:1", "WALTZ_TLS": "on"}
    assert find_cluster(None, None, None, variables) == ClusterLocation("zk:1", "/r", TLS)


def test_local_cluster_is_found_in_the_working_directory(directory: Path) -> None:
    described(directory / "waltz-local/cluster.json")
    assert find_cluster(None, None, None, {}).zookeeper == "127.0.0.1:7"
    assert find_cluster(None, None, None, {"WALTZ_ZOOKEEPER": "zk:1"}).zookeeper == "zk:1"


def test_tls_file_of_the_environment_is_read(directory: Path) -> None:
    (directory / "tls.yml").write_text("serverName: waltz\n")
    variables = {"WALTZ_ZOOKEEPER": "zk:1", "WALTZ_TLS": "tls.yml"}
    assert find_cluster(None, None, None, variables).tls == TlsConfig(server_name="waltz")
    with pytest.raises(ConfigError, match="missing"):
        find_cluster(None, None, None, variables | {"WALTZ_TLS": "missing.yml"})


def test_cluster_that_is_not_named_is_an_error_with_the_remedies() -> None:
    with pytest.raises(ClusterNotFound, match=r"WALTZ_CLUSTER or WALTZ_PROFILE, or start"):
        find_cluster(None, None, None, {})


def test_file_that_is_missing_is_an_error() -> None:
    with pytest.raises(ClusterNotFound, match=r"cannot read cluster.json: No such file"):
        find_cluster("cluster.json", None, None, {})


def test_connect_refuses_the_settings_file_meant_for_the_command_line() -> None:
    with pytest.raises(ClusterNotFound, match="open the client with connect_as_configured"):
        find_cluster(None, None, None, {"WALTZ_CLUSTER": "cli.yml"})


@pytest.mark.parametrize("named", ["zookeeper", "file", "profile"])
def test_access_is_that_of_the_argument_then_of_the_environment(
    directory: Path, named: str
) -> None:
    profiles = Profiles().add("away", Profile("zk:1", "/r", "on", "outside"))
    variables = {"XDG_CONFIG_HOME": str(directory / "config")}
    write_profiles(profiles_file(variables), profiles)
    variables |= {
        "zookeeper": {"WALTZ_ZOOKEEPER": "zk:1"},
        "file": {"WALTZ_CLUSTER": str(described(directory / "a.json"))},
        "profile": {"WALTZ_PROFILE": "away"},
    }[named]
    default = "outside" if named == "profile" else "inside"
    assert find_cluster(None, None, None, variables).access == default
    for access in ("inside", "outside"):
        given = variables | {"WALTZ_ACCESS": access.upper()}
        assert find_cluster(None, None, None, given).access == access
        assert find_cluster(None, None, None, given, access="inside").access == "inside"
        assert find_cluster("zk:1", None, None, given).access == "inside"


def test_access_that_is_unknown_is_an_error_with_the_choices() -> None:
    variables = {"WALTZ_ZOOKEEPER": "zk:1", "WALTZ_ACCESS": "away"}
    with pytest.raises(
        ClusterNotFound, match=r"^WALTZ_ACCESS is 'away': it must be inside or outside$"
    ):
        find_cluster(None, None, None, variables)


async def test_connect_without_arguments_opens_the_cluster_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ClusterNotFound, match="no cluster is named"):
        await waltz.connect()
    monkeypatch.setenv("WALTZ_ZOOKEEPER", "127.0.0.1:1")
    with pytest.raises(waltz.ClusterUnreachable, match=r"127\.0\.0\.1:1"):
        await waltz.connect(connect_timeout=0.1)


async def test_root_that_is_no_path_is_refused_before_zookeeper_is_needed() -> None:
    async with asyncio.timeout(10):
        with pytest.raises(BadRoot, match="'waltz' must be an absolute path"):
            await waltz.connect("127.0.0.1:1", root="waltz", connect_timeout=60)


async def test_connect_with_a_file_opens_its_cluster(directory: Path) -> None:
    path = described(directory / "cluster.json", "127.0.0.1:1")
    with pytest.raises(waltz.ClusterUnreachable, match=r"127\.0\.0\.1:1"):
        await waltz.connect(str(path), connect_timeout=0.1)
    with pytest.raises(waltz.ClusterUnreachable):
        waltz.sync.connect(path, connect_timeout=0.1)


PROFILES = (
    Profiles().add("staging", Profile("zk:9", "/s", "off")).add("other", Profile("o:1", "/o", "on"))
)


def with_profiles(directory: Path, used: str | None) -> dict[str, str]:
    """Return an environment whose user has `PROFILES`."""
    variables = {"XDG_CONFIG_HOME": str(directory / "config")}
    write_profiles(profiles_file(variables), PROFILES.use(used))
    return variables


def test_profile_in_use_names_the_cluster_unless_there_is_a_local_one(directory: Path) -> None:
    variables = with_profiles(directory, "staging")
    assert find_cluster(None, None, None, variables) == ClusterLocation("zk:9", "/s", PLAINTEXT)
    assert find_cluster("zk:1", None, None, variables).zookeeper == "zk:1"
    described(directory / "waltz-local" / "cluster.json")
    assert find_cluster(None, None, None, variables).zookeeper == "127.0.0.1:7"


def test_profile_of_the_environment_overrides_the_local_cluster(directory: Path) -> None:
    described(directory / "waltz-local" / "cluster.json")
    variables = with_profiles(directory, "staging") | {"WALTZ_PROFILE": "other"}
    assert find_cluster(None, None, None, variables) == ClusterLocation("o:1", "/o", TLS)
    assert find_cluster(None, "/r", PLAINTEXT, variables) == ClusterLocation("o:1", "/r", PLAINTEXT)
    assert find_cluster(None, None, None, variables | {"WALTZ_ZOOKEEPER": "z:3"}).root == "/o"


def test_profile_that_does_not_exist_is_an_error_with_the_others(directory: Path) -> None:
    variables = with_profiles(directory, None) | {"WALTZ_PROFILE": "prod"}
    with pytest.raises(
        ClusterNotFound, match="no profile 'prod'; the profiles are: other, staging"
    ):
        find_cluster(None, None, None, variables)
    with pytest.raises(ClusterNotFound, match="no cluster is named"):
        find_cluster(None, None, None, with_profiles(directory, None))


def test_profile_as_declared_names_no_tls_and_is_overridden(directory: Path) -> None:
    variables = {"XDG_CONFIG_HOME": str(directory / "config"), "WALTZ_PROFILE": "plain"}
    profiles = Profiles().add("plain", Profile("zk:9", "/s", AS_DECLARED))
    write_profiles(profiles_file(variables), profiles)
    assert find_cluster(None, None, None, variables) == ClusterLocation("zk:9", "/s", None)
    assert find_cluster(None, None, None, variables | {"WALTZ_TLS": "off"}).tls == PLAINTEXT
    assert find_cluster(None, None, TLS, variables | {"WALTZ_TLS": "off"}).tls == TLS


def assert_is_alone(error: BaseException) -> None:
    """Check that the traceback of ``error`` shows no other error: its own text has the cause."""
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    ("arguments", "variables", "kind"),
    [
        ({}, {}, ClusterNotFound),
        ({"zookeeper": "missing.json"}, {}, ClusterNotFound),
        ({}, {"WALTZ_PROFILE": "missing"}, ClusterNotFound),
        ({"zookeeper": "127.0.0.1:1"}, {}, waltz.ClusterUnreachable),
        ({"zookeeper": "127.0.0.1:port"}, {}, waltz.ClusterUnreachable),
        (
            {
                "zookeeper": "127.0.0.1:1",
                "zookeeper_access": waltz.ZooKeeperAccess(credentials=Path("missing")),
            },
            {},
            waltz.ClusterUnreachable,
        ),
        ({"zookeeper": "127.0.0.1:1", "tls": TlsConfig(ca=Path("missing"))}, {}, TlsConfigError),
        ({}, {"WALTZ_ZOOKEEPER": "127.0.0.1:1", "WALTZ_TLS": "missing.yml"}, ConfigError),
        ({}, {"WALTZ_ZOOKEEPER": "127.0.0.1:1", "WALTZ_TLS": "invalid.yml"}, ConfigError),
        ({}, {"WALTZ_ZOOKEEPER": "127.0.0.1:1", "WALTZ_TLS": "twice.yml"}, ConfigError),
    ],
)
async def test_error_of_connect_is_raised_without_its_causes(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    variables: dict[str, str],
    kind: type[Exception],
) -> None:
    (directory / "invalid.yml").write_text("ca: [\n")
    (directory / "twice.yml").write_text("a: {b: 1}\na.b: 2\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(kind) as caught:
        await waltz.connect(**arguments, connect_timeout=0.1)
    assert_is_alone(caught.value)
