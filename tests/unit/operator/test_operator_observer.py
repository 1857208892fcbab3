"""Observations of one cluster: of malformed secrets and znodes, and without confidential data."""

from __future__ import annotations

import base64
import datetime
import uuid
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.operator_faults import FakeEnvironment, Faults, FaultyKube, StoredZnodes
from tests.support.operator_world import World, cluster_resource, pool_resource
from waltz.admin.core.steps import CreateReplicas
from waltz.metadata import MetadataStore, create_cluster
from waltz.metadata.access import change_access_rules
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.access_rules import Grant, Right
from waltz.metadata.core.formats import encode_id
from waltz.metadata.core.server_transport import Transport
from waltz.metadata.transport import declare_transport
from waltz.testing import run
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import CLUSTER_LABEL, Component, labels
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import (
    ClusterIncomplete,
    ClusterMalformed,
    ClusterPresent,
    ObservedCluster,
)
from waltz_operator.core.steps import IssueCertificates
from waltz_operator.shell.environment import Environment, NetworkEnvironment
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.fencing import LeaderEnvironment
from waltz_operator.shell.kube_api import Kube
from waltz_operator.shell.observer import observe, observe_metadata, read_metadata

_STORAGE = "a-0.a:6101"
_JUNK = base64.b64encode(b"junk").decode()
_SECRETS = [
    pytest.param({"ca.crt": _JUNK, "tls.crt": _JUNK, "tls.key": _JUNK}, id="malformed"),
    pytest.param({"tls.crt": _JUNK}, id="incomplete"),
    pytest.param(None, id="empty"),
]


def world_with_secret(name: str, data: dict[str, str] | None) -> World:
    world = World(cluster_resource(pools=["a"], tls={"mode": "Operator"}), [])
    world.objects[ObjectKey("Secret", name)] = {"metadata": {"name": name}, "data": data}
    return world


@pytest.mark.parametrize("data", _SECRETS)
def test_storages_of_a_cluster_with_an_unusable_tls_secret_are_observed_as_unreachable(
    tmp_path: Path, data: dict[str, str] | None
) -> None:
    world = world_with_secret("log-tls", data)
    desired = world.desired()
    environment = NetworkEnvironment(FaultyKube(world, Faults()), tmp_path)

    async def observe() -> ClusterPresent:
        store = MemoryZooKeeper().connect()
        await create_cluster(store, desired.root, desired.metadata_name, 1, key=uuid.uuid4())
        cluster = Cluster(store, desired.root)
        await cluster.add_storage_node(_STORAGE, 0, 6102)
        await cluster.assign_partitions(_STORAGE, (0,))
        found = await read_metadata(store, desired, environment)
        assert isinstance(found, ClusterPresent)
        return found

    found = run(observe())
    problem = found.replicas.storages[_STORAGE].problem
    assert problem is not None
    assert "the certificates of the secret log-tls cannot be used" in problem


@pytest.mark.parametrize("data", _SECRETS)
async def test_step_at_a_storage_with_an_unusable_tls_secret_fails(
    tmp_path: Path, data: dict[str, str] | None
) -> None:
    world = world_with_secret("log-tls", data)
    desired, kube = world.desired(), FaultyKube(world, Faults())
    store = MemoryZooKeeper().connect()
    await create_cluster(store, desired.root, desired.metadata_name, 1, key=uuid.uuid4())
    await Cluster(store, desired.root).add_storage_node(_STORAGE, 0, 6102)

    class Connected(NetworkEnvironment):
        async def metadata_store(self, desired: object) -> MetadataStore:
            return store

    executor = Executor(desired, kube, cast(Environment, Connected(kube, tmp_path)))
    with pytest.raises(StepFailed, match="the secret log-tls cannot be used"):
        await executor.perform(CreateReplicas(_STORAGE, (0,)))


@pytest.mark.parametrize("data", _SECRETS)
async def test_issue_certificates_with_an_unusable_authority_fails(
    data: dict[str, str] | None,
) -> None:
    world = world_with_secret("log-authority", data)
    environment = cast(Environment, FakeEnvironment(StoredZnodes(world), Faults()))
    kube = cast(Kube, FaultyKube(world, Faults()))
    with pytest.raises(StepFailed, match="the secret log-authority"):
        await Executor(world.desired(), kube, environment).perform(IssueCertificates(renew=True))


async def test_issue_certificates_creates_no_authority_while_certificates_of_a_lost_one_exist() -> (
    None
):
    world = world_with_secret("log-tls", {"ca.crt": _JUNK, "tls.crt": _JUNK, "tls.key": _JUNK})
    environment = cast(Environment, FakeEnvironment(StoredZnodes(world), Faults()))
    kube = cast(Kube, FaultyKube(world, Faults()))
    for renew in (False, True):
        with pytest.raises(StepFailed, match="the secret log-authority is lost"):
            await Executor(world.desired(), kube, environment).perform(IssueCertificates(renew))
    assert ObjectKey("Secret", "log-authority") not in world.objects


async def test_malformed_counter_of_an_incomplete_cluster_is_observed_as_malformed() -> None:
    world = World(cluster_resource(), [])
    desired, store = world.desired(), MemoryZooKeeper().connect()
    await create_cluster(store, desired.root, desired.metadata_name, 1, key=uuid.uuid4())
    paths = Cluster(store, desired.root).paths
    await store.delete(paths.connection)
    environment = cast(Environment, FakeEnvironment(StoredZnodes(world), Faults()))
    assert isinstance(await read_metadata(store, desired, environment), ClusterIncomplete)
    await store.set(paths.client_id, b"x", -1)
    assert isinstance(await read_metadata(store, desired, environment), ClusterMalformed)


