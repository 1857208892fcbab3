"""Test that a proxy forwards, holds one direction, and drops what it has held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.chaos.proxies import NO_FAULTS, LinkFaults, Passage, Proxy
from waltz.local.core.plan import HOST
from waltz.local.ports import choose_ports

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that returns each line, and counts them."""

    def __init__(self) -> None:
        self.received = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.received.set()
            writer.write(line)
        writer.close()


@pytest.fixture
async def world() -> AsyncIterator[tuple[Proxy, int, Echo]]:
    front, behind = choose_ports(2)
    echo, proxy = Echo(), Proxy(front, behind)
    server = await asyncio.start_server(echo.serve, HOST, behind)
    await proxy.start()
    yield proxy, front, echo
    await proxy.stop()
    server.close()


async def test_proxy_without_faults_forwards_both_directions(
    world: tuple[Proxy, int, Echo],
) -> None:
    _, front, _ = world
    reader, writer = await asyncio.open_connection(HOST, front)
    writer.write(b"one\n")
    assert await reader.readline() == b"one\n"
    writer.close()


async def test_proxy_that_holds_answers_passes_requests_and_drops_the_connection(
    world: tuple[Proxy, int, Echo],
) -> None:
    proxy, front, echo = world
    await proxy.set(LinkFaults(answers=Passage.HELD))
    reader, writer = await asyncio.open_connection(HOST, front)
    writer.write(b"one\n")
    await echo.received.wait()
    await proxy.set(NO_FAULTS)
    assert await reader.read() == b"", "what was held does not arrive later"
    writer.close()
