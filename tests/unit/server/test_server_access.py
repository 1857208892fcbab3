"""Test which requests a server refuses by the access rules, in new and old protocol versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, batched, new_append, req_id
from waltz.metadata.access import change_access_rules, delete_access_rules
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.access_rules import AccessRules, Grant, Right
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT
from waltz_server.core.access.client_quotas import QuotaLimits
from waltz_server.shell.access_control import AccessControl, ConnectionAccess
from waltz_server.shell.node import ServerNode

PARTITIONS = 2
CERTIFICATE = {"subject": ((("commonName", "app"),),)}
READS = AccessRules((Grant("app", Right.READ, 0, 1),))


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster(partitions=PARTITIONS) as cluster:
        yield cluster


def node_of(cluster: InProcessCluster) -> ServerNode:
    node = cluster.servers[0].node
    assert node is not None
    return node


def metadata(cluster: InProcessCluster) -> Cluster:
    return Cluster(node_of(cluster).store, ROOT)


def certify(cluster: InProcessCluster) -> None:
    """Give every open connection to the server the certificate of the client ``app``.

    The network in memory has no TLS. The handler gets the certificate's rights directly.
    """
    node = node_of(cluster)
    for connection in node._connections.values():
        handler: Any = connection.handler
        handler._access = ConnectionAccess(node.control, connection.peer, CERTIFICATE)


async def certified(cluster: InProcessCluster, rules: AccessRules, *versions: int) -> RawClient:
    """Connect as the client ``app``; then the server uses ``rules``."""
    client = await RawClient.connect(cluster, *versions)
    await eventually(lambda: node_of(cluster)._connections)
    certify(cluster)
    node_of(cluster).control.replace(rules)
    return client


def with_answer(append: cs.AppendRequest) -> cs.AnsweredAppendRequest:
    """Return the same append as one that the server answers."""
    values = {each.name: getattr(append, each.name) for each in fields(append)}
    return cs.AnsweredAppendRequest(**values)


def requests(seq: int) -> list[cs.Message]:
    return [
        cs.MountRequest(req_id(seq), -1, 0),
        cs.FeedRequest(req_id(seq + 1), -1),
        cs.FlushRequest(req_id(seq + 2)),
        cs.HighWaterMarkRequest(req_id(seq + 3)),
        cs.TransactionDataRequest(req_id(seq + 4), 0),
        cs.RecordsRequest(req_id(seq + 5), 0, 1, 1000),
        cs.HeadersRequest(req_id(seq + 6), 0, 1),
    ]


async def test_cluster_without_rules_refuses_nothing(cluster: InProcessCluster) -> None:
    assert node_of(cluster).control.rules is None
    client = await RawClient.connect(cluster)
    await client.mount()
    client.send(new_append("a", 1), cs.FlushRequest(req_id(2)))
    assert await client.take() == [cs.FlushResponse(req_id(2), 0)]


async def test_every_read_without_the_right_is_denied(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    client = await certified(cluster, AccessRules())
    client.send(*requests(10))
    answers = await client.take(7)
    assert [type(each) for each in answers] == [cs.RequestDenied] * 7
    assert [each.req_id.seq for each in answers] == list(range(10, 17))
    assert "(certificate of app) has no right to read partition 0: grant" in answers[0].error
    refused = [r.getMessage() for r in caplog.records if "refused a request" in r.getMessage()]
    assert len(refused) == 1, "a repeated denial is not logged again"
    assert "waltz access grant app read 0" in refused[0]
    assert client.lost_because is None


async def test_appends_without_the_right_are_denied_and_not_in_the_log(
    cluster: InProcessCluster,
) -> None:
    client = await certified(cluster, READS)
    await client.mount()
    client.send(new_append("a", 1), with_answer(new_append("b", 2)))
    client.send(cs.AppendBatchRequest(req_id(3), -1, (batched("c"), batched("d"))))
    denied = await client.take(4)
    assert [type(each) for each in denied] == [cs.RequestDenied] * 4
    assert [each.req_id.seq for each in denied] == [1, 2, 3, 4]
    client.send(cs.FlushRequest(req_id(5)))
    assert await client.take() == [cs.FlushResponse(req_id(5), -1)]
    assert cluster.transactions(0) == []


async def test_batch_ids_wrap_around_in_denials(cluster: InProcessCluster) -> None:
    client = await certified(cluster, READS)
    last = 2**31 - 1
    client.send(cs.AppendBatchRequest(req_id(last), -1, (batched("a"), batched("b"))))
    assert [each.req_id.seq for each in await client.take(2)] == [last, -(2**31)]


async def test_granted_append_is_accepted(cluster: InProcessCluster) -> None:
    rules = READS.with_grant(Grant("app", Right.APPEND, 0, 0))
    client = await certified(cluster, rules)
    await client.mount()
    client.send(cs.AppendBatchRequest(req_id(1), -1, (batched("a"),)))
    committed = BatchedOutcome(OutcomeKind.COMMITTED, 0)
    assert await client.take() == [cs.AppendBatchResponse(req_id(1), (committed,))]
    client.send(cs.MountRequest(req_id(2, 1), -1, 0), new_append("b", 3, partition=1))
    answers = {type(each): each for each in await client.take(2)}
    assert answers[cs.MountResponse].state is cs.MountState.READY
    assert "append to partition 1" in answers[cs.RequestDenied].error


async def test_old_client_gets_not_ready_and_the_reason_of_a_denied_read(
    cluster: InProcessCluster,
) -> None:
    client = await certified(cluster, AccessRules(), 4)
    client.send(cs.MountRequest(req_id(1), -1, 0), cs.TransactionDataRequest(req_id(2), 0))
    mount, data = await client.take(2)
    assert mount == cs.MountResponse(req_id(1), cs.MountState.NOT_READY)
    assert data.data is None
    assert "has no right to read partition 0" in data.error
    assert client.lost_because is None


@pytest.mark.parametrize(
    "request_",
    [new_append("a", 1), cs.FlushRequest(req_id(1)), cs.HighWaterMarkRequest(req_id(1))],
    ids=lambda request: type(request).__name__,
)
async def test_old_client_with_another_denied_request_is_disconnected(
    cluster: InProcessCluster, request_: cs.Message, caplog: pytest.LogCaptureFixture
) -> None:
    client = await certified(cluster, AccessRules(), 4)
    client.send(request_)
    await eventually(lambda: client.lost_because is not None)
    closing = [r.getMessage() for r in caplog.records if "closing client/server" in r.getMessage()]
    assert len(closing) == 1
    assert "waltz access grant app" in closing[0]
    assert cluster.transactions(0) == []


async def test_preference_without_the_right_to_administer_is_refused(
    cluster: InProcessCluster,
) -> None:
    client = await certified(cluster, READS.with_grant(Grant("app", Right.ADMINISTER, 0, 0)))
    client.send(cs.AddPreferredPartitionRequest(req_id(1), (0, 1)))
    assert await client.take() == [cs.AddPreferredPartitionResponse(req_id(1), False)]
    client.send(cs.AddPreferredPartitionRequest(req_id(2), (0,)))
    assert await client.take() == [cs.AddPreferredPartitionResponse(req_id(2), True)]
    membership = node_of(cluster)._membership
    assert membership is not None
    assert membership.preferred == {0}


async def test_server_follows_rules_in_zookeeper(cluster: InProcessCluster) -> None:
    control = node_of(cluster).control
    await change_access_rules(metadata(cluster), lambda _: READS)
    await eventually(lambda: control.rules == READS)
    await delete_access_rules(metadata(cluster))
    await eventually(lambda: control.rules is None)


async def test_restarted_server_knows_the_rules_before_its_first_client(
    cluster: InProcessCluster,
) -> None:
    await change_access_rules(metadata(cluster), lambda _: READS)
    await cluster.servers[0].stop()
    await cluster.servers[0].start()
    assert node_of(cluster).control.rules == READS


async def test_client_that_loses_a_right_is_disconnected(cluster: InProcessCluster) -> None:
    client = await RawClient.connect(cluster)
    await client.mount()
    await change_access_rules(metadata(cluster), lambda _: READS)
    await eventually(lambda: client.lost_because is not None)


def test_required_rules_deny_everything_while_there_are_none() -> None:
    control = AccessControl(lambda: 0.0, required=True)
    assert control.rules == AccessRules()
    assert not control.replace(None)
    assert control.replace(READS)
    assert control.replace(None)
    assert control.rules == AccessRules()


# ---- quotas


@pytest.mark.parametrize("is_answered", [False, True])
async def test_client_above_its_rate_is_not_read_until_it_keeps_the_rate(
    cluster: InProcessCluster, is_answered: bool
) -> None:
    now = [0.0]
    node = node_of(cluster)
    node.control = AccessControl(lambda: now[0], limits=QuotaLimits(append_bytes_per_second=100))
    client = await RawClient.connect(cluster)
    await client.mount()
    append = new_append("x" * 400, 1)
    client.send(with_answer(append) if is_answered else append, cs.FlushRequest(req_id(2)))
    assert (await client.take(1 + is_answered))[-1] == cs.FlushResponse(req_id(2), 0)
    (connection,) = node._connections.values()
    assert connection in node.paused
    now[0] = 100.0
    await eventually(lambda: not len(node.paused))
    client.send(cs.FlushRequest(req_id(3)))
    assert await client.take() == [cs.FlushResponse(req_id(3), 0)]


async def test_connection_above_the_quota_is_closed(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    node = node_of(cluster)
    node.control = AccessControl(lambda: 0.0, limits=QuotaLimits(connections=1))
    first = await RawClient.connect(cluster)
    second = await RawClient.connect(cluster)
    await eventually(lambda: second.lost_because is not None)
    assert first.lost_because is None
    assert "server.quota.connections" in caplog.text
    first.connection.close()
    await eventually(lambda: not node._connections)
    third = await RawClient.connect(cluster)
    await third.mount()
    assert third.lost_because is None


# ---- the log


def test_changed_grants_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    control = AccessControl(lambda: 0.0)
    assert not control.replace(None)
    assert control.replace(READS)
    assert not control.replace(READS)
    assert control.replace(AccessRules((Grant("b", Right.APPEND, 1, 1),)))
    assert caplog.messages == [
        "access rules: 1 grants; checking every request",
        "access rules: granted read on partitions 0 to 1 for app",
        "access rules: 1 grants; checking every request",
        "access rules: granted append on partitions 1 to 1 for b",
        "access rules: revoked read on partitions 0 to 1 for app",
    ]


def test_rules_at_the_start_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert AccessControl(lambda: 0.0).replace(READS)
    assert caplog.messages == ["access rules: 1 grants; checking every request"]
