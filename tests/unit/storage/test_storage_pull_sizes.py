"""How many records a pull requests from a peer of 0.13.2, which does not bound lists in bytes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.virtual_time import on_virtual_time
from waltz.net import PLAINTEXT, TCP, ConnectionLost, RpcConnection
from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz_storage.core.engine.engine import Arrival
from waltz_storage.core.engine.rounds import Answer, AppendJob
from waltz_storage.shell import peer_pull
from waltz_storage.shell.peer_pull import PeerPulls

PEER = ("peer", 1)


class Peer:
    """A peer with all records, which does not deliver lists of more than ``most_records``.

    Such a list exceeds the longest message, which closes the connection, or takes forever.
    """

    def __init__(self, version: int = 0, *, hangs: bool = False) -> None:
        self.version = version
        self.most_records = 2
        self.requested: list[int] = []
        self._hangs = hangs

    async def open(self, *_: object) -> Peer:
        return self

    async def call(
        self, form: Callable[[int], admin.Request], expected: type[Any]
    ) -> admin.RecordListResponse:
        request = form(1)
        assert isinstance(request, admin.RecordListRequest)
        self.requested.append(request.max_records)
        if request.max_records > self.most_records:
            if self._hangs:
                await asyncio.Event().wait()
            raise ConnectionLost("the message is too long")
        first, count = request.first_id, request.max_records
        records = RecordBatch.of(
            Record(n, ReqId(1, 2, 0, n), 0, b"x", 7) for n in range(first, first + count)
        )
        return admin.RecordListResponse(1, request.partition, records)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def one_list_each() -> Iterator[None]:
    """Let each pull read one list."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peer_pull, "_PULL_SECONDS", 0.0)
        yield


def new_pulls() -> PeerPulls:
    """Return pulls whose appends succeed at once."""

    def submit(arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            assert isinstance(arrival.job, AppendJob)
            request = arrival.job.request
            arrival.job.reply(
                storage.SuccessResponse(request.session_id, request.seq_num, request.partition)
            )

    def deliver(answers: list[Answer]) -> None:
        for reply, answer in answers:
            reply(answer)

    return PeerPulls((uuid.UUID(int=9), 3), submit, deliver, TCP, PLAINTEXT, lambda: 0.0)


async def pull(
    pulls: PeerPulls, peer: Peer, first_id: int, last_id: int = 1000, partition: int = 0
) -> admin.Response:
    """Let ``pulls`` handle one request, whose peer is ``peer``; return the answer."""
    answered: asyncio.Future[admin.Response] = asyncio.get_running_loop().create_future()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RpcConnection, "open_admin", peer.open)
        request = admin.PullRecordsRequest(7, partition, 4, *PEER, first_id, last_id)
        pulls.handle(request, answered.set_result)
        return await answered


@pytest.mark.parametrize("hangs", [False, True])
def test_pull_after_a_list_that_was_lost_requests_fewer_records(hangs: bool) -> None:
    @on_virtual_time
    async def repeat() -> None:
        pulls, peer = new_pulls(), Peer(hangs=hangs)
        assert isinstance(await pull(pulls, peer, 4), admin.AdminFailureResponse)
        assert isinstance(await pull(pulls, peer, 4), admin.PullRecordsResponse)
        assert peer.requested == [20, 2]

    repeat()


async def test_pull_from_a_newer_peer_whose_connection_was_lost_requests_as_many_records() -> None:
    """Such a peer bounds its lists, so that the loss had another cause."""
    pulls, peer = new_pulls(), Peer(version=1)
    for _ in range(2):
        assert isinstance(await pull(pulls, peer, 4), admin.AdminFailureResponse)
    assert peer.requested == [20, 20]


async def test_pull_after_the_end_of_a_copy_knows_nothing_about_the_records() -> None:
    """The next copy of the partition may have other records, and the memory is bounded."""
    pulls, peer = new_pulls(), Peer()
    await pull(pulls, peer, 4)
    await pull(pulls, peer, 4, last_id=5)
    peer.most_records = 100
    await pull(pulls, peer, 6)
    assert peer.requested == [20, 2, 20]


async def test_pulls_of_many_copies_keep_what_is_known_about_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_pull, "_MOST_COPIES", 2)
    pulls, peer = new_pulls(), Peer()
    for partition in (0, 1, 0, 2):
        await pull(pulls, peer, 4, partition=partition)
    peer.requested.clear()
    for partition in (0, 2, 1):
        await pull(pulls, peer, 6, partition=partition)
    assert peer.requested[2] == 20, "partition 1 had no request for the longest time"
    assert max(peer.requested[:2]) < 20
