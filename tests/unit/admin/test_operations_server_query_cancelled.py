"""Test that a cancelled query of a server leaves no connection."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from waltz.admin.server_query import ServerQuery
from waltz.net import Network
from waltz.net.tls import PLAINTEXT


class SilentServer:
    """A network with a server that accepts a connection and never answers; the connection, too."""

    def __init__(self) -> None:
        self.dialed, self.closed = asyncio.Event(), asyncio.Event()

    async def dial(self, *_: Any) -> Any:
        return self

    async def handshake(self) -> None:
        self.dialed.set()
        await asyncio.Event().wait()

    def close(self) -> None:
        self.closed.set()


async def test_server_query_cancelled_during_the_handshake_closes_its_connection() -> None:
    server = SilentServer()
    opening = asyncio.create_task(
        ServerQuery.open(("server", 1), PLAINTEXT, network=cast(Network, server))
    )
    await server.dialed.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert server.closed.is_set()
