"""Connect by TCP to a host that may have several addresses. Touches the network."""

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

An address that drops packets gives no answer at all. If such an address is the first one of a host,
waiting for its answer would use up the caller's time limit, and the host would be unreachable
(test_dial_of_a_host_whose_first_address_is_silent_uses_the_second).
"""

_AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""One address of a host, in the form of `socket.getaddrinfo`. The family is the first item."""


async def connect_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is connected to the first address of ``host`` that answers.

    asyncio's own ``create_connection`` can do this, too, but that of uvloop cannot.

    Raises OSError if no address can be connected to, and ValueError or OverflowError if ``host`` or
    ``port`` is not valid. The caller sets the time limit.
    """
    loop = asyncio.get_running_loop()
    # The addresses to which no attempt has been made yet.
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


async def _resolve(host: str, port: int) -> Sequence[_AddressInfo]:
    """Return the addresses of ``host``. Raises OSError, ValueError, OverflowError."""
    if not 0 <= port <= MAX_PORT:  # The resolver would use only the lowest 16 bits.
        raise OverflowError(f"a port is a number from 0 to {MAX_PORT}")
    try:
        # A numeric address needs no thread of the resolver. All threads may be busy with names that
        # resolve slowly.
        numeric = socket.AI_NUMERICHOST
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _alternating(infos: Sequence[_AddressInfo]) -> list[_AddressInfo]:
    """Return the addresses with IPv6 and IPv4 in turn.

    Many hosts have a route for only one family. With all addresses of the other family first, each
    of them would delay the connection. The family of the first address stays first.
    """
    first_family = infos[0][0]
    of_first_family = [info for info in infos if info[0] == first_family]
    others = [info for info in infos if info[0] != first_family]
    in_turn = chain.from_iterable(zip_longest(of_first_family, others))
    return [info for info in in_turn if info is not None]


async def _connect(info: _AddressInfo) -> socket.socket | OSError:
    """Return a socket that is connected to one address, or the error if that failed."""
    family, kind, protocol, _, address = info
    try:
        connecting = socket.socket(family, kind, protocol)
    except OSError as problem:  # The system may lack this address family.
        return _problem_of(address, problem)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, address)
    except OSError as problem:
        connecting.close()
        return _problem_of(address, problem)
    except BaseException:  # Above all the cancellation by `connect_socket`.
        connecting.close()
        raise
    return connecting


def _close_unused(attempt: asyncio.Task[socket.socket | OSError]) -> None:
    """Close the socket of an attempt that connected before it could be cancelled."""
    if attempt.cancelled():
        return
    result = attempt.result()
    if not isinstance(result, OSError):
        result.close()


def _problem_of(address: tuple[Any, ...], problem: OSError) -> OSError:
    """Return an error with the number of ``problem``, a standard text, and the host's address.

    The text of ``problem`` itself differs between event loops.
    """
    number = problem.errno or 0
    return OSError(number, os.strerror(number), str(address[0]))


def _one_problem(problems: list[OSError]) -> OSError:
    """Return the error for a host whose addresses have all failed.

    If the errors have different numbers, the result has no number, and names all addresses.
    """
    if len({problem.errno for problem in problems}) == 1:
        return problems[0]
    return OSError("; ".join(f"{problem.filename}: {problem.strerror}" for problem in problems))
