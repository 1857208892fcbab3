"""Dialing a host with several addresses."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from tests.support.event_loops import NewLoop, both_loops, run_on
from tests.support.several_addresses import SILENT, give_addresses
from waltz.net import (
    PLAINTEXT,
    AcceptedConnections,
    DialFailed,
    DialRefused,
    FrameHandler,
    Listener,
    dial,
)
from waltz.net import sockets as sockets_module
from waltz.protocol import CLIENT_SERVER

HOST = "127.0.0.1"


class Peer(FrameHandler):
    """A handler that needs nothing of its connection."""

    def received(self, bodies: list[bytes]) -> None:
        """Ignore the messages."""

    def lost(self, reason: str) -> None:
        """Ignore the loss."""


def unused_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


@both_loops
def test_dial_of_a_host_whose_first_address_is_silent_uses_the_second(
    new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dial_it() -> None:
        listener = Listener(CLIENT_SERVER, Peer, PLAINTEXT)
        listener.start(HOST, 0)
        used = give_addresses(monkeypatch, (SILENT, 1), (HOST, listener.port))
        try:
            connection = await dial("two.test", 1, CLIENT_SERVER, Peer(), PLAINTEXT, 5.0)
            await connection.handshake()
            connection.close()
            silent, _ = used
            assert silent.fileno() == -1
        finally:
            await listener.close()

    run_on(new_loop, dial_it())


async def test_dial_of_silent_addresses_times_out_and_closes_their_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets_module, "ATTEMPT_SECONDS", 0.0)
    used = give_addresses(monkeypatch, (SILENT, 1), (SILENT, 2))
    with pytest.raises(DialFailed, match=r"^cannot reach two\.test:1: no answer within 0\.1 s$"):
        await dial("two.test", 1, CLIENT_SERVER, Peer(), PLAINTEXT, 0.1)
    await asyncio.sleep(0)  # The cancelled attempts end.
    assert [attempt.fileno() for attempt in used] == [-1, -1]


async def test_dial_of_a_host_that_refuses_at_every_address_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_addresses(monkeypatch, (HOST, unused_port()), ("127.0.0.3", unused_port()))
    with pytest.raises(DialRefused, match=r"^cannot reach two\.test:1: Connection refused$"):
        await dial("two.test", 1, CLIENT_SERVER, Peer(), PLAINTEXT)


async def test_dial_error_of_several_addresses_has_the_reason_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_addresses(monkeypatch, (HOST, unused_port()), ("127.0.0.3", 1))
    connect = asyncio.get_running_loop().sock_connect

    async def sock_connect(connecting: socket.socket, address: tuple[str, int]) -> None:
        if address[0] != HOST:
            raise OSError(errno.EHOSTUNREACH, "Connect call failed")
        await connect(connecting, address)

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", sock_connect)
    reasons = r"127\.0\.0\.1: Connection refused; 127\.0\.0\.3: No route to host"
    with pytest.raises(DialFailed, match=rf"^cannot reach two\.test:1: {reasons}$") as caught:
        await dial("two.test", 1, CLIENT_SERVER, Peer(), PLAINTEXT)
    assert not isinstance(caught.value, DialRefused)


async def test_dial_of_two_addresses_that_both_connect_keeps_one_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both attempts end before the dialer runs again; one socket must not stay open unused."""
    monkeypatch.setattr(sockets_module, "ATTEMPT_SECONDS", 0.0)
    counted = AcceptedConnections()
    listener = Listener(CLIENT_SERVER, Peer, PLAINTEXT, counted)
    listener.start(HOST, 0)
    used = give_addresses(monkeypatch, (HOST, listener.port), (HOST, listener.port))
    begun = asyncio.Event()
    connect = asyncio.get_running_loop().sock_connect

    async def sock_connect(connecting: socket.socket, address: tuple[str, int]) -> None:
        await connect(connecting, address)
        if len(used) == 2:
            asyncio.get_running_loop().call_soon(begun.set)
        await begun.wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", sock_connect)
    try:
        connection = await dial("two.test", 1, CLIENT_SERVER, Peer(), PLAINTEXT)
        await connection.handshake()
        assert sorted(attempt.fileno() == -1 for attempt in used) == [False, True]
        connection.close()
    finally:
        await listener.close()


async def test_dial_of_a_port_out_of_range_is_refused() -> None:
    """The resolver would use the lowest 16 bits of the number."""
    with pytest.raises(DialFailed, match="not an address"):
        await dial(HOST, 65_536 + unused_port(), CLIENT_SERVER, Peer(), PLAINTEXT)
