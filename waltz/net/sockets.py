"""Connect to a host that may have several addresses by TCP. Touches the network."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

from waltz.net.core.addresses import MAX_PORT

ATTEMPT_SECONDS = 0.25
"""The time that an address has before the next one is tried, too: the value of RFC 8305.

An address that drops packets gives no answer until the caller's time limit has passed. Without this
bound a host would be unreachable if its first address does so
(test_dial_of_a_host_whose_first_address_is_silent_uses_the_second).
"""

_Info = tuple[int, int, int, str, tuple[Any, ...]]
"""One address of a host, in the form of `socket.getaddrinfo`."""


async def connect_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is connected to the first address of ``host`` that answers.

    ``create_connection`` of asyncio can do this, that of uvloop cannot.

    Raises OSError if no address can be connected to, and ValueError or OverflowError if ``host`` or
    ``port`` is not valid. The caller sets the time limit.
    """
    loop = asyncio.get_running_loop()
    waiting = deque(_alternating(await _resolve(host, port)))
    attempts: set[asyncio.Task[socket.socket | OSError]] = set()
    problems: list[OSError] = []
    try:
        while waiting or attempts:
            if waiting:
                attempts.add(loop.create_task(_connect(waiting.popleft())))
            done, _ = await asyncio.wait(
                attempts,
                timeout=ATTEMPT_SECONDS if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                attempts.discard(attempt)
                result = attempt.result()
                if not isinstance(result, OSError):
                    return result
                problems.append(result)
    finally:
        for attempt in attempts:
            attempt.cancel()
            attempt.add_done_callback(_close_unused)
    raise _one_problem(problems)


async def open_streams(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a connection without TLS to the first address that answers.

    `asyncio.open_connection` under uvloop tries the addresses one after the other. Raises the
    errors of `connect_socket`.
    """
    return await asyncio.open_connection(sock=await connect_socket(host, port))


async def _resolve(host: str, port: int) -> Sequence[_Info]:
    """Return the addresses of ``host``. Raises OSError, ValueError, OverflowError."""
    if not 0 <= port <= MAX_PORT:  # The resolver would use the lowest 16 bits.
        raise OverflowError(f"a port is a number from 0 to {MAX_PORT}")
    try:
        # No thread is needed for a numeric address, and threads may be busy with slow names.
        numeric = socket.AI_NUMERICHOST
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _alternating(infos: Sequence[_Info]) -> list[_Info]:
    """Return the addresses with IPv6 and IPv4 in turn: many hosts have a route for only one."""
    first = [info for info in infos if info[0] == infos[0][0]]
    others = [info for info in infos if info[0] != infos[0][0]]
    turns = chain.from_iterable(zip_longest(first, others))
    return [info for info in turns if info is not None]


async def _connect(info: _Info) -> socket.socket | OSError:
    """Return a socket that is connected to one address, or why it could not be connected."""
    family, kind, protocol, _, address = info
    try:
        connecting = socket.socket(family, kind, protocol)
    except OSError as problem:  # The system may lack the family.
        return _problem_of(address, problem)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, address)
    except OSError as problem:
        connecting.close()
        return _problem_of(address, problem)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _close_unused(attempt: asyncio.Task[socket.socket | OSError]) -> None:
    """Close the socket of an attempt that connected after another one had."""
    if not attempt.cancelled() and not isinstance(result := attempt.result(), OSError):
        result.close()


def _problem_of(address: tuple[Any, ...], problem: OSError) -> OSError:
    """Return the error of one address: the text of ``problem`` differs between event loops."""
    number = problem.errno or 0
    return OSError(number, os.strerror(number), str(address[0]))


def _one_problem(problems: list[OSError]) -> OSError:
    """Return the error for a host whose addresses all failed; without a number if they differ."""
    if len({problem.errno for problem in problems}) == 1:
        return problems[0]
    return OSError("; ".join(f"{problem.filename}: {problem.strerror}" for problem in problems))
