"""A server that stops: it accepts no new appends and finishes open ones within a time limit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.support.eventually import eventually
from tests.support.pausable_connection import PausableConnection
from waltz.net import FrameConnection, Listener
from waltz.runtime.configuration import read_settings
from waltz_server.main import run_node
from waltz_server.shell import node as node_module
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.node import ServerNode

SETTINGS = {
    "WALTZ_ZOOKEEPER_CONNECT_STRING": "unused:1",
    "WALTZ_ZOOKEEPER_SESSION_TIMEOUT": "1",
    "WALTZ_CLUSTER_ROOT": "/unused",
    "WALTZ_SERVER_PORT": "0",
    "WALTZ_SERVER_TLS_ENABLED": "false",
}


@dataclass
class Store:
    is_open: bool = True


@dataclass
class Core:
    unfinished: int = 3
    overloaded: bool = False
    store: Store = field(default_factory=Store)
    looks: int = 0

    @property
    def open_appends(self) -> int:
        self.looks += 1
        return self.unfinished

    async def looked_at(self) -> None:
        """Return when the server has seen the present state."""
        seen = self.looks
        await eventually(lambda: self.looks > seen + 1)


@dataclass
class Hosted:
    core: Core = field(default_factory=Core)
    closed: bool = False

    async def close(self) -> None:
        self.closed = True


@dataclass
class ClosableListener:
    """The listener, which closes all connections of clients when it is closed."""

    closed: bool = False

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def hosted() -> Hosted:
    return Hosted()


@pytest.fixture
def node(hosted: Hosted) -> ServerNode:
    node = ServerNode(read_settings(ServerConfig, None, SETTINGS))
    node._hosted[0] = cast(HostedPartition, hosted)
    return node


async def test_stop_closes_partitions_after_their_appends_are_resolved(
    node: ServerNode, hosted: Hosted
) -> None:
    early, listener = PausableConnection.to(node), ClosableListener()
    node.listener = cast(Listener, listener)
    stopping = asyncio.create_task(node.stop())
    await eventually(lambda: not early.reading)
    late = PausableConnection.to(node)
    assert not late.reading
    for open_appends in (2, 1):
        hosted.core.unfinished = open_appends
        await hosted.core.looked_at()
        assert not listener.closed, "the clients would not get the outcomes"
        assert not hosted.closed
    hosted.core.unfinished = 0
    await stopping
    assert listener.closed
    assert hosted.closed


async def test_stop_does_not_wait_for_a_partition_without_a_session(
    node: ServerNode, hosted: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    stopping = asyncio.create_task(node.stop())
    await hosted.core.looked_at()
    assert not hosted.closed
    hosted.core.store.is_open = False
    await stopping
    assert hosted.closed
    assert "no outcome" not in caplog.text, "it waited until the time limit"


async def test_stop_logs_appends_that_stay_unresolved(
    node: ServerNode,
    hosted: Hosted,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_module, "_FINISH_SECONDS", 0.05)
    await node.stop()
    assert hosted.closed
    assert "3 appends have no outcome after 0.05 s" in caplog.text


async def test_stop_keeps_overloaded_connections_paused(node: ServerNode, hosted: Hosted) -> None:
    paused = PausableConnection.to(node)
    hosted.core.overloaded = True
    node.pause_client(cast(FrameConnection, paused), 0)
    stopping = asyncio.create_task(node.stop())
    hosted.core.overloaded = False
    await hosted.core.looked_at()
    assert not paused.reading
    hosted.core.unfinished = 0
    await stopping


class StartsForEver:
    """A node whose ZooKeeper does not answer."""

    def __init__(self) -> None:
        self.stopped = False

    async def listen(self) -> None:
        await asyncio.Event().wait()

    async def stop(self) -> None:
        self.stopped = True


async def test_server_can_be_stopped_while_it_starts() -> None:
    node, stop = StartsForEver(), asyncio.Event()
    running = asyncio.ensure_future(run_node(cast(ServerNode, node), stop))
    await asyncio.sleep(0)
    stop.set()
    await asyncio.wait_for(running, 60)
    assert node.stopped
