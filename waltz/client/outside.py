"""Dial the outside addresses of a cluster's servers and storages. Touches network and ZooKeeper.

The addresses that the processes have *registered* in ZooKeeper are valid in the network of the
cluster. ZooKeeper may also map them to *outside addresses*, for clients outside of that network. A
client with the access ``outside`` opens its connections by an `OutsideNetwork`, which replaces each
registered address just before it is dialed (spec/zookeeper.md section 12).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from waltz.client.core.errors import ClusterUnreachable, no_answer_of_zookeeper
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.outside_addresses import Access, OutsideAddresses, storage_addresses
from waltz.metadata.outside import read_outside_addresses
from waltz.metadata.store import StoreError
from waltz.net import (
    TCP,
    AcceptedConnections,
    DialFailed,
    FrameConnection,
    FrameHandler,
    ListeningPort,
    Network,
    TlsConfig,
    TlsMismatch,
    join_address,
    split_address,
)
from waltz.net.network import NewHandler
from waltz.protocol import CLIENT_SERVER, ProtocolSpec

log = logging.getLogger(__name__)

_READ_SECONDS = 2.0
"""How long a dial waits for ZooKeeper before it uses the addresses that were read last."""
_REREAD_SECONDS = 5.0
"""For this long after a failed read, dials use the last addresses and do not read again."""


class NoOutsideAddress(DialFailed):
    """A registered address has no outside address, so it cannot be dialed from outside."""


def network_for(
    cluster: Cluster,
    access: Access | None,
    network: Network = TCP,
    known: OutsideAddresses | None = None,
    known_storages: frozenset[str] = frozenset(),
) -> Network:
    """Return the network by which a process with ``access`` reaches ``cluster``.

    With the access ``inside`` or None it is ``network``, which dials the registered addresses.
    ``known`` are the outside addresses to use while ZooKeeper has none, such as those in a backup
    of a lost cluster. ``known_storages`` are the `storage_addresses` to use while ZooKeeper has no
    cluster.
    """
    if access != "outside":
        return network
    return OutsideNetwork(cluster, network, known, known_storages)


async def read_before_dial(network: Network) -> None:
    """Read the outside addresses that the next dial by ``network`` needs, if it needs any.

    Then a time limit of that dial is for the dial alone, and not for a slow ZooKeeper. There is one
    exception: if two ports have the same outside address, the dial reads the storages from
    ZooKeeper. Raises DialFailed if no outside addresses can be read.
    """
    if isinstance(network, OutsideNetwork):
        await network.read_addresses()


class OutsideNetwork:
    """Dials outside addresses by ``network``, and never the registered ones. Implements `Network`.

    The first dial reads the addresses from ZooKeeper, and so does the first dial after each change
    there. `network_for` explains the arguments.
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network = TCP,
        known: OutsideAddresses | None = None,
        known_storages: frozenset[str] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._known = known
        self._known_storages = known_storages
        self._addresses: OutsideAddresses | None = None
        """The addresses that were read last; None before, and if the cluster has none."""
        self._changes = 0
        """How many changes of the znode ZooKeeper has reported."""
        self._changes_read: int | None = None
        """The value of ``_changes`` when the last successful read began; None before the first."""
        self._failure: str | None = None
        """Why the last read failed; None if it did not."""
        self._failed_at = 0.0
        """When the last read failed, by the event loop's clock."""
        self._reading = asyncio.Lock()
        """Held during a read, so that the dials that are made meanwhile share its result."""

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        """Open a connection to the outside address of ``host:port``.

        With TLS, the certificate must be valid for the outside host, not for ``host``, unless
        ``tls`` demands no name or another one. Raises NoOutsideAddress, TlsMismatch or DialFailed.
        Unless ``spec`` is that of servers, DialFailed is also raised if the port of another storage
        has the same outside address.
        """
        registered = join_address(host, port)
        outside = await self._outside_of(registered, spec)
        try:
            connection = await self._network.dial(*split_address(outside), spec, handler, tls)
        except DialFailed as problem:
            # A DialRefused becomes a DialFailed: it would say that the process does not run, but a
            # load balancer may refuse while the process behind it runs.
            kind = TlsMismatch if isinstance(problem, TlsMismatch) else DialFailed
            raise kind(f"{problem} (outside address of {registered})") from problem
        connection.outside = outside
        return connection

    def listener(
        self,
        spec: ProtocolSpec,
        new_handler: NewHandler,
        tls: TlsConfig,
        accepted: AcceptedConnections | None = None,
    ) -> ListeningPort:
        """See Network."""
        return self._network.listener(spec, new_handler, tls, accepted)

    async def read_addresses(self) -> None:
        """Read the outside addresses, unless they were read after their last change.

        Raises DialFailed if they cannot be read, and were not read before.
        """
        await self._current_addresses()

    async def _outside_of(self, registered: str, spec: ProtocolSpec) -> str:
        """Return the outside address of ``registered``. Raises DialFailed."""
        addresses = await self._current_addresses()
        outside = None if addresses is None else addresses.outside_of(registered)
        if outside is None:
            raise NoOutsideAddress(no_outside_address(self._cluster, addresses, registered))
        assert addresses is not None
        # A server that is dialed in place of another one refuses requests about the other's
        # partitions. But a storage does not say which storage it is. So one storage would answer
        # for two: its replicas would be counted twice, or compared with themselves.
        is_of_server = spec.name == CLIENT_SERVER.name
        sharing = () if is_of_server else addresses.sharing(registered)
        if sharing:
            storages = await self._storages()
            others = [each for each in sharing if each in storages]
            if others:
                raise DialFailed(
                    f"{registered} and {', '.join(others)} have the same outside address "
                    f"{outside}, so it is unknown which storage answers; set the right one of each "
                    f"with: waltz cluster outside set {registered}=HOST:PORT"
                )
        return outside

    async def _storages(self) -> frozenset[str]:
        """Return the registered addresses of storages. Raises DialFailed."""
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return storage_addresses(await self._cluster.storage_maps())
        except NoCluster:
            return self._known_storages
        except (TimeoutError, StoreError, MalformedMetadata) as problem:
            why = str(problem) or f"ZooKeeper did not answer within {_READ_SECONDS:g} s"
            raise DialFailed(f"the storages of the cluster cannot be read: {why}") from problem

    async def _current_addresses(self) -> OutsideAddresses | None:
        """Return the outside addresses, None if the cluster has none; read them after a change.

        If they cannot be read, return those that were read last, or raise DialFailed if none were.
        Dials that are made at the same time wait for one read.
        """
        begun = asyncio.get_running_loop().time()
        async with self._reading:
            if self._changes_read == self._changes:
                return self._addresses
            if self._failure is not None:
                # No read has succeeded yet, and one failed while this call waited for its result:
                # do not read again.
                if self._changes_read is None and begun <= self._failed_at:
                    raise DialFailed(f"the outside addresses cannot be read: {self._failure}")
                # An earlier read has succeeded. While ZooKeeper does not answer, not every dial
                # waits for another read.
                if self._changes_read is not None and begun < self._failed_at + _REREAD_SECONDS:
                    return self._addresses
            return await self._read()

    async def _read(self) -> OutsideAddresses | None:
        """Read the addresses. After an error, do what `_current_addresses` describes."""
        # A change that is reported during the read may be missing in its result. With the count of
        # before the read, the next dial finds that there was a change, and reads again.
        changes = self._changes
        try:
            async with asyncio.timeout(_READ_SECONDS):
                stored = await read_outside_addresses(self._cluster, self._changed)
        except (TimeoutError, StoreError, MalformedMetadata) as problem:
            why = str(problem) or f"ZooKeeper did not answer within {_READ_SECONDS:g} s"
            failed_before = self._failure is not None
            self._failure, self._failed_at = why, asyncio.get_running_loop().time()
            if self._changes_read is None:
                raise DialFailed(f"the outside addresses cannot be read: {why}") from problem
            if not failed_before:
                log.warning("failed to read the outside addresses: %s; using the last ones", why)
            return self._addresses
        self._addresses = self._known if stored is None else stored.value
        self._changes_read = changes
        self._failure = None
        return self._addresses

    def _changed(self) -> None:
        """Note that ZooKeeper has reported a change of the znode."""
        self._changes += 1


