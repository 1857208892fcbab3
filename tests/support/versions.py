"""Run processes and clients that are limited to the protocol versions of Waltz 0.13.2."""

from __future__ import annotations

import asyncio
from pathlib import Path

from waltz.client import Client, ClientOptions
from waltz.client.opening import Opening
from waltz.local import LocalCluster
from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_store import KazooStore
from waltz.protocol import ADMIN, CLIENT_SERVER, STORAGE, FrameDecoder, ProtocolSpec

OLD, NEW = "0.13.2", "ours"
"""The two versions: the protocol versions of Waltz 0.13.2, and all that this product has."""

_PROGRAMS = Path(__file__).parent / "older"
_OLD_CLIENT = CLIENT_SERVER.limited_to(0, 1, 2, 3, 4)
_AGREED = {
    ("server", OLD): (4,),
    ("server", NEW): (7,),
    ("storage", OLD): (0, 0),
    ("storage", NEW): (3, 3),
}
"""The protocol version on each port of a process, with a peer that offers all versions.

A storage has two ports: for servers, and for administration.
"""
_SESSION_MS = 6000


def client_of_version(cluster: LocalCluster, version: str) -> Opening[Client[bytes]]:
    """Open a client of version OLD or NEW."""

    async def open_it() -> Client[bytes]:
        store = await KazooStore.connect(cluster.zookeeper, _SESSION_MS)
        metadata = Cluster(store, cluster.root)
        options = ClientOptions(tls=cluster.tls)
        spec = _OLD_CLIENT if version == OLD else CLIENT_SERVER
        return await Client.over(metadata, options, owns_store=True, spec=spec)

    return Opening(open_it)


def older_programs(*names: str) -> dict[str, Path]:
    """Return the programs that run the processes of these names in the old version."""
    return {name: _PROGRAMS / f"{_kind(name)}.py" for name in names}


async def restart_in_version(
    cluster: LocalCluster, programs: dict[str, Path], name: str, version: str
) -> None:
    """Start an ended process in ``version``; ``programs`` are the cluster's."""
    programs.pop(name, None)
    if version == OLD:
        programs |= older_programs(name)
    await cluster.start_one(name)
    await check_version(cluster, name, version)


async def check_version(cluster: LocalCluster, name: str, version: str) -> None:
    """Assert that a process chooses ``version`` with a peer that offers all versions."""
    plan, number = cluster.plan, int(name.partition("/")[2])
    if _kind(name) == "server":
        listeners = [(CLIENT_SERVER, plan.servers[number].port)]
    else:
        storage = plan.storages[number]
        listeners = [(STORAGE, storage.port), (ADMIN, storage.admin)]
    agreed = tuple([await _agreed_version(spec, port) for spec, port in listeners])
    assert agreed == _AGREED[_kind(name), version], f"{name} is not of version {version}"


async def _agreed_version(spec: ProtocolSpec, port: int) -> int:
    """Return the version that the process at ``port`` chooses."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(spec.hello(dialer=True))
    decoder = FrameDecoder(spec)
    while decoder.version is None:
        chunk = await reader.read(1000)
        assert chunk, "the connection was closed"
        decoder.feed(chunk)
    writer.close()
    await writer.wait_closed()
    return decoder.version


def _kind(name: str) -> str:
    return name.partition("/")[0]
