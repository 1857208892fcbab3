"""TLS and credentials for an external ZooKeeper: in the pods, and for the operator itself."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.operator_faults import Faults, FaultyKube
from tests.support.operator_world import World, cluster_resource, pool_resource
from waltz.metadata import ZooKeeperAccess
from waltz.runtime.configuration import Settings, settings_report
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.objects import Manifest, ObjectKey, server_deployment, storage_set
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.shell.environment import NetworkEnvironment, SecretUnusable
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig

ADDRESS = {"connectString": "127.0.0.1:1"}
TLS = {"secretName": "zk-tls"}
PASSWORD = {"secretName": "zk-user"}
ANY = base64.b64encode(b"any").decode()


def resource(**external: Any) -> dict[str, Any]:
    return cluster_resource(
        pools=["a"], zookeeper={"external": {**ADDRESS, **external}}, tls={"mode": "None"}
    )


def workloads(**external: Any) -> tuple[Manifest, Manifest]:
    """Return the Deployment of the servers and the StatefulSet of a pool."""
    cluster = WaltzCluster.model_validate(resource(**external))
    pool = StoragePool.model_validate(pool_resource("a"))
    return server_deployment(cluster), storage_set(cluster, pool, 1)


def environment_of(workload: Manifest) -> dict[str, str]:
    (container,) = workload.body["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value", "10.0.0.1") for each in container["env"]}


def secrets_of(workload: Manifest) -> dict[str, str]:
    """Return the folders at which a pod mounts secrets, each with the name of the secret."""
    pod = workload.body["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    folders = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    return {
        folders[each["name"]]: each["secret"]["secretName"]
        for each in pod["volumes"]
        if "secret" in each
    }


# ---- pods


def test_pods_of_a_plaintext_zookeeper_mount_no_secret() -> None:
    for workload in workloads():
        assert secrets_of(workload) == {}
        assert not any("TLS_CA" in name for name in environment_of(workload))


def test_servers_get_tls_and_credentials_and_storages_only_tls() -> None:
    server, storage = workloads(tls=TLS, authentication=PASSWORD)
    assert secrets_of(storage) == {"/etc/waltz/zookeeper-tls": "zk-tls"}
    assert secrets_of(server) == {
        "/etc/waltz/zookeeper-tls": "zk-tls",
        "/etc/waltz/zookeeper-credentials": "zk-user",
    }


@pytest.mark.parametrize(
    ("external", "expected"),
    [
        ({"tls": TLS}, (None, False)),
        (
            {"tls": TLS, "authentication": PASSWORD},
            (Path("/etc/waltz/zookeeper-credentials/credentials"), False),
        ),
        ({"tls": TLS, "authentication": {"certificate": True}}, (None, True)),
    ],
)
def test_server_reads_its_access_from_the_settings(
    external: dict[str, Any], expected: tuple[Path | None, bool]
) -> None:
    server, _ = workloads(**external)
    access = read_access(server, ServerConfig)
    assert access.tls.enabled
    assert access.tls.ca == Path("/etc/waltz/zookeeper-tls/ca.crt")
    assert access.tls.certificate == Path("/etc/waltz/zookeeper-tls/tls.crt")
    assert access.tls.key == Path("/etc/waltz/zookeeper-tls/tls.key")
    assert (access.credentials, access.by_certificate) == expected


def test_storage_has_no_identity_and_verifies_the_given_name() -> None:
    tls = {"secretName": "zk-tls", "clientCertificate": False, "serverName": "zk.example"}
    _, storage = workloads(tls=tls, authentication=PASSWORD)
    access = read_access(storage, StorageConfig)
    assert access.tls.server_name == "zk.example"
    assert access.tls.certificate is None
    assert access.credentials is None
    assert not access.by_certificate


def read_access(workload: Manifest, model: type[Settings]) -> ZooKeeperAccess:
    resolved: Any = settings_report(model, None, environment_of(workload))
    assert resolved.problems == ()
    assert resolved.warnings == ()
    access: ZooKeeperAccess = resolved.config.zookeeper_access
    return access


# ---- the resource


@pytest.mark.parametrize(
    "external",
    [
        {"authentication": PASSWORD},
        {
            "tls": {"secretName": "zk-tls", "clientCertificate": False},
            "authentication": {"certificate": True},
        },
    ],
)
def test_authentication_that_tls_cannot_protect_is_refused(external: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="authentication"):
        WaltzCluster.model_validate(resource(**external))


# ---- the operator


def world_with(secrets: dict[str, dict[str, str]], **external: Any) -> tuple[World, DesiredCluster]:
    world = World(resource(**external), [])
    for name, data in secrets.items():
        world.objects[ObjectKey("Secret", name)] = {"metadata": {"name": name}, "data": data}
    return world, world.desired()


async def read_by_operator(
    folder: Path, secrets: dict[str, dict[str, str]], **external: Any
) -> ZooKeeperAccess:
    world, desired = world_with(secrets, **external)
    environment = NetworkEnvironment(FaultyKube(world, Faults()), folder)
    return await environment._read_zookeeper_access(
        desired, desired.cluster.spec.zookeeper.external
    )


async def test_operator_without_tls_connects_in_plaintext(tmp_path: Path) -> None:
    access = await read_by_operator(tmp_path, {})
    assert not access.tls.enabled


async def test_operator_uses_the_secrets_of_the_cluster(tmp_path: Path) -> None:
    user = base64.b64encode(b"waltz:secret").decode()
    access = await read_by_operator(
        tmp_path,
        {
            "zk-tls": {"ca.crt": ANY, "tls.crt": ANY, "tls.key": ANY},
            "zk-user": {"credentials": user},
        },
        tls=TLS,
        authentication=PASSWORD,
    )
    assert access.tls.ca is not None
    assert access.tls.ca.read_bytes() == b"any"
    assert access.credentials is not None
    assert access.credentials.read_bytes() == b"waltz:secret"
    assert access.credentials.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        ({}, "the secret zk-tls, which spec.zookeeper.external names, does not exist"),
        ({"zk-tls": {"ca.crt": ANY}}, "the secret zk-tls, .* lacks tls.crt, tls.key: create it"),
    ],
)
async def test_missing_secret_is_an_error_that_names_it(
    tmp_path: Path, secrets: dict[str, dict[str, str]], text: str
) -> None:
    with pytest.raises(SecretUnusable, match=text):
        await read_by_operator(tmp_path, secrets, tls=TLS)


async def test_malformed_certificates_are_an_error_that_names_the_field(tmp_path: Path) -> None:
    secrets = {"zk-tls": {"ca.crt": ANY, "tls.crt": ANY, "tls.key": ANY}}
    world, desired = world_with(secrets, tls=TLS)
    environment = NetworkEnvironment(FaultyKube(world, Faults()), tmp_path)
    with pytest.raises(SecretUnusable, match=r"zookeeper\.external\.tls cannot be used"):
        await environment.metadata_store(desired)
