"""Forward TCP connections, and cut or slow them. Touches sockets of the loopback address."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from waltz.local.core.plan import HOST

_CHUNK_BYTES = 1 << 16
_SLOW_SECONDS = 0.15
"""The delay of each chunk on a slow link."""


class Passage(StrEnum):
    """What happens to the bytes of one direction."""

    OPEN = "open"
    SLOW = "slow"
    HELD = "held"
    """No byte passes, and no side notices: a black hole."""


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """The faults of both directions: to the process behind the proxy, and back."""

    requests: Passage = Passage.OPEN
    answers: Passage = Passage.OPEN


NO_FAULTS = LinkFaults()
"""Bytes pass in both directions without delay."""


class Proxy:
    """A proxy that listens on one port and dials another one; 0: the system chooses the port.

    As a context it runs until the context ends.
    """

    def __init__(self, port: int, behind: int) -> None:
        self.accepted = 0
        """How many connections were accepted."""
        self._port = port
        self._behind = behind
        self._faults = NO_FAULTS
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._drop()

    async def set(self, faults: LinkFaults) -> None:
        """Change both directions; a black hole ends with the connections that it held.

        What was held must not pass later: a network that is repaired does not deliver it, either.
        """
        held = Passage.HELD in (self._faults.requests, self._faults.answers)
        self._faults = faults
        if held:
            await self._drop()

    async def _drop(self) -> None:
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.accepted += 1
        writers = [writer]
        try:
            there, back = await asyncio.open_connection(HOST, self._behind)
            writers.append(back)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, back, answers=False))
                both.create_task(self._forward(there, writer, answers=True))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass  # either side is gone, or the connection is dropped on purpose
        finally:
            for each in writers:
                each.transport.abort()
            self._connections.discard(task)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            match self._faults.answers if answers else self._faults.requests:
                case Passage.HELD:
                    await asyncio.Future()  # until the connection is dropped
                case Passage.SLOW:
                    await asyncio.sleep(_SLOW_SECONDS)
                case Passage.OPEN:
                    pass
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError("the sender has closed the connection")
