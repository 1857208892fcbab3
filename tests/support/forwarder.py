"""Forward TCP connections from a free port to another one, as a load balancer does."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16


class Forwarder:
    """Listens on a free port of the loopback address while the context is open."""

    def __init__(self, behind: int) -> None:
        self.accepted = 0
        """How many connections were accepted."""
        self._behind = behind
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop listening, and cut all connections."""
        assert self._server is not None
        self._server.close()
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
            answers, requests = await asyncio.open_connection("127.0.0.1", self._behind)
            writers.append(requests)
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, requests))
                both.create_task(_copy(answers, writer))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass  # Either side is gone, or `close` was called.
        finally:
            for each in writers:
                each.transport.abort()
            self._connections.discard(task)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    raise ConnectionResetError("the sender has closed the connection")
