"""A host with several addresses, of which one may be silent, for tests of both event loops."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

SILENT = "127.0.0.2"
"""An address of which the tests let no attempt end."""


def give_addresses(
    monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]
) -> list[socket.socket]:
    """Make two.test resolve to ``addresses``; return the sockets that attempts will use."""
    loop = asyncio.get_running_loop()
    connect, resolve_others = loop.sock_connect, loop.getaddrinfo
    used: list[socket.socket] = []

    async def resolve(host: str, port: int, **options: Any) -> list[Any]:
        if host != "two.test":  # `sock_connect` of uvloop resolves addresses.
            return await resolve_others(host, port, **options)
        kind = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
        return [(*kind, address) for address in addresses]

    async def sock_connect(connecting: socket.socket, address: tuple[str, int]) -> None:
        used.append(connecting)
        if address[0] == SILENT:
            await loop.create_future()
        await connect(connecting, address)

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    return used