@pytest.mark.parametrize(("last_id", "used"), [(0, False), (1, True)])
async def test_incomplete_cluster_is_used_after_its_first_assigned_id(
    last_id: int, used: bool
) -> None:
    """A creation writes the counters with 0, so 0 does not show that the cluster was complete."""
    world = World(cluster_resource(), [])
    desired, store = world.desired(), MemoryZooKeeper().connect()
    await create_cluster(store, desired.root, desired.metadata_name, 1, key=uuid.uuid4())
    paths = Cluster(store, desired.root).paths
    await store.delete(paths.connection)
    await store.set(paths.client_id, encode_id(last_id), -1)
    environment = cast(Environment, FakeEnvironment(StoredZnodes(world), Faults()))
    found = await read_metadata(store, desired, environment)
    assert isinstance(found, ClusterIncomplete)
    assert found.used is used


async def test_certificates_are_read_once_until_they_are_refreshed(tmp_path: Path) -> None:
    world = world_with_secret("log-tls", {"ca.crt": _JUNK, "tls.crt": _JUNK, "tls.key": _JUNK})
    desired, reads = world.desired(), 0

    class Counting(FaultyKube):
        async def get(self, kind: str, namespace: str, name: str) -> Any:
            nonlocal reads
            reads += 1
            return await super().get(kind, namespace, name)

    environment = NetworkEnvironment(Counting(world, Faults()), tmp_path)
    cluster = Cluster(MemoryZooKeeper().connect(), desired.root)
    for _ in range(2):
        await environment.replica_access(desired, cluster)
    assert reads == 1
    environment.forget_certificates(desired)
    await environment.replica_access(desired, cluster)
    assert reads == 2
    await environment.disconnect(desired.namespace, desired.name)
    await environment.replica_access(desired, cluster)
    assert reads == 3


async def test_certificates_are_refreshed_by_a_reconcile_and_not_by_a_check() -> None:
    refreshed: list[str] = []

    class Refreshed(FakeEnvironment):
        def forget_certificates(self, desired: DesiredCluster) -> None:
            refreshed.append(desired.name)

    world = World(cluster_resource(), [])
    desired, now = world.desired(), datetime.datetime.now(datetime.UTC)
    plain = cast(Environment, Refreshed(StoredZnodes(world), Faults()))
    environment = LeaderEnvironment(plain, lambda: True)
    observed = await observe(desired, FaultyKube(world, Faults()), environment, now)
    assert refreshed == ["log"]
    await observe_metadata(desired, observed, environment)
    assert refreshed == ["log"]


async def observed(world: World) -> ObservedCluster:
    """Observe the cluster of ``world`` without faults."""
    kube, environment = FaultyKube(world, Faults()), FakeEnvironment(StoredZnodes(world), Faults())
    return await observe(
        world.desired(),
        cast(Kube, kube),
        cast(Environment, environment),
        datetime.datetime.now(datetime.UTC),
    )


async def test_observed_secrets_have_the_names_of_their_parts_only() -> None:
    """The observation is kept and its parts are logged: it must not have a private key."""
    confidential = base64.b64encode(b"private key").decode()
    parts = {"ca.crt": confidential, "tls.crt": confidential, "tls.key": confidential}
    world = world_with_secret("log-tls", parts)
    found = await observed(world)
    secret = found.objects[ObjectKey("Secret", "log-tls")]
    assert secret["data"] == dict.fromkeys(parts, "")
    assert confidential not in repr(found)
    assert world.objects[ObjectKey("Secret", "log-tls")]["data"] == parts, "the secret is unchanged"


@pytest.mark.parametrize("owner", ["log", "another"])
async def test_own_authority_that_cannot_be_decoded_is_observed_as_a_problem(owner: str) -> None:
    world = world_with_secret("log-authority", {"previous.key": _JUNK, "tls.crt": _JUNK})
    metadata = world.objects[ObjectKey("Secret", "log-authority")]["metadata"]
    metadata["labels"] = labels(owner, Component.CLUSTER)
    found = await observed(world)
    expected = "its part tls.crt is not a certificate in PEM" if owner == "log" else ""
    assert (found.authority, found.authority_problem) == (None, expected)


async def test_access_rules_and_declaration_of_tls_belong_to_the_cluster() -> None:
    world = World(cluster_resource(), [])
    desired, znodes = world.desired(), StoredZnodes(world)
    store = znodes.session
    await create_cluster(store, desired.root, desired.metadata_name, 1, key=uuid.uuid4())
    environment = cast(Environment, FakeEnvironment(znodes, Faults()))
    grant = Grant("app", Right.READ, 0, 0)
    await change_access_rules(Cluster(store, desired.root), lambda rules: rules.with_grant(grant))
    await declare_transport(Cluster(store, desired.root), "server-0:1", Transport.TLS)
    found = await read_metadata(store, desired, environment)
    assert isinstance(found, ClusterPresent)
    assert not found.foreign_znodes


async def test_claim_without_labels_that_a_storage_uses_is_observed_by_its_name() -> None:
    world = World(cluster_resource(pools=["a"]), [pool_resource("a")])
    world.pools["a"]["metadata"]["labels"] = {CLUSTER_LABEL: "log"}
    key = ObjectKey("PersistentVolumeClaim", "data-a-storage-0")
    world.objects[key] = {"metadata": {"name": key.name, "uid": "restored"}}
    found = await observed(world)
    assert found.objects[key]["metadata"]["uid"] == "restored"
