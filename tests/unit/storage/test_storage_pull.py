"""Copies of records from storage to storage, between two nodes with their ports."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.storage_settings import storage_settings
from tests.support.virtual_time import on_virtual_time
from waltz.admin import StorageAdmin
from waltz.net import PLAINTEXT, TCP, RemoteFailure, RpcConnection, TlsConfig, TlsConfigError
from waltz.protocol import ADMIN, STORAGE, UnsupportedByPeer, admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.runtime.configuration import TlsSettings
from waltz_storage.shell import peer_pull
from waltz_storage.shell.config import StorageConfig
from waltz_storage.shell.connections import ClusterIdentity
from waltz_storage.shell.node import StorageNode
from waltz_storage.shell.peer_pull import PeerPulls

CLUSTER = ClusterIdentity(uuid.UUID(int=9), 3)
IDENTITY = (CLUSTER.key, CLUSTER.num_partitions)
SESSION = 4


def settings(path: Path, tls: TlsSettings | None = None) -> StorageConfig:
    path.mkdir()
    return storage_settings(
        path, segment_threshold=1_000_000, tls_settings=tls or TlsSettings(enabled=False)
    )


def batch(first_id: int, count: int) -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, 0, n), 0, b"data", 5) for n in range(first_id, first_id + count)
    )


def admin_address(node: StorageNode) -> tuple[str, int]:
    assert node.admin_listener is not None
    return "127.0.0.1", node.admin_listener.port


async def administer(node: StorageNode, tls: TlsConfig = PLAINTEXT) -> StorageAdmin:
    return StorageAdmin(await RpcConnection.open_admin(admin_address(node), tls, IDENTITY))


async def fill(node: StorageNode, records: RecordBatch, tls: TlsConfig = PLAINTEXT) -> None:
    """Assign partition 0, begin a session and append ``records``."""
    assert node.listener is not None
    async with await administer(node, tls) as port:
        await port.assign((0,))
    server = await RpcConnection.open_storage(("127.0.0.1", node.listener.port), tls, IDENTITY)
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(SESSION, seq, 0, -1), storage.SuccessResponse
    )
    if records:
        await server.call(
            lambda seq: storage.AppendRequest(SESSION, seq, 0, records), storage.SuccessResponse
        )
    server.close()


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[StorageNode]:
    node = StorageNode(settings(tmp_path / "source"))
    await node.start(CLUSTER)
    await fill(node, batch(0, 10))
    yield node
    await node.stop()


@pytest.fixture
async def destination(tmp_path: Path) -> AsyncIterator[StorageNode]:
    node = StorageNode(settings(tmp_path / "destination"))
    await node.start(CLUSTER)
    await fill(node, batch(0, 4))
    async with await administer(node) as port:
        await port.set_available((0,), available=False)
    yield node
    await node.stop()


async def test_pull_copies_the_records_of_the_peer(
    source: StorageNode, destination: StorageNode
) -> None:
    async with await administer(destination) as port:
        assert await port.pull(0, SESSION, admin_address(source), 4, 7) == 7
        assert (await port.records(0, 0, 100)) == batch(0, 8)


async def test_pull_ends_after_its_time(
    source: StorageNode, destination: StorageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_pull, "_PULL_SECONDS", 0.0)
    monkeypatch.setattr(peer_pull, "_RECORDS_AT_ONCE", 2)
    async with await administer(destination) as port:
        assert await port.pull(0, SESSION, admin_address(source), 4, 9) == 5
        assert (await port.records(0, 0, 100)) == batch(0, 6)


async def test_pull_bounds_the_bytes_of_each_copy(
    source: StorageNode, destination: StorageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger copy would delay the appends of the other partitions of both storages."""
    bound, sizes = 2 * len(batch(0, 1).wire), list[int]()
    append = PeerPulls._append

    async def noted(self: PeerPulls, request: admin.PullRecordsRequest, copy: RecordBatch) -> None:
        sizes.append(len(copy.wire))
        await append(self, request, copy)

    monkeypatch.setattr(PeerPulls, "_append", noted)
    monkeypatch.setattr(peer_pull, "COPY_BYTES", bound)
    async with await administer(destination) as port:
        assert await port.pull(0, SESSION, admin_address(source), 4, 9) == 9
    assert len(sizes) > 1
    assert max(sizes) <= bound