async def reachable_from_outside(cluster: Cluster, seconds: float | None) -> dict[str, str]:
    """Return the outside addresses of the registered servers, by registered address.

    Servers without an outside address are left out. The result is empty if no server is registered,
    or there is no cluster.

    If servers are registered and none of them has an outside address, wait for one, because the
    operator writes outside addresses a little after the servers have registered. Raises
    ClusterUnreachable if there is none after ``seconds`` (None: no limit), if ZooKeeper does not
    answer or refuses, or if the data cannot be decoded.
    """
    changed = asyncio.Event()
    zookeeper_answered = False
    addresses: OutsideAddresses | None = None
    registered: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            while True:
                changed.clear()
                membership = await cluster.membership(changed.set)
                stored = await read_outside_addresses(cluster, changed.set)
                registered = sorted(each.address for each in membership.servers().values())
                addresses = None if stored is None else stored.value
                reachable = _outside_addresses_of(registered, addresses)
                if reachable or not registered:
                    return reachable
                if not zookeeper_answered:
                    log.info("no server has an outside address yet; waiting for one")
                zookeeper_answered = True
                await changed.wait()
    except NoCluster:
        return {}
    except (MalformedMetadata, StoreError) as error:
        raise ClusterUnreachable(str(error)) from None
    except TimeoutError:
        if not zookeeper_answered:
            raise no_answer_of_zookeeper(seconds) from None
        raise ClusterUnreachable(no_outside_address(cluster, addresses, *registered)) from None


def no_outside_address(
    cluster: Cluster, addresses: OutsideAddresses | None, *registered: str
) -> str:
    """Return the text of an error: the ports ``registered`` have no outside address."""
    verb = "has" if len(registered) == 1 else "have"
    others_have = addresses is not None and addresses.addresses
    others = "" if others_have else ", nor has any other process"
    return (
        f"{', '.join(registered)} {verb} no outside address in {cluster.paths.outside} in "
        f"ZooKeeper{others}: on Kubernetes, check that the access from outside is open and ready; "
        "in the network of the cluster, use the access inside; or set the address with: "
        f"waltz cluster outside set {registered[0]}=HOST:PORT"
    )


def _outside_addresses_of(
    registered: Collection[str], addresses: OutsideAddresses | None
) -> dict[str, str]:
    """Return the outside addresses of those of ``registered`` that have one."""
    known = {} if addresses is None else addresses.addresses
    return {address: known[address] for address in registered if address in known}
