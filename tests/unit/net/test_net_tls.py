"""TLS: which peers are accepted or refused, and the reasons that both sides log."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.recording_handler import RecordingHandler
from waltz.net import (
    PLAINTEXT,
    AcceptedConnections,
    DialFailed,
    Listener,
    TlsConfig,
    TlsConfigError,
    dial,
)
from waltz.net import listener as listener_module
from waltz.protocol import CLIENT_SERVER
from waltz.protocol.frames import HEAD_BYTES, encode_frame

SELF_SIGNED = TlsConfig()
MISSING = Path("/no/such/file.pem")
FRAME = encode_frame(CLIENT_SERVER.magic, max(CLIENT_SERVER.versions), b"body" * 1000)


class Echo(RecordingHandler):
    """Sends every body back."""

    def received(self, bodies: list[bytes]) -> None:
        assert self.connection is not None
        for body in bodies:
            self.connection.send(
                encode_frame(CLIENT_SERVER.magic, max(CLIENT_SERVER.versions), body)
            )


@asynccontextmanager
async def listening(tls: TlsConfig) -> AsyncIterator[Listener]:
    listener = Listener(CLIENT_SERVER, Echo, tls)
    listener.start("127.0.0.1", 0)
    try:
        yield listener
    finally:
        await listener.close()


async def ask(listener: Listener, tls: TlsConfig) -> RecordingHandler:
    """Dial and wait for one frame to be echoed, or for the end of the connection."""
    handler = RecordingHandler()
    await dial("127.0.0.1", listener.port, CLIENT_SERVER, handler, tls)
    await eventually(lambda: handler.connection or handler.reasons)
    if handler.connection is not None:
        handler.connection.send(FRAME)
        await eventually(lambda: handler.bodies or handler.reasons)
        handler.connection.close()
    return handler


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


async def test_self_signed_listener_accepts_unverified_clients() -> None:
    async with listening(SELF_SIGNED) as listener:
        assert (await ask(listener, SELF_SIGNED)).bodies == [FRAME[HEAD_BYTES:]]


async def test_listener_accepts_tls_1_2() -> None:
    """TLS 1.2 is the newest version that 0.13.2 offers."""
    async with listening(SELF_SIGNED) as listener:
        old = ssl.create_default_context()
        old.check_hostname = False
        old.verify_mode = ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=old)
        hello = CLIENT_SERVER.hello(dialer=False)
        assert await asyncio.wait_for(reader.readexactly(len(hello)), 60) == hello
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
        writer.close()


async def test_mutual_tls_accepts_clients_of_the_authority(authority: Authority) -> None:
    async with listening(authority.issue("server")) as listener:
        client = authority.issue("client", server_name="server")
        assert (await ask(listener, client)).bodies == [FRAME[HEAD_BYTES:]]


async def test_certificates_of_an_intermediate_authority_that_alone_is_trusted_are_accepted(
    authority: Authority, tmp_path: Path
) -> None:
    """A trust store of 0.13.2 may have any trusted certificate, also without that of its issuer."""
    intermediate = Authority(tmp_path, "intermediate", authority)
    async with listening(intermediate.issue("server")) as listener:
        client = intermediate.issue("client", server_name="server")
        assert (await ask(listener, client)).bodies == [FRAME[HEAD_BYTES:]]


@pytest.mark.parametrize(("name", "missed"), [("other", "other"), (None, "127.0.0.1")])
async def test_certificate_of_another_name_is_refused_with_a_hint(
    authority: Authority, name: str | None, missed: str
) -> None:
    async with listening(authority.issue("server")) as listener:
        with pytest.raises(DialFailed) as caught:
            await ask(listener, authority.issue("client", server_name=name))
        assert str(caught.value) == (
            f"TLS handshake with 127.0.0.1:{listener.port} failed: its certificate is not valid "
            f"for '{missed}': set tls.serverName to a name that the certificates of all peers "
            "contain"
        )


async def test_unverified_names_are_accepted_and_logged_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(authority.issue("server")) as listener:
        lenient = replace(authority.issue("client"), verify_server_name=False)
        for _ in range(2):
            assert (await ask(listener, lenient)).bodies == [FRAME[HEAD_BYTES:]]
    levels = [r.levelname for r in caplog.records if "tls.verifyServerName is off" in r.message]
    assert levels == ["WARNING"]


async def test_listener_without_client_verification_logs_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(TlsConfig()):
        assert "every peer is accepted" in caplog.text


async def test_listener_with_a_ca_refuses_clients_without_certificate(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(authority.issue("server")) as listener:
        try:
            handler = await ask(listener, SELF_SIGNED)
        except DialFailed:
            pass  # TLS 1.2: the dialer is in the handshake when it is refused
        else:
            assert "show one by tls.certificate and tls.key" in handler.reasons[0]
            assert handler.bodies == []
        await eventually(lambda: "PEER_DID_NOT_RETURN_A_CERTIFICATE" in caplog.text.upper())
        assert "a client/server connection from 127.0.0.1" in caplog.text


class Ipv6Peer(socket.socket):
    """A socket whose peer has an IPv6 address."""

    def getpeername(self) -> tuple[str, int, int, int]:
        return "::1", 4711, 0, 0


async def test_refused_ipv6_peer_is_logged_with_its_address_in_brackets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections = AcceptedConnections()
    assert connections.enter(CLIENT_SERVER.name, "[::1]:4711")
    listener = Listener(CLIENT_SERVER, Echo, SELF_SIGNED, connections)
    accepted, dialed = socket.socketpair()
    with dialed:
        dialed.send(b"no TLS")
        await listener._open_connection(Ipv6Peer(fileno=accepted.detach()))
    assert "a client/server connection from [::1]:4711 failed: the peer speaks" in caplog.text


async def test_certificate_of_another_authority_is_refused(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").mkdir()
    foreign = Authority(tmp_path / "other", "foreign").issue("client")
    async with listening(authority.issue("server")) as listener:
        with pytest.raises(DialFailed) as caught:
            await ask(listener, foreign)
        assert str(caught.value).startswith(
            f"TLS handshake with 127.0.0.1:{listener.port} failed: CERTIFICATE_VERIFY_FAILED"
        )
        await eventually(lambda: "a client/server connection from" in caplog.text)


async def test_refused_peer_leaves_no_connection(authority: Authority) -> None:
    handlers: list[Echo] = []

    def accept() -> Echo:
        handlers.append(Echo())
        return handlers[-1]

    listener = Listener(CLIENT_SERVER, accept, authority.issue("server"))
    listener.start("127.0.0.1", 0)
    context = TlsConfig().dialing_context()
    assert context is not None
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    await eventually(lambda: handlers and handlers[0].reasons)
    assert handlers[0].connection is None
    await listener.close()
    assert len(handlers[0].reasons) == 1


async def test_plaintext_peer_at_a_tls_listener_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(SELF_SIGNED) as listener:
        handler = await ask(listener, PLAINTEXT)
        assert handler.connection is None
        assert "the peer speaks plaintext, but this listener is set to TLS" in caplog.text


async def test_tls_peer_at_a_plaintext_listener_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(PLAINTEXT) as listener:
        with pytest.raises(DialFailed, match="the peer seems to speak plaintext: turn TLS off"):
            await ask(listener, SELF_SIGNED)
        await eventually(
            lambda: "the peer speaks TLS, but this side is set to plaintext" in caplog.text
        )


async def test_garbage_after_the_tls_handshake_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(SELF_SIGNED) as listener:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", listener.port, ssl=SELF_SIGNED.dialing_context()
        )
        writer.write(b"garbage, and more of it")
        await eventually(lambda: "not a client/server frame" in caplog.text)
        writer.close()


async def test_malformed_tls_hello_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(SELF_SIGNED) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"\x16garbage that is no TLS record")
        await eventually(lambda: "a client/server connection from" in caplog.text)
        writer.close()


async def test_close_does_not_wait_for_a_peer_in_its_handshake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than the timeout of this test: the end of the handshake must not end the wait.
    monkeypatch.setattr(listener_module, "_TLS_HANDSHAKE_SECONDS", 3600.0)
    async with listening(SELF_SIGNED) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await asyncio.sleep(0)
        with warnings.catch_warnings(record=True) as leaks:
            warnings.simplefilter("always", ResourceWarning)
            async with asyncio.timeout(60):
                await listener.close()
                assert await reader.read() == b""
        assert not leaks, "the socket of the peer is left to the garbage handler"
        writer.close()


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (TlsConfig(certificate=MISSING, key=MISSING), "cannot use the TLS files"),
        (TlsConfig(ca=MISSING), "must be readable PEM files"),
        (TlsConfig(certificate=MISSING), "certificate and key go together"),
        (TlsConfig(key=MISSING), "certificate and key go together"),
    ],
)
def test_unusable_tls_settings_are_refused(tls: TlsConfig, reason: str) -> None:
    for make in (tls.listening_context, tls.dialing_context):
        with pytest.raises(TlsConfigError, match=reason):
            make()


def test_tls_files_named_by_texts_are_loaded(authority: Authority) -> None:
    tls = authority.issue("client")
    files: dict[str, Any] = {"certificate": str(tls.certificate), "key": str(tls.key)}
    named = TlsConfig(**files, ca=tls.ca)
    assert named.dialing_context() is not None
    assert named.listening_context() is not None


def test_file_without_a_certificate_is_named_in_the_error(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("not a certificate")
    with pytest.raises(TlsConfigError, match=r"junk\.pem"):
        TlsConfig(certificate=junk, key=junk).listening_context()