async def test_pull_from_a_peer_of_0_13_2_reads_few_records_at_first(
    destination: StorageNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer does not bound its answer, and the longest frame is 256 MiB."""
    monkeypatch.setattr(peer_pull, "_PULL_SECONDS", 0.0)
    old = StorageNode(settings(tmp_path / "old"), STORAGE, ADMIN.limited_to(0))
    await old.start(CLUSTER)
    await fill(old, batch(0, 50))
    async with await administer(destination) as port:
        assert await port.pull(0, SESSION, admin_address(old), 4, 49) == 23
    await old.stop()


async def test_pull_from_a_peer_without_the_records_is_refused(
    source: StorageNode, destination: StorageNode
) -> None:
    async with await administer(destination) as port:
        with pytest.raises(RemoteFailure, match="the peer does not hold transaction 10 "):
            await port.pull(0, SESSION, admin_address(source), 4, 12)
        assert (await port.states())[0].max_transaction_id == 9, "earlier records stay"


@pytest.mark.parametrize("is_on", [True, False])
async def test_pull_is_refused_if_servers_may_write_or_the_session_is_another(
    source: StorageNode, destination: StorageNode, is_on: bool
) -> None:
    async with await administer(destination) as port:
        await port.set_available((0,), available=is_on)
        session = SESSION if is_on else SESSION - 1
        with pytest.raises(RemoteFailure, match="Exception: "):
            await port.pull(0, session, admin_address(source), 4, 7)
        assert (await port.states())[0].max_transaction_id == 3


async def test_pull_from_a_peer_that_cannot_be_reached_is_refused(
    destination: StorageNode, tmp_path: Path
) -> None:
    node = StorageNode(settings(tmp_path / "stopped"))
    await node.start(CLUSTER)
    address = admin_address(node)
    await node.stop()
    async with await administer(destination) as port:
        with pytest.raises(RemoteFailure, match=f"cannot read from 127.0.0.1:{address[1]}: "):
            await port.pull(0, SESSION, address, 4, 7)


async def test_pull_from_a_peer_that_does_not_answer_is_refused(
    destination: StorageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_pull, "_PEER_SECONDS", 0.05)
    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    address = silent.sockets[0].getsockname()
    async with await administer(destination) as port:
        with pytest.raises(RemoteFailure, match=r"no answer within 0.05 s"):
            async with asyncio.timeout(60):
                await port.pull(0, SESSION, (address[0], address[1]), 4, 7)
    silent.close()


async def test_pull_from_a_storage_of_another_cluster_is_refused(
    destination: StorageNode, tmp_path: Path
) -> None:
    other = StorageNode(settings(tmp_path / "other"))
    await other.start(ClusterIdentity(uuid.UUID(int=10), 3))
    try:
        async with await administer(destination) as port:
            with pytest.raises(RemoteFailure, match="inconsistent"):
                await port.pull(0, SESSION, admin_address(other), 4, 7)
    finally:
        await other.stop()


async def test_storage_of_an_older_version_does_not_pull(tmp_path: Path) -> None:
    node = StorageNode(settings(tmp_path / "old"), administrators=ADMIN.limited_to(0, 1, 2))
    await node.start(CLUSTER)
    try:
        async with await administer(node) as port:
            with pytest.raises(UnsupportedByPeer):
                await port.pull(0, SESSION, ("127.0.0.1", 1), 0, 0)
    finally:
        await node.stop()


async def test_pull_verifies_the_peer_by_the_server_name_of_the_settings(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("storage", server_name="storage")
    nodes = []
    for name, server_name in (("a", "storage"), ("b", "storage"), ("c", "other")):
        secured = TlsSettings(
            certificate=own.certificate, key=own.key, ca=own.ca, server_name=server_name
        )
        node = StorageNode(settings(tmp_path / name, secured))
        await node.start(CLUSTER)
        await fill(node, batch(0, 4 if name == "a" else 0), own)
        nodes.append(node)
    source, verified, misled = nodes
    try:
        for node in (verified, misled):
            async with await administer(node, own) as port:
                await port.set_available((0,), available=False)
        async with await administer(verified, own) as port:
            assert await port.pull(0, SESSION, admin_address(source), 0, 3) == 3
        async with await administer(misled, own) as port:
            with pytest.raises(RemoteFailure, match="not valid for 'other'"):
                await port.pull(0, SESSION, admin_address(source), 0, 3)
    finally:
        for node in nodes:
            await node.stop()


async def test_pull_of_records_is_logged_as_a_change(
    source: StorageNode, destination: StorageNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with await administer(destination) as port:
        await port.pull(0, SESSION, admin_address(source), 4, 7)
    assert "copy records 4-7 of partition 0 from 127.0.0.1: done" in caplog.text


def test_pull_request_belongs_to_version_3() -> None:
    request = admin.PullRecordsRequest(1, 0, SESSION, "a", 2, 0, 1)
    with pytest.raises(UnsupportedByPeer):
        admin.encode(request, 2)
    assert admin.encode(request, 3)


class _Peer:
    """A peer that answers each read with the same records, whatever the request asks for."""

    version = 3

    def __init__(self, records: RecordBatch) -> None:
        self._records = records
        self.closed = False

    async def call(
        self, form: Callable[[int], admin.Request], expected: type[Any]
    ) -> admin.RecordListResponse:
        assert expected is admin.RecordListResponse
        request = form(1)
        assert isinstance(request, admin.RecordListRequest)
        return admin.RecordListResponse(1, request.partition, self._records)

    def close(self) -> None:
        self.closed = True


def _pulls() -> PeerPulls:
    """Return pulls that must append nothing."""

    def refuse(_: object) -> NoReturn:
        raise AssertionError("records were appended")

    return PeerPulls(IDENTITY, refuse, refuse, TCP, PLAINTEXT, lambda: 0.0)


async def test_pull_with_unusable_tls_files_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def open_peer(*_: object) -> NoReturn:
        raise TlsConfigError("storage.tls.certificate cannot be read")

    monkeypatch.setattr(RpcConnection, "open_admin", open_peer)
    answers = list[Any]()
    _pulls().handle(admin.PullRecordsRequest(7, 0, SESSION, "peer", 1, 4, 7), answers.append)
    await eventually(lambda: answers)
    [answer] = answers
    assert isinstance(answer, admin.AdminFailureResponse)
    assert "cannot read from peer:1: storage.tls.certificate" in (answer.failure.message or "")


async def test_pull_that_ends_with_an_unexpected_error_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def open_peer(*_: object) -> NoReturn:
        raise AttributeError("no attribute 'records'")

    monkeypatch.setattr(RpcConnection, "open_admin", open_peer)
    answers = list[Any]()
    _pulls().handle(admin.PullRecordsRequest(7, 0, SESSION, "peer", 1, 4, 7), answers.append)
    await eventually(lambda: answers)
    [answer] = answers
    assert isinstance(answer, admin.AdminFailureResponse)
    assert "cannot copy records from peer:1: AttributeError(" in (answer.failure.message or "")
    assert "partition 0: records cannot be pulled from peer:1" in caplog.text


@pytest.mark.parametrize(
    "records",
    [batch(5, 3), batch(3, 4), batch(4, 5), batch(0, 0)],
    ids=["begins later", "begins earlier", "more than asked", "empty"],
)
async def test_pull_whose_answer_has_other_records_than_requested_fails(
    records: RecordBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, answers = _Peer(records), list[Any]()

    async def open_peer(*_: object) -> _Peer:
        return peer

    monkeypatch.setattr(RpcConnection, "open_admin", open_peer)
    pulls = _pulls()
    pulls.handle(admin.PullRecordsRequest(7, 0, SESSION, "peer", 1, 4, 7), answers.append)
    await eventually(lambda: answers)
    [answer] = answers
    assert isinstance(answer, admin.AdminFailureResponse)
    assert "does not hold transaction 4 of partition 0" in (answer.failure.message or "")
    assert peer.closed


async def test_stop_cancels_a_running_pull_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opening, answers = asyncio.Event(), list[Any]()

    async def open_peer(*_: object) -> NoReturn:
        opening.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(RpcConnection, "open_admin", open_peer)
    pulls = _pulls()
    pulls.handle(admin.PullRecordsRequest(7, 0, SESSION, "peer", 1, 4, 7), answers.append)
    await opening.wait()
    [task] = pulls._tasks
    await pulls.stop()
    assert task.cancelled()
    assert answers == []


class _SilentPeer(_Peer):
    """A peer that accepts the connection and never answers."""

    async def call(self, form: Callable[[int], admin.Request], expected: type[Any]) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")


@on_virtual_time
async def test_pull_from_a_peer_that_hangs_after_the_connection_is_refused() -> None:
    peer, answered = _SilentPeer(batch(0, 0)), asyncio.get_running_loop().create_future()

    async def open_peer(*_: object) -> _Peer:
        return peer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RpcConnection, "open_admin", open_peer)
        request = admin.PullRecordsRequest(7, 0, SESSION, "peer", 1, 4, 7)
        _pulls().handle(request, answered.set_result)
        answer = await answered
    assert isinstance(answer, admin.AdminFailureResponse)
    assert "no answer within 5 s" in str(answer)
    assert peer.closed
