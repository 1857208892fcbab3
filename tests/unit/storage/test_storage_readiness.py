"""A storage is ready while servers hold the sessions of all its replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.unit.storage.test_storage_node import (
    CLUSTER,
    IDENTITY,
    address,
    admin_address,
    settings,
)
from waltz.net import PLAINTEXT, RemoteFailure, RpcConnection
from waltz.protocol import admin, storage
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.partitions.open_sessions import OpenSessions
from waltz_storage.shell.node import StorageNode

_ON = PartitionInfo().flags


def info(session_id: int, flags: int = _ON) -> PartitionInfo:
    return PartitionInfo(session_id, -1, -1, flags)


def test_replica_is_attended_only_by_a_connection_of_its_own_session() -> None:
    sessions = OpenSessions()
    infos = {0: info(7), 1: info(3)}
    assert sessions.unattended(infos) == [0, 1]
    first, second = {0: 7}, {1: 2}
    sessions.add(first)
    sessions.add(second)
    assert sessions.unattended(infos) == [1], "session 2 is an earlier one"
    second[1] = 3
    assert sessions.unattended(infos) == []
    sessions.remove(first)
    sessions.remove(first)
    assert sessions.unattended(infos) == [0]


def test_equal_sessions_of_two_connections_are_counted_separately() -> None:
    sessions, first, second = OpenSessions(), {0: 7}, {0: 7}
    sessions.add(first)
    sessions.add(second)
    sessions.remove(first)
    assert sessions.unattended({0: info(7)}) == []


def test_replica_without_a_session_or_switched_off_needs_no_server() -> None:
    assert OpenSessions().unattended({0: info(-1), 1: info(7, flags=0)}) == []


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageNode]:
    node = StorageNode(settings(tmp_path))
    await node.start(CLUSTER)
    yield node
    await node.stop()


async def ready(port: int) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://127.0.0.1:{port}/ready") as answer,
    ):
        return answer.status, await answer.json()


async def unready_report(port: int) -> dict[str, Any]:
    """Return the report of the storage once it is not ready, which takes a moment."""
    async with asyncio.timeout(30):
        while True:
            status, report = await ready(port)
            if status == 503:
                return report
            assert status == 200
            await asyncio.sleep(0.01)


async def begin_session(node: StorageNode, session_id: int) -> RpcConnection:
    server = await RpcConnection.open_storage(address(node), PLAINTEXT, IDENTITY)
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(session_id, seq, 0, -1), storage.SuccessResponse
    )
    return server


async def test_storage_is_ready_until_its_server_is_gone_and_again_with_the_next_server(
    node: StorageNode,
) -> None:
    async with node.http() as port:
        assert port is not None
        assert (await ready(port))[0] == 200, "a storage without replicas is ready"
        administrator = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
        await administrator.call(
            lambda seq: admin.PartitionAssignmentRequest(seq, (0, 1), True, False),
            admin.AdminSuccessResponse,
        )
        administrator.close()
        assert (await ready(port))[0] == 200, "new replicas are in no session yet"
        server = await begin_session(node, 1)
        assert (await ready(port))[0] == 200
        server.close()

        report = await unready_report(port)
        assert report["partitions-without-server"] == [0]
        server = await begin_session(node, 2)
        assert (await ready(port))[0] == 200
        server.close()


async def test_connection_with_an_older_session_does_not_make_the_storage_ready(
    node: StorageNode,
) -> None:
    administrator = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
    await administrator.call(
        lambda seq: admin.PartitionAssignmentRequest(seq, (0,), True, False),
        admin.AdminSuccessResponse,
    )
    administrator.close()
    (await begin_session(node, 5)).close()
    old = await RpcConnection.open_storage(address(node), PLAINTEXT, IDENTITY)
    with pytest.raises(RemoteFailure):
        await old.call(
            lambda seq: storage.MaxTransactionIdRequest(4, seq, 0), storage.MaxTransactionIdResponse
        )

    async with node.http() as port:
        assert port is not None
        await unready_report(port)
    old.close()
