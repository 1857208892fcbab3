"""Protocol version 6 with a real server: appends that are answered, and mounts without a feed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, batched, new_append, req_id
from waltz.protocol import checksum
from waltz.protocol import client_server as cs
from waltz.protocol.batches import LOG_MARK, AppendAnswer, BatchedOutcome, OutcomeKind
from waltz.testing import InProcessCluster

VERSION = 6


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster(partitions=2) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: InProcessCluster) -> RawClient:
    """A client that has mounted partition 0 without a feed."""
    client = await RawClient.connect(cluster, VERSION)
    await mount(client)
    return client


async def mount(client: RawClient, partition: int = 0) -> None:
    client.send(cs.MountRequest(req_id(0, partition), -1, 0, fed=False))
    ready = cs.MountResponse(req_id(0, partition), cs.MountState.READY)
    assert await client.take() == [ready]


def answered(text: str, seq: int, partition: int = 0, mark: int = -1) -> cs.AnsweredAppendRequest:
    data = text.encode()
    return cs.AnsweredAppendRequest(
        req_id(seq, partition), mark, (), (), (), 5, data, checksum(data)
    )


def answer(seq: int, kind: OutcomeKind, number: int, partition: int = 0) -> AppendAnswer:
    return AppendAnswer(1, 1, partition, seq, kind, number)


async def test_appends_are_answered_and_not_fed(client: RawClient) -> None:
    client.send(answered("a", 1, mark=LOG_MARK), answered("b", 2), answered("c", 3, mark=99))
    client.send(cs.FlushRequest(req_id(4)))
    messages: list[Any] = []
    while not messages or not isinstance(messages[-1], cs.FlushResponse):
        messages += await client.take()
    answers = [each for message in messages[:-1] for each in message.answers]
    assert sorted(answers) == [
        answer(1, OutcomeKind.COMMITTED, 0),
        answer(2, OutcomeKind.COMMITTED, 1),
        answer(3, OutcomeKind.AHEAD, -1),
    ]
    assert messages[-1] == cs.FlushResponse(req_id(4), 1)


async def test_appends_of_one_chunk_to_two_partitions_are_answered_separately(
    client: RawClient,
) -> None:
    await mount(client, 1)
    client.send(answered("a", 1), answered("b", 2, partition=1), answered("c", 3))
    received: list[Any] = []
    while sum(len(message.answers) for message in received) < 3:
        received += await client.take()
    for message in received:
        assert {each.partition for each in message.answers} == {message.req_id.partition}


async def test_append_without_an_answer_and_one_with_an_answer_keep_their_order(
    client: RawClient, cluster: InProcessCluster
) -> None:
    client.send(new_append("fed", 1), answered("answered", 2))
    (message,) = await client.take()
    assert message.answers == (answer(2, OutcomeKind.COMMITTED, 1),)
    await eventually(lambda: [t.data for t in cluster.transactions(0)] == [b"fed", b"answered"])


async def test_batch_with_a_mark_beyond_the_log_is_answered_ahead_with_the_last_id(
    client: RawClient,
) -> None:
    client.send(cs.AppendBatchRequest(req_id(1), 7, (batched("a"), batched("b"))))
    outcomes = (BatchedOutcome(OutcomeKind.AHEAD, -1),) * 2
    assert await client.take() == [cs.AppendBatchResponse(req_id(1), outcomes)]


async def test_append_of_another_generation_is_not_answered(client: RawClient) -> None:
    other = answered("a", 1)
    client.send(replace(other, req_id=replace(other.req_id, generation=9)))
    client.send(cs.FlushRequest(req_id(2)))
    assert await client.take() == [cs.FlushResponse(req_id(2), -1)]


@pytest.mark.parametrize("version", [4, 5])
async def test_append_with_an_answer_is_malformed_before_version_6(
    cluster: InProcessCluster, version: int
) -> None:
    client = await RawClient.connect(cluster, version)
    frame = bytearray(cs.encode(answered("a", 1), VERSION))
    frame[1:3] = version.to_bytes(2, "big")
    client.connection.send(bytes(frame))
    await eventually(lambda: client.lost_because is not None)
    assert cluster.transactions(0) == []
