"""Test that a server knows its clients by their verified certificates, over a real TLS port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, new_append, req_id
from waltz.metadata.core.access_rules import AccessRules, Grant, Right
from waltz.net import Listener, TlsConfig, dial
from waltz.protocol import CLIENT_SERVER
from waltz.protocol import client_server as cs
from waltz.testing import InProcessCluster
from waltz_server.core.access.client_quotas import QuotaLimits
from waltz_server.shell.access_control import AccessControl
from waltz_server.shell.client_connection import ClientConnection

RULES = AccessRules((Grant("app", Right.APPEND, 0, 0), Grant("app", Right.READ, 0, 0)))


class SecuredPort:
    """A second port of an in-process server, with TLS, rules and quotas of its own."""

    def __init__(self, cluster: InProcessCluster, folder: Path, control: AccessControl) -> None:
        node = cluster.servers[0].node
        assert node is not None
        self._authority = Authority(folder, "authority")
        self.listener = Listener(
            CLIENT_SERVER,
            lambda: ClientConnection(node, control=control),
            self._authority.issue("server"),
        )
        self.listener.start("127.0.0.1", 0)

    async def connect(self, name: str) -> RawClient:
        """Connect with a certificate for ``name``."""
        return await self._dial(self._authority.issue(name, server_name="server"))

    async def _dial(self, tls: TlsConfig) -> RawClient:
        client = RawClient()
        client._connection = await dial("127.0.0.1", self.listener.port, CLIENT_SERVER, client, tls)
        await client.connection.handshake()
        return client


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster() as cluster:
        yield cluster


async def test_rights_belong_to_the_name_in_the_certificate(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    control = AccessControl(lambda: 0.0)
    control.replace(RULES)
    port = SecuredPort(cluster, tmp_path, control)
    try:
        app = await port.connect("app")
        await app.mount()
        app.send(new_append("a", 1), cs.FlushRequest(req_id(2)))
        assert await app.take() == [cs.FlushResponse(req_id(2), 0)]
        other = await port.connect("other")
        other.send(cs.HighWaterMarkRequest(req_id(1)))
        (denied,) = await other.take()
        assert isinstance(denied, cs.RequestDenied)
        assert "(certificate of other)" in (denied.error or "")
    finally:
        await port.listener.close()


async def test_clients_with_different_certificates_have_quotas_of_their_own(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    control = AccessControl(lambda: 0.0, limits=QuotaLimits(connections=1))
    port = SecuredPort(cluster, tmp_path, control)
    try:
        first = await port.connect("first")
        second = await port.connect("second")
        again = await port.connect("first")
        await eventually(lambda: again.lost_because is not None)
        assert first.lost_because is None
        assert second.lost_because is None
    finally:
        await port.listener.close()
