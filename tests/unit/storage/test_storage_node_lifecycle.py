"""A storage node from its start to its stop: its ports, its limits, its scrubber, its settings."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.logged_node import KEY, PARTITIONS, LoggedNode, lengths, plain
from tests.unit.storage.test_storage_node import (
    CLUSTER,
    IDENTITY,
    address,
    admin_address,
    batch,
    settings,
)
from waltz.net import PLAINTEXT, ConnectionLost, DialFailed, Listener, RpcConnection
from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.shell.connections import ClusterIdentity
from waltz_storage.shell.environment import PROCESS, StorageEnvironment
from waltz_storage.shell.metrics import health
from waltz_storage.shell.node import StorageNode
from waltz_storage.shell.scrubbing import Scrubbing


async def started(
    path: Path, *, environment: StorageEnvironment | None = None, **more: Any
) -> StorageNode:
    config = settings(path).model_copy(update=more)
    node = StorageNode(config, environment=environment or PROCESS)
    await node.start(CLUSTER)
    return node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageNode]:
    node = await started(tmp_path)
    yield node
    await node.stop()


async def test_stopped_node_accepts_no_connection_and_runs_no_task(tmp_path: Path) -> None:
    node = await started(tmp_path)
    ports = address(node), admin_address(node)
    server = await RpcConnection.open_storage(ports[0], PLAINTEXT, IDENTITY)
    administrator = await RpcConnection.open_admin(ports[1], PLAINTEXT, IDENTITY)
    assert len(node._background) == 2, "the scrubber and the repairs"
    await node.stop()
    assert all(task.done() for task in node._background)
    await eventually(lambda: server.closed and administrator.closed)
    with pytest.raises(DialFailed):
        await RpcConnection.open_storage(ports[0], PLAINTEXT, IDENTITY)
    with pytest.raises(DialFailed):
        await RpcConnection.open_admin(ports[1], PLAINTEXT, IDENTITY)


class OpeningDisk:
    """Opens ``disk``, or raises the error ``disk``, when ``released`` is set.

    ``opening`` is set when the opening waits for that.
    """

    def __init__(self, disk: MemoryDisk | Exception) -> None:
        self.disk = disk
        self.opening = threading.Event()
        self.released = threading.Event()

    def open(self, _: Path) -> Disk:
        self.opening.set()
        assert self.released.wait(60)
        if isinstance(self.disk, Exception):
            raise self.disk
        return self.disk


async def cancelled_start(slow: OpeningDisk) -> StorageNode:
    """Return a node with the engine ``wal`` whose start was cancelled while ``slow`` opens."""
    environment = replace(
        PROCESS, open_disk=slow.open, disk_space=lambda directory: (1 << 30, 1 << 30)
    )
    node = StorageNode(settings(Path("/in-memory"), "wal"), environment=environment)
    starting = asyncio.create_task(node.start(ClusterIdentity(KEY, PARTITIONS)))
    await asyncio.to_thread(slow.opening.wait, 60)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    return node


async def test_stop_while_the_log_is_replayed_leaves_a_directory_of_the_engine_files(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise a process that SIGTERM has ended with status 0 would leave records in its log."""
    caplog.set_level(logging.INFO)
    crashed = LoggedNode(MemoryDisk())
    crashed.append(0)
    disk = crashed.disk.crashed(Random(1))
    slow = OpeningDisk(disk)
    node = await cancelled_start(slow)
    asyncio.get_running_loop().call_soon(slow.released.set)
    await node.stop()
    assert lengths(plain(disk)) == [1, 0, 0, 0, 0]
    assert "stopping as soon as the storage directory /in-memory is open" in caplog.text


async def test_stop_while_the_directory_opens_reports_what_the_opening_has_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = LoggedNode(MemoryDisk())
    before.directory.close()
    before.disk.remove(FLUSHED_FILE)
    slow = OpeningDisk(before.disk)
    node = await cancelled_start(slow)
    slow.released.set()
    await node.stop()
    assert "no valid flushed marks" in caplog.text


async def test_stop_while_a_directory_is_refused_raises_the_refusal() -> None:
    slow = OpeningDisk(DirectoryRefused("not a storage directory"))
    node = await cancelled_start(slow)
    slow.released.set()
    with pytest.raises(DirectoryRefused, match="not a storage directory"):
        await node.stop()


async def test_stop_after_a_start_that_was_refused_does_nothing(tmp_path: Path) -> None:
    first = await started(tmp_path)
    await first.stop()
    second = StorageNode(settings(tmp_path))
    with pytest.raises(DirectoryRefused):
        await second.start(ClusterIdentity(KEY, PARTITIONS))
    await second.stop()


async def test_stop_ends_the_pulls_that_are_running(tmp_path: Path) -> None:
    node = await started(tmp_path)
    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    administrator = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
    answer = asyncio.ensure_future(
        administrator.call(
            lambda seq: admin.PullRecordsRequest(seq, 0, 1, host, port, 0, 9),
            admin.PullRecordsResponse,
        )
    )
    pulls = node._pulls
    assert pulls is not None
    await eventually(lambda: pulls._tasks)
    [task] = pulls._tasks
    await node.stop()
    assert task.cancelled()
    with pytest.raises(ConnectionLost):
        await answer
    silent.close()


