"""Ask each server of a ZooKeeper ensemble for its state, without a session. Touches the network.

`kazoo_store` and `waltz.admin` use this if no session can be opened: the answers say which servers
are missing, and why.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from waltz.metadata.core.zookeeper_answers import UNREACHABLE, judge_answer, split_connect_string
from waltz.net import connect_problem, join_address, open_streams

_COMMAND = b"srvr\n"
"""ZooKeeper's only command that is allowed without a setting (``4lw.commands.whitelist``)."""

_MAX_ANSWER_BYTES = 4096
"""ZooKeeper's answer is shorter. Of a longer one, from another service, the rest is not read."""


async def probe_zookeeper(connect_string: str, *, timeout_seconds: float) -> dict[str, str]:
    """Return, for each address (``host:port``) in the connect string, what its server does.

    The text continues a sentence that begins with the address: "answers as leader".
    """
    addresses = split_connect_string(connect_string)
    probes = (_probe(host, port, timeout_seconds) for host, port in addresses)
    answers = await asyncio.gather(*probes)
    names = [join_address(host, port) for host, port in addresses]
    return dict(zip(names, answers, strict=True))


async def _probe(host: str, port: int, timeout_seconds: float) -> str:
    """Return what one server does, as the rest of a sentence; see `probe_zookeeper`."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await open_streams(host, port)
            try:
                writer.write(_COMMAND)
                return judge_answer(await _read_answer(reader))
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except OSError as problem:
        # A TimeoutError with an errno is that of the operating system, which gave up connecting.
        if isinstance(problem, TimeoutError) and problem.errno is None:
            return f"gave no answer within {timeout_seconds:g} s"
        prefix = "unknown host: " if isinstance(problem, socket.gaierror) else ""
        return f"{UNREACHABLE} ({prefix}{connect_problem(problem)})"
    except (OverflowError, ValueError) as problem:
        # The host is not a valid name, or the port is not a valid port number.
        return f"{UNREACHABLE} ({problem})"


async def _read_answer(reader: asyncio.StreamReader) -> bytes:
    """Return what the server sends until it closes the connection.

    One read is not enough, because the answer may arrive in several parts.
    """
    answer = b""
    while len(answer) < _MAX_ANSWER_BYTES:
        part = await reader.read(_MAX_ANSWER_BYTES)
        if not part:
            break
        answer += part
    return answer
