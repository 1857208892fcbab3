"""Requests that the client has no right to make: what is settled, and what stays open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from waltz import Draft, PermissionDenied
from waltz.client.core.append_values import Append, Outcome
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.feed import PartitionFeed
from waltz.client.core.mount import NOT_READY_BACKOFF_SECONDS, Phase, RequestIds
from waltz.client.core.read_values import AnswerKind, ReadData, ReadHeaders, ReadMark, ReadRecords
from waltz.client.core.requests import PartitionRequests
from waltz.metadata.core.access_rules import AccessRules
from waltz.protocol.client_server import (
    AppendBatchRequest,
    AppendRequest,
    FeedRequest,
    FlushRequest,
    MountRequest,
    MountResponse,
    MountState,
    RequestDenied,
)
from waltz.testing import InProcessCluster

GENERATION, VERSION = 3, 5
APPEND = Append(b"data", 0)
WHY = "client a has no right"


class Scene:
    """The appends of client 9 to partition 0, which it mounts after transaction 4."""

    def __init__(self) -> None:
        self.appends = PartitionAppends(RequestIds(9, 0), 4, 60.0)
        self.appends.attach(GENERATION, 0, VERSION)

    def mount(self) -> None:
        (request,) = self.sent(MountRequest)
        self.appends.received(MountResponse(request.req_id, MountState.READY))

    def deny(self, kind: type) -> None:
        """Deny the requests of one kind that were sent since the last call."""
        for request in self.sent(kind):
            self.appends.received(RequestDenied(request.req_id, WHY))

    def phase(self) -> Phase:
        return self.appends.mount.phase

    def sent(self, kind: type) -> list[Any]:
        return [m for m in self.appends.effects.take_messages() if isinstance(m, kind)]

    def outcomes(self) -> list[tuple[object, Outcome]]:
        return [(each.token, each.outcome) for each in self.appends.effects.take_results()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_denied_append_is_settled_as_denied(scene: Scene) -> None:
    scene.mount()
    scene.appends.append("a", APPEND)
    scene.deny(AppendRequest)
    assert scene.outcomes() == [("a", Outcome.DENIED)]
    assert scene.appends.denial == WHY
    assert scene.appends.idle


def test_denied_append_does_not_settle_others(scene: Scene) -> None:
    scene.mount()
    scene.appends.append("a", APPEND)
    (first,) = scene.sent(AppendRequest)
    scene.appends.append("b", APPEND)
    scene.deny(AppendRequest)
    assert scene.outcomes() == [("b", Outcome.DENIED)]
    scene.appends.feed_received([(9, GENERATION, 0, first.req_id.seq, 5, 0)])
    assert scene.outcomes() == [("a", Outcome.COMMITTED)]


def test_each_append_of_a_denied_batch_is_settled(scene: Scene) -> None:
    scene.mount()
    scene.appends.append_batch(["a", "b"], [APPEND, APPEND])
    (batch,) = scene.sent(AppendBatchRequest)
    first = batch.req_id
    for seq in (first.seq, first.seq + 1):
        req_id = type(first)(first.client_id, first.generation, first.partition, seq)
        scene.appends.received(RequestDenied(req_id, WHY))
    assert scene.outcomes() == [("a", Outcome.DENIED), ("b", Outcome.DENIED)]


def test_denied_mount_settles_waiting_appends_and_keeps_sent_ones_in_doubt(scene: Scene) -> None:
    scene.mount()
    scene.appends.append("sent", APPEND)
    scene.appends.detach()
    scene.appends.append("waiting", APPEND)
    scene.appends.attach(GENERATION, 1, VERSION)
    scene.deny(MountRequest)
    assert scene.outcomes() == [("waiting", Outcome.DENIED)]
    scene.appends.close()
    assert scene.outcomes() == [("sent", Outcome.UNCERTAIN)]


def test_denied_mount_is_repeated_and_succeeds_after_the_grant(scene: Scene) -> None:
    scene.deny(MountRequest)
    assert scene.phase() is Phase.BACKOFF
    scene.appends.append("a", APPEND)
    scene.appends.tick(10.0)
    scene.appends.tick(10.0 + NOT_READY_BACKOFF_SECONDS)
    scene.mount()
    assert scene.appends.mount.denial is None
    assert scene.outcomes() == []
    assert scene.phase() is Phase.MOUNTED


def test_denied_flush_is_no_answer_to_the_flush(scene: Scene) -> None:
    scene.mount()
    scene.appends.append("a", APPEND)
    scene.appends.flush()
    scene.deny(FlushRequest)
    assert scene.outcomes() == []
    assert not scene.appends.idle


def test_denial_of_an_earlier_mount_is_ignored(scene: Scene) -> None:
    (old,) = scene.sent(MountRequest)
    scene.appends.detach()
    scene.appends.attach(GENERATION, 1, VERSION)
    scene.appends.received(RequestDenied(old.req_id, WHY))
    assert scene.phase() is Phase.MOUNTING


@pytest.mark.parametrize("kind", [MountRequest, FeedRequest])
def test_denied_feed_keeps_the_reason(kind: type) -> None:
    feed = PartitionFeed(RequestIds(9, 0), 4)
    feed.attach(GENERATION, 0, VERSION)
    if kind is FeedRequest:
        (mount,) = feed.effects.take_messages()
        feed.received(MountResponse(mount.req_id, MountState.READY))
    (request,) = feed.effects.take_messages()
    assert isinstance(request, kind)
    feed.received(RequestDenied(request.req_id, WHY))
    assert feed.denial == WHY


@pytest.mark.parametrize(
    "read", [ReadData(1), ReadMark(), ReadRecords(0, 1, 100), ReadHeaders(0, 1)]
)
def test_denied_read_ends_with_the_reason(read: Any) -> None:
    reads = PartitionRequests(RequestIds(9, 0))
    reads.attach(GENERATION, VERSION)
    reads.add("token", read)
    (request,) = reads.effects.take_messages()
    reads.received(RequestDenied(request.req_id, WHY))
    (answer,) = reads.effects.take_results()
    assert (answer.token, answer.kind, answer.denial) == ("token", AnswerKind.DENIED, WHY)
    assert reads.idle


# ---- the public client


@pytest.fixture
async def closed_cluster() -> AsyncIterator[InProcessCluster]:
    """A cluster whose rules have no grants."""
    async with InProcessCluster() as cluster:
        node = cluster.servers[0].node
        assert node is not None
        node.control.replace(AccessRules())
        yield cluster


async def test_calls_of_the_client_raise_permission_denied(
    closed_cluster: InProcessCluster,
) -> None:
    async with closed_cluster.connect() as client:
        for call in (
            client.append(0, b"a", mark=-1),
            client.high_water_mark(0),
            client.mount(0),
            client.bulk.records(0, 0),
            client.bulk.headers(0, 0),
            client.bulk.append(0, [Draft(b"a")], mark=-1),
        ):
            with pytest.raises(PermissionDenied, match="has no right to read partition 0"):
                await call


@pytest.mark.parametrize("data", [False, True])
async def test_stream_raises_permission_denied(
    closed_cluster: InProcessCluster, data: bool
) -> None:
    async with closed_cluster.connect() as client:
        stream = client.stream(0, data=data)
        with pytest.raises(PermissionDenied, match="has no right to read partition 0"):
            await anext(aiter(stream))
