"""Certificates that are replaced while a process runs, by usable and unusable files."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from waltz.net import (
    PLAINTEXT,
    DialFailed,
    FrameConnection,
    FrameHandler,
    Listener,
    TlsConfig,
    TlsConfigError,
    dial,
)
from waltz.protocol import CLIENT_SERVER
from waltz.protocol.frames import encode_frame

FRAME = encode_frame(CLIENT_SERVER.magic, max(CLIENT_SERVER.versions), b"body")


class Peer(FrameHandler):
    """Records what it receives; on the listening side, sends it back."""

    def __init__(self, *, echoes: bool = False) -> None:
        self.connection: FrameConnection | None = None
        self.bodies: list[bytes] = []
        self.reason: str | None = None
        self._echoes = echoes

    def ready(self, connection: FrameConnection) -> None:
        self.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        self.bodies += bodies
        if self._echoes and self.connection is not None:
            self.connection.send(FRAME * len(bodies))

    def lost(self, reason: str) -> None:
        self.reason = reason

    async def is_served(self) -> bool:
        """Return whether a frame is answered; if not, the connection has ended."""
        await eventually(lambda: self.connection or self.reason)
        if self.connection is not None and self.reason is None:
            had = len(self.bodies)
            self.connection.send(FRAME)
            await eventually(lambda: len(self.bodies) > had or self.reason)
        return self.reason is None


@pytest.fixture
def old(tmp_path: Path) -> Authority:
    return authority(tmp_path, "old")


@pytest.fixture
def new(tmp_path: Path) -> Authority:
    return authority(tmp_path, "new")


@pytest.fixture
def identity(old: Authority) -> TlsConfig:
    return old.issue("server")


@pytest.fixture
async def listener(identity: TlsConfig) -> AsyncIterator[Listener]:
    listener = Listener(CLIENT_SERVER, lambda: Peer(echoes=True), identity)
    listener.start("127.0.0.1", 0)
    yield listener
    await listener.close()


def authority(tmp_path: Path, name: str) -> Authority:
    folder = tmp_path / name
    folder.mkdir()
    return Authority(folder, name)


def install(source: Path | None, target: Path | None) -> None:
    """Replace a file atomically, as a certificate manager does."""
    assert source is not None
    assert target is not None
    part = target.with_suffix(".part")
    shutil.copy(source, part)
    os.replace(part, target)


def install_all(source: TlsConfig, target: TlsConfig) -> None:
    for name in ("certificate", "key", "ca"):
        install(getattr(source, name), getattr(target, name))


async def connect(listener: Listener, tls: TlsConfig) -> Peer:
    peer = Peer()
    await dial("127.0.0.1", listener.port, CLIENT_SERVER, peer, tls)
    return peer


async def is_served(listener: Listener, tls: TlsConfig) -> bool:
    try:
        peer = await connect(listener, tls)
    except DialFailed:
        return False
    served = await peer.is_served()
    if peer.connection is not None:
        peer.connection.close()
    return served


async def test_new_authority_applies_to_new_connections_only(
    listener: Listener, identity: TlsConfig, old: Authority, new: Authority
) -> None:
    old_client = old.issue("client", server_name="server")
    new_client = new.issue("client", server_name="server")
    open_connection = await connect(listener, old_client)
    assert await open_connection.is_served()
    assert not await is_served(listener, new_client)

    install_all(new.issue("server"), identity)

    assert await is_served(listener, new_client)
    assert not await is_served(listener, old_client)
    assert await open_connection.is_served()
    assert open_connection.connection is not None
    open_connection.connection.close()


async def test_dialing_side_uses_replaced_files(
    listener: Listener, identity: TlsConfig, old: Authority, new: Authority
) -> None:
    client = old.issue("client", server_name="server")
    assert await is_served(listener, client)
    install_all(new.issue("server"), identity)
    assert not await is_served(listener, client)
    install_all(new.issue("client"), client)
    assert await is_served(listener, client)


async def test_unusable_replaced_files_keep_the_old_ones_and_are_logged_once(
    listener: Listener, identity: TlsConfig, old: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    client = old.issue("client", server_name="server")
    assert identity.certificate is not None
    identity.certificate.write_text("not a certificate")
    for _ in range(3):
        assert await is_served(listener, client)
    lines = [r.message for r in caplog.records if "keeping the previous ones" in r.message]
    assert len(lines) == 1
    assert str(identity.certificate) in lines[0]

    identity.certificate.unlink()
    assert await is_served(listener, client)
    assert caplog.text.count("keeping the previous ones") == 2


async def test_tls_files_replaced_one_by_one_are_used_when_they_match(
    listener: Listener, identity: TlsConfig, old: Authority
) -> None:
    client = old.issue("client", server_name="renamed")
    assert not await is_served(listener, client)
    renamed = old.issue("renamed")
    install(renamed.certificate, identity.certificate)
    assert not await is_served(listener, client)
    install(renamed.key, identity.key)
    assert await is_served(listener, client)


def test_files_unusable_from_the_start_are_an_error(tmp_path: Path) -> None:
    tls = TlsConfig(ca=tmp_path / "ca.pem")
    for ask in (tls.dialing_context, tls.listening_context, tls.certificate_days_left):
        with pytest.raises(TlsConfigError, match=r"ca\.pem"):
            ask()


def test_encrypted_key_is_refused_without_a_password_prompt(identity: TlsConfig) -> None:
    assert identity.key is not None
    key = serialization.load_pem_private_key(identity.key.read_bytes(), None)
    identity.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(TlsConfigError, match="the key is encrypted"):
        identity.listening_context()


def test_contexts_are_reused_while_the_files_are_unchanged(identity: TlsConfig) -> None:
    assert identity.dialing_context() is identity.dialing_context()
    assert identity.listening_context() is identity.listening_context()
    assert identity.dialing_context() is not identity.listening_context()


def test_tls_config_with_contexts_can_be_pickled(identity: TlsConfig) -> None:
    identity.dialing_context()
    copy = pickle.loads(pickle.dumps(identity))
    assert copy == identity
    assert copy.dialing_context() is not None


def test_days_left_of_a_certificate_follow_the_file(old: Authority, tmp_path: Path) -> None:
    tls = old.issue("server", days=30)
    left = tls.certificate_days_left()
    assert left == pytest.approx(30, abs=0.01)
    install_all(old.issue("server2", days=90), tls)
    assert tls.certificate_days_left() == pytest.approx(90, abs=0.01)


def test_days_left_of_self_signed_and_of_plaintext() -> None:
    left = TlsConfig().certificate_days_left()
    assert left is not None
    assert left > 3000
    assert PLAINTEXT.certificate_days_left() is None


def test_certificate_that_expires_soon_is_logged(
    old: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    old.issue("server", days=30).listening_context()
    assert not caplog.records
    old.issue("server", days=3).listening_context()
    assert "server.pem: expires in 3.0 days, renew it" in caplog.text
    old.issue("server", days=0).listening_context()
    assert "server.pem: expired 0.0 days ago, renew it" in caplog.text
