"""Test the writer of Spark against logs that became shorter and a ZooKeeper without an answer."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from tests.support.client_cluster import ClientCluster
from tests.support.virtual_time import on_virtual_time
from waltz.metadata.kazoo_store import ConnectFailed
from waltz.net import PLAINTEXT
from waltz.spark import sink
from waltz.spark.core.rows import Columns
from waltz.spark.log_reader import ClusterLocation, LogEndsBefore
from waltz.spark.writer import (
    WriteCounts,
    WriterSession,
    WriteTask,
    client_options,
    read_fingerprints,
)


@on_virtual_time
async def test_fingerprints_of_a_log_that_ends_too_early_raise_log_ends_before() -> None:
    async with asyncio.timeout(60), ClientCluster() as cluster:
        await cluster.fill(0, 3)
        client = await cluster.client()
        assert len(await read_fingerprints(client, 0, 0, 3)) == 3
        with pytest.raises(LogEndsBefore, match="partition 0 has no transaction 3 any more"):
            await read_fingerprints(client, 0, 0, 5)


def test_timeout_of_the_location_limits_appends_and_answers() -> None:
    options = client_options(ClusterLocation("zk:2181", "/log", PLAINTEXT, 7.5))
    assert (options.append_timeout, options.answer_timeout) == (7.5, 7.5)


def test_session_that_cannot_connect_closes_its_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    make = asyncio.new_event_loop

    def new_event_loop() -> asyncio.AbstractEventLoop:
        loops.append(make())
        return loops[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", new_event_loop)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConnectFailed):
            WriterSession(ClusterLocation(address, "/waltz", PLAINTEXT, 0.1))
    (loop,) = loops
    assert loop.is_closed()


class FailingSessions:
    """A cache whose session cannot write."""

    def __init__(self) -> None:
        self.forgotten: list[ClusterLocation] = []

    def open(self, where: ClusterLocation) -> FailingSessions:
        return self

    def write(self, *_: object) -> WriteCounts:
        raise ConnectFailed("ZooKeeper does not answer")

    def forget(self, where: ClusterLocation) -> None:
        self.forgotten.append(where)


def test_session_that_failed_is_not_used_by_the_next_task(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions, where = FailingSessions(), ClusterLocation("zk:2181", "/log", PLAINTEXT, 1)
    monkeypatch.setattr(sink, "SESSION_CACHE", sessions)
    task = WriteTask("write", persistent=False, epoch=0, run="run", task=0)
    with pytest.raises(ConnectFailed):
        sink._write(where, task, cast(Columns, None), iter(()))
    assert sessions.forgotten == [where]
