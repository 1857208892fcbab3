"""Read and declare whether the servers of a cluster use TLS. Touches ZooKeeper.

Each server writes into the znode ``transport``, below the cluster's root, whether it uses TLS. It
does so when it registers, and after each assignment that it applies (spec/zookeeper.md section 11).
If the settings of a client do not say whether to use TLS, the client follows this znode
(`tls_of_cluster`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection

from waltz.metadata.cluster import Cluster, NoCluster, VersionedValue
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.server_transport import ServerTransport, Transport, declare, for_clients
from waltz.metadata.optional_znodes import read_optional, try_write
from waltz.metadata.retry import until_answered
from waltz.metadata.store import NodeExists
from waltz.net.tls import PLAINTEXT, TlsConfig

log = logging.getLogger(__name__)


async def read_transport(cluster: Cluster) -> VersionedValue[ServerTransport] | None:
    """Read what the servers have declared; None if no server has. Raises MalformedMetadata."""
    return await until_answered(cluster.store, lambda: _read_once(cluster))


async def tls_of_cluster(cluster: Cluster, tls: TlsConfig | None) -> TlsConfig:
    """Return the TLS settings of a client: ``tls``, or if that is None, what the servers declare.

    Raises MalformedMetadata.
    """
    if tls is not None:
        return tls
    stored = await read_transport(cluster)
    if stored is None:
        return TlsConfig()  # Without declarations a client uses TLS.
    declared = stored.value
    # Read the registered servers only if they can change the result. They can if `clients` is still
    # TLS, and some server has declared plaintext: if all registered servers have, `for_clients`
    # returns plaintext.
    some_are_plaintext = Transport.PLAINTEXT in declared.servers.values()
    if declared.clients is Transport.PLAINTEXT or not some_are_plaintext:
        return tls_as_declared(declared)
    # The registered servers are read after the znode. If a server with TLS registers between these
    # two reads, it has no entry in ``declared``, so the client uses TLS.
    return _tls_settings(for_clients(declared, await _registered(cluster)))


def tls_as_declared(declared: ServerTransport) -> TlsConfig:
    """Return the TLS settings of a client that does not know which servers are registered."""
    return _tls_settings(declared.clients)


def _tls_settings(transport: Transport) -> TlsConfig:
    """Return the settings for ``transport``; `TlsConfig()` uses TLS."""
    return PLAINTEXT if transport is Transport.PLAINTEXT else TlsConfig()


async def _registered(cluster: Cluster) -> Collection[str]:
    """Read the addresses of the registered servers; return none if they cannot be read."""
    try:
        membership = await until_answered(cluster.store, cluster.membership)
    except (MalformedMetadata, NoCluster) as problem:
        log.warning(
            "TLS: failed to read which servers are registered: %s; using the TLS setting that they "
            "declared last",
            problem,
        )
        return ()
    return {member.address for member in membership.servers().values()}


async def restore_transport(cluster: Cluster, declared: ServerTransport) -> None:
    """Write ``declared``, for a cluster that is restored, unless the znode exists already."""

    async def create() -> None:
        with contextlib.suppress(NodeExists):
            await cluster.store.create(cluster.paths.transport, declared.encode())

    await until_answered(cluster.store, create)


async def declare_transport(
    cluster: Cluster, server: str, declaration: Transport, *, has_registered: bool = False
) -> None:
    """Write the ``declaration`` of ``server``, which is its address for clients; see `declare`.

    A server sets ``has_registered`` in its first call after it has created its own znode. Then the
    declaration is written even if nothing changes, to raise the version of the znode ``transport``.
    So the write of another server fails if that server has read the members without this server.

    Raises MalformedMetadata if the znode cannot be decoded; the znode stays as it is, because a
    newer version of Waltz may have written it. Raises AccessDenied without the permission to write,
    NoCluster, NodeMissing.
    """

    async def try_once() -> bool:
        return await _try_declare(cluster, server, declaration, must_write=has_registered)

    while not await until_answered(cluster.store, try_once):
        continue


async def _try_declare(
    cluster: Cluster, server: str, declaration: Transport, *, must_write: bool
) -> bool:
    """Try to declare once; return False if the znode changed meanwhile.

    If the answer to a write is lost, the caller repeats this, and the repetition finds what was
    written.
    """
    # The znode is read before the members. A server that is missing among these members registers
    # later, and then declares again, which raises the version of the znode. If it declares before
    # the write below, this write fails, and the caller repeats it with the new members. If it
    # declares after the write below, it corrects what is written here
    # (test_plaintext_server_that_read_the_members_before_does_not_turn_tls_off).
    stored = await _read_once(cluster)
    members = (await cluster.membership()).servers().values()
    before = None if stored is None else stored.value
    after = declare(before, server, declaration, {member.address for member in members})
    if after == before and not must_write:
        return True
    if not await try_write(cluster.store, cluster.paths.transport, after.encode(), stored):
        return False
    if before is None or before.clients is not after.clients:
        log.info("server %s: declared that clients use %s", server, after.clients.value)
    return True


async def _read_once(cluster: Cluster) -> VersionedValue[ServerTransport] | None:
    """Read what the servers have declared, without retries."""
    return await read_optional(
        cluster.store,
        cluster.paths.transport,
        ServerTransport.decode,
        remedy="say by tls, WALTZ_TLS or --tls whether servers use TLS, or delete the znode and "
        "restart the servers",
    )
