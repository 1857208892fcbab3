"""The HTTP port of a process: its end does not depend on the peers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.support.eventually import eventually
from waltz.runtime import http
from waltz.runtime.http import serve_http
from waltz.runtime.metrics import MetricDeclarations, ProcessMetrics

_LONG_TEXT = "x" * (8 << 20)
"""More than the buffers of two sockets can hold."""


def _metrics() -> ProcessMetrics[None, None]:
    declared: MetricDeclarations[None, None] = MetricDeclarations("g", "g_info", {}, (), (), {})
    return ProcessMetrics(declared, None, lambda: 0.0)


async def test_http_port_closes_while_a_peer_does_not_read_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_OPEN_ANSWERS_SECONDS", 0.01)
    requests: list[bool] = []

    def health() -> tuple[bool, dict[str, Any]]:
        requests.append(True)
        return True, {"text": _LONG_TEXT}

    loop = asyncio.get_running_loop()
    # Without a limit, aiohttp waits 60 s for the peer, and 60 s again.
    async with asyncio.timeout(30):
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.setblocking(False)
            async with serve_http("test", "127.0.0.1", 0, _metrics(), health) as port:
                await loop.sock_connect(peer, ("127.0.0.1", port or 0))
                await loop.sock_sendall(peer, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                await eventually(lambda: requests)
