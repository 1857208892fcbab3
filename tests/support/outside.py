"""A network that is outside that of a cluster in one process: only outside addresses lead into it.

`Outside` implements `waltz.net.Network` and records what is dialed.
"""

from __future__ import annotations

from waltz.client import Client, ClientOptions
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.outside import change_outside_addresses
from waltz.net import (
    PLAINTEXT,
    AcceptedConnections,
    DialRefused,
    FrameConnection,
    FrameHandler,
    ListeningPort,
    TlsConfig,
    split_address,
)
from waltz.net.network import NewHandler
from waltz.protocol import ProtocolSpec
from waltz.testing import InProcessCluster
from waltz.testing.network import MemoryHost
from waltz.testing.nodes import ADMIN_PORT, ROOT, SERVER_PORT
from waltz.testing.zookeeper import MemoryStore

OUTSIDE_HOST = "lb.example"


class Outside:
    """The network of one client; ``forwards`` are the registered addresses by outside address."""

    def __init__(self, running: InProcessCluster) -> None:
        self.forwards: dict[str, str] = {}
        self.dialed: list[str] = []
        self._running = running
        self._network: MemoryHost = running.network.host("outside")
        self._last_port = 31_000

    def forward(self, registered: str) -> str:
        """Let a new outside address lead to ``registered``; return the outside address."""
        self._last_port += 1
        outside = f"{OUTSIDE_HOST}:{self._last_port}"
        self.forwards[outside] = registered
        return outside

    def forward_all(self) -> dict[str, str]:
        """Forward to all servers and to both ports of all storages; return what was opened."""
        storages = [storage.address for storage in self._running.storages]
        admin_ports = [f"{storage.host}:{ADMIN_PORT}" for storage in self._running.storages]
        servers = [f"{server.host}:{SERVER_PORT}" for server in self._running.servers]
        return {each: self.forward(each) for each in (*servers, *storages, *admin_ports)}

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        """See Network. Only outside addresses can be reached."""
        address = f"{host}:{port}"
        self.dialed.append(address)
        if address not in self.forwards:
            raise DialRefused(f"cannot reach {address}: Connection refused")
        inside = split_address(self.forwards[address])
        return await self._network.dial(*inside, spec, handler, tls)

    def listener(
        self,
        spec: ProtocolSpec,
        new_handler: NewHandler,
        tls: TlsConfig,
        accepted: AcceptedConnections | None = None,
    ) -> ListeningPort:
        """See Network."""
        return self._network.listener(spec, new_handler, tls, accepted)


def metadata(running: InProcessCluster) -> Cluster:
    """Return the metadata of the cluster, over a new session."""
    return Cluster(running.zookeeper.connect(), ROOT)


async def set_outside(running: InProcessCluster, addresses: dict[str, str]) -> None:
    """Set outside addresses in ZooKeeper, as the operator does."""
    await change_outside_addresses(
        metadata(running), lambda present: present.with_addresses(addresses)
    )


async def open_client(
    running: InProcessCluster,
    outside: Outside,
    access: Access | None = "outside",
    *,
    seconds: float = 30.0,
) -> tuple[Client, MemoryStore]:
    """Open a client in the network ``outside``; return its session with ZooKeeper, too.

    ``seconds`` is the timeout of its calls.
    """
    store = running.zookeeper.connect()
    options = ClientOptions(
        tls=PLAINTEXT, access=access, append_timeout=seconds, answer_timeout=seconds
    )
    client = await Client.over(Cluster(store, ROOT), options, owns_store=True, network=outside)
    return client, store
