"""A client that does not agree with the servers about TLS learns it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from waltz.client.core.errors import ClusterUnreachable
from waltz.client.tls_check import check_tls
from waltz.net import PLAINTEXT, FrameHandler, Listener, TlsConfig
from waltz.protocol import CLIENT_SERVER

TLS = TlsConfig()
DEAD = ("127.0.0.1", 1)


class Silent(FrameHandler):
    def received(self, bodies: list[bytes]) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass


@asynccontextmanager
async def server(tls: TlsConfig) -> AsyncIterator[tuple[str, int]]:
    listener = Listener(CLIENT_SERVER, Silent, tls)
    listener.start("127.0.0.1", 0)
    try:
        yield "127.0.0.1", listener.port
    finally:
        await listener.close()


@pytest.mark.parametrize("tls", [TLS, PLAINTEXT])
async def test_agreement_is_silent(tls: TlsConfig) -> None:
    async with server(tls) as endpoint:
        await check_tls([DEAD, endpoint], tls)


async def test_plain_client_at_a_port_with_tls_is_an_error() -> None:
    async with server(TLS) as endpoint, asyncio.timeout(10):
        with pytest.raises(
            ClusterUnreachable, match=r"uses TLS, and this client does not: turn.*on"
        ) as caught:
            await check_tls([DEAD, endpoint], PLAINTEXT)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_client_with_tls_at_a_plain_port_is_an_error() -> None:
    async with server(PLAINTEXT) as endpoint, asyncio.timeout(10):
        with pytest.raises(
            ClusterUnreachable, match="does not use TLS, and this client does"
        ) as caught:
            await check_tls([endpoint], TLS)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@asynccontextmanager
async def silent_endpoint() -> AsyncIterator[tuple[str, int]]:
    """Accept connections, and never send a byte, as a host that drops packets."""
    ended = asyncio.Event()

    async def wait(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[:2]
        ended.set()


@pytest.mark.parametrize(("client", "servers"), [(TLS, PLAINTEXT), (PLAINTEXT, TLS)])
async def test_mismatch_is_reported_although_another_server_is_silent(
    client: TlsConfig, servers: TlsConfig
) -> None:
    async with silent_endpoint() as silent, server(servers) as endpoint:
        with pytest.raises(ClusterUnreachable, match=r"TLS, and this client does"):
            await check_tls([silent, endpoint], client)


async def test_agreement_ends_the_check_although_another_server_is_silent() -> None:
    async with silent_endpoint() as silent, server(TLS) as endpoint, asyncio.timeout(2):
        await check_tls([silent, endpoint], TLS)


async def test_servers_that_cannot_be_reached_are_no_mismatch() -> None:
    await check_tls([DEAD], PLAINTEXT)
    await check_tls([DEAD], TLS)
    closing = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with closing:
        await check_tls([closing.sockets[0].getsockname()[:2]], PLAINTEXT)


async def test_client_without_certificate_at_a_port_that_requires_one_is_an_error(
    tmp_path: Path,
) -> None:
    secured = Authority(tmp_path, "authority").issue("127.0.0.1")
    async with server(secured) as endpoint, asyncio.timeout(10):
        for tls in (TLS, TlsConfig(ca=secured.ca, verify_server_name=False)):
            with pytest.raises(ClusterUnreachable, match="requires a certificate of its CA"):
                await check_tls([DEAD, endpoint], tls)
        await check_tls([endpoint], replace(secured, verify_server_name=False))


async def test_server_that_stops_during_the_handshake_requires_no_certificate() -> None:
    """A port that closes every connection may be one of a server that stops."""
    context = TLS.listening_context()
    closing = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    async with closing:
        await check_tls([closing.sockets[0].getsockname()[:2]], TLS)
