"""Damage that a start has found, without a scrubber: it is forgotten when the damage is gone."""

from __future__ import annotations

import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import inline_engine
from tests.support.inline_engine import InlineEngine
from tests.support.storage_settings import storage_settings
from waltz.net import PLAINTEXT, RpcConnection
from waltz.protocol import admin, storage
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.engine.engine import Arrival
from waltz_storage.core.engine.rounds import Answer
from waltz_storage.core.log.log_check import CheckedRecords
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import HEADER_BYTES, RECORD_OVERHEAD_BYTES
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.findings import Findings
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.connections import ClusterIdentity
from waltz_storage.shell.node import StorageNode

CLUSTER = ClusterIdentity(uuid.UUID(int=9), 1)
IDENTITY = (CLUSTER.key, CLUSTER.num_partitions)
DATA = b"data"


async def started(path: Path) -> StorageNode:
    """Start a storage without a scrubber."""
    node = StorageNode(storage_settings(path, scrub_bytes_per_second=0))
    await node.start(CLUSTER)
    return node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageNode]:
    """A storage whose start has found record 1 of 3 damaged."""
    first = await started(tmp_path)
    first.directory.assign(0)
    records = [Record(n, ReqId(1, 2, 0, n), 0, DATA, 5) for n in range(3)]
    first.directory.partition(0).log.append(RecordBatch.of(records))
    await first.stop()
    with (tmp_path / "0" / "0000000000000000000.seg").open("r+b") as segment:
        segment.seek(HEADER_BYTES + RECORD_OVERHEAD_BYTES + len(DATA) + 20)
        segment.write(b"rot")
    node = await started(tmp_path)
    yield node
    await node.stop()


async def damaged(node: StorageNode) -> tuple[DamagedRange, ...]:
    """Return the damaged records that the storage reports to administrators."""
    assert node.admin_listener is not None
    address = "127.0.0.1", node.admin_listener.port
    connection = await RpcConnection.open_admin(address, PLAINTEXT, IDENTITY)
    try:
        answer = await connection.call(admin.DamagedRecordsRequest, admin.DamagedRecordsResponse)
    finally:
        connection.close()
    ranges: tuple[DamagedRange, ...] = answer.ranges
    return ranges


async def test_damage_is_forgotten_when_a_server_truncates_the_log_before_it(
    node: StorageNode,
) -> None:
    """A server that begins a session removes the last records and writes them again."""
    assert await damaged(node) == (DamagedRange(0, 1, 1),)
    assert node.listener is not None
    address = "127.0.0.1", node.listener.port
    server = await RpcConnection.open_storage(address, PLAINTEXT, IDENTITY)
    try:
        await server.call(
            lambda seq: storage.TruncateRequest(1, seq, 0, 2), storage.MaxTransactionIdResponse
        )
        assert await damaged(node) == (DamagedRange(0, 1, 1),)
        await server.call(
            lambda seq: storage.TruncateRequest(1, seq, 0, 0), storage.MaxTransactionIdResponse
        )
        assert await damaged(node) == ()
    finally:
        server.close()


async def test_truncation_is_noted_on_the_thread_of_the_main_event_loop(
    node: StorageNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrub check from before it, which waits for that thread, is noted before it."""
    threads: list[int] = []
    original = Findings.note_truncation

    def note(self: Findings, partition: int, last_id: int) -> None:
        threads.append(threading.get_ident())
        original(self, partition, last_id)

    monkeypatch.setattr(Findings, "note_truncation", note)
    assert node.listener is not None
    address = "127.0.0.1", node.listener.port
    server = await RpcConnection.open_storage(address, PLAINTEXT, IDENTITY)
    try:
        await server.call(
            lambda seq: storage.TruncateRequest(1, seq, 0, 0), storage.MaxTransactionIdResponse
        )
    finally:
        server.close()
    assert threads == [threading.get_ident()]


def test_truncation_within_a_damaged_range_keeps_its_beginning() -> None:
    findings = Findings()
    findings.note(0, CheckedRecords(0, 9, 9, 0, (3, 4, 5, 8)))
    findings.note_truncation(0, 4)
    findings.note_truncation(1, 4)
    assert [str(ids) for ids in findings.ranges[0]] == ["3-4"]
    assert set(findings.ranges) == {0}


def test_damage_is_forgotten_when_its_partition_is_removed_and_assigned_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both requests arrive before the first one is executed, and are executed before its answer."""
    delayed: list[Answer] = []
    monkeypatch.setattr(inline_engine, "_deliver", delayed.extend)
    directory = StorageDirectory(MemoryDisk(), uuid.UUID(int=9), 1, LogOptions(lambda: 1))
    directory.assign(0)
    engine = InlineEngine(directory)
    findings = engine.scrubber.findings
    findings.note(0, CheckedRecords(0, 9, 9, 0, (5,)))
    waiting: list[Arrival] = []
    handler = AdminHandler(directory, waiting.extend, lambda _: None, engine.scrubber)
    answers: list[object] = []
    for assigned in (False, True):
        request = admin.PartitionAssignmentRequest(1, (0,), assigned, True)
        handler.handle(request, 1, answers.append)
    engine.submit(waiting)
    for reply, answer in delayed:
        reply(answer)
    assert answers == [admin.AdminSuccessResponse(1)] * 2
    assert not findings.ranges