async def test_slow_readers_have_the_bound_of_the_settings(tmp_path: Path) -> None:
    node = await started(tmp_path, max_unsent_bytes=12_345)
    for listener in (node.listener, node.admin_listener):
        assert isinstance(listener, Listener)
        assert listener._accepted.slow_readers.max_unsent_bytes == 12_345
    await node.stop()


async def test_administrator_reaches_a_storage_whose_port_for_servers_is_full(
    tmp_path: Path,
) -> None:
    node = await started(tmp_path, max_connections=1)
    server = await RpcConnection.open_storage(address(node), PLAINTEXT, IDENTITY)
    administrator = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
    answer = await administrator.call(admin.PartitionStatesRequest, admin.PartitionStatesResponse)
    assert isinstance(answer, admin.PartitionStatesResponse)
    server.close()
    administrator.close()
    await node.stop()


async def test_bug_of_the_scrubber_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = RuntimeError("a bug")
    failures: list[BaseException] = []

    async def run(self: Scrubbing) -> None:
        raise problem

    monkeypatch.setattr(Scrubbing, "run", run)
    environment = replace(PROCESS, fail=failures.append)
    node = await started(tmp_path, environment=environment)
    try:
        await eventually(lambda: failures, 5)
    finally:
        await node.stop()
    assert failures == [problem]


async def test_end_of_the_scrubber_by_a_stop_is_no_failure(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    environment = replace(PROCESS, fail=failures.append)
    node = await started(tmp_path, environment=environment)
    await node.stop()
    assert failures == []


async def test_scrubber_that_is_switched_off_does_not_run(tmp_path: Path) -> None:
    node = await started(tmp_path, scrub_bytes_per_second=0)
    assert not node._background
    await node.stop()


async def test_segments_follow_the_settings(tmp_path: Path) -> None:
    node = await started(tmp_path, segment_threshold=1000, open_segments=2)
    options = node.directory._options
    assert (options.segment_threshold, options.open_segments) == (1000, 2)
    administrator = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
    await administrator.call(
        lambda seq: admin.PartitionAssignmentRequest(seq, (0,), True, False),
        admin.AdminSuccessResponse,
    )
    server = await RpcConnection.open_storage(address(node), PLAINTEXT, IDENTITY)
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(1, seq, 0, -1), storage.SuccessResponse
    )
    for first_id in range(0, 40, 10):
        records = batch(first_id, 10, bytes(100))
        await server.call(
            partial(_append, records),
            storage.SuccessResponse,
        )
    assert len(list((tmp_path / "0").glob("*.seg"))) > 1
    server.close()
    administrator.close()
    await node.stop()


def _append(records: RecordBatch, seq: int) -> storage.AppendRequest:
    """Return the request with ``seq`` that appends ``records`` to partition 0."""
    return storage.AppendRequest(1, seq, 0, records)


async def assign(node: StorageNode, partition: int) -> None:
    """Assign a partition by a request to the admin port."""
    administrator = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
    await administrator.call(
        lambda seq: admin.PartitionAssignmentRequest(seq, (partition,), True, False),
        admin.AdminSuccessResponse,
    )
    administrator.close()


async def test_refused_partition_is_logged_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await started(tmp_path)
    await assign(first, 1)
    await first.stop()
    (tmp_path / "1" / "0000000000000000000.idx").unlink()
    caplog.clear()
    second = await started(tmp_path)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "1/0000000000000000000.idx" in errors[0]
    await second.stop()


async def test_damaged_records_are_logged_and_reported_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await started(tmp_path)
    await assign(first, 1)
    sent = [Record(n, ReqId(1, 2, 1, n), 0, b"%08d" % n, 7) for n in range(5)]
    first.directory.partition(1).log.append(RecordBatch.of(sent))
    await first.stop()
    segment = tmp_path / "1" / "0000000000000000000.seg"
    segment.write_bytes(segment.read_bytes().replace(b"%08d" % 3, b"%08d" % 9))
    caplog.clear()
    second = await started(tmp_path)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "start: partition 1 has damaged records: 3; the storage serves its other records, and "
        "servers read the damaged ones from other replicas; the storage repairs them by itself"
    ]
    assert second._scrubber is not None
    healthy, report = health(second.directory, second._scrubber)
    assert healthy
    assert report["storage-health-check"]["damaged-records"] == {"1": ["3"]}
    await second.stop()


async def test_connection_of_a_server_counts_its_sessions_until_it_ends(node: StorageNode) -> None:
    administrator = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
    await administrator.call(
        lambda seq: admin.PartitionAssignmentRequest(seq, (0,), True, False),
        admin.AdminSuccessResponse,
    )
    await administrator.call(
        lambda seq: admin.PartitionAvailableRequest(seq, (0,), True), admin.AdminSuccessResponse
    )
    server = await RpcConnection.open_storage(address(node), PLAINTEXT, IDENTITY)
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(7, seq, 0, -1), storage.SuccessResponse
    )

    def unattended() -> list[int]:
        return node._open_sessions.unattended({0: node.directory.info(0)})

    assert unattended() == []
    server.close()
    await eventually(lambda: unattended() == [0])
    administrator.close()
    await asyncio.sleep(0)
