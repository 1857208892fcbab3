"""The other storages of the cluster: how this storage finds them, and the state of their replicas.

Touches ZooKeeper and the network; changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.observation import ReplicaObserver
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import StoreParams
from waltz.metadata.core.paths import BadRoot
from waltz.metadata.store import StoreError
from waltz.net import Network, TlsConfig, TlsConfigError

_ANSWER_SECONDS = 30.0
"""The time that ZooKeeper and the storages have for all their answers together.

A third of it is for the storages, which are queried at the same time: one that does not answer must
not use up the time of ZooKeeper."""


class PeersUnknown(Exception):
    """ZooKeeper could not be read, or has not all of the partitions. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Peers:
    """Finds the other storages and queries them.

    ``open_metadata`` opens the metadata in ZooKeeper. ``network`` opens connections, with ``tls``.
    """

    open_metadata: Callable[[], AbstractAsyncContextManager[Cluster]]
    tls: TlsConfig
    network: Network

    async def assigned(self, partitions: Sequence[int]) -> dict[int, frozenset[str]]:
        """Return the storages to which each of ``partitions`` is assigned. Raises PeersUnknown."""
        async with self._metadata() as cluster:
            maps = await cluster.storage_maps()
            return {p: frozenset(maps.assignments.storages_of(p)) for p in partitions}

    async def observe(
        self,
        partitions: Sequence[int],
        *,
        without: Iterable[str] = (),
        damage: bool = False,
    ) -> tuple[ReplicaObservation, StoreParams]:
        """Query the storages to which ``partitions`` are assigned.

        Return the state of their replicas, and the cluster's key and number of partitions.

        The storages ``without`` are not queried. With ``damage``, the queried storages also report
        their damaged records. If a storage does not answer, the observation has the reason. Raises
        PeersUnknown, also if one of the partitions does not exist in the cluster.
        """
        async with self._metadata() as cluster:
            observer = ReplicaObserver(
                cluster,
                self.tls,
                answer_seconds=_ANSWER_SECONDS / 3,
                retry=False,  # The callers try again later by themselves.
                network=self.network,
            )
            # Only the assigned storages are queried, and no servers.
            scope = ObservationScope(
                tuple(partitions),
                query_peers=False,
                assigned=True,
                without=frozenset(without),
                damage=damage,
            )
            observation = await observer.observe(scope)
            missing = [p for p in partitions if p not in observation.partitions]
            if missing:
                count = observation.num_partitions
                raise PeersUnknown(f"partition {missing[0]} is not one of the {count} in ZooKeeper")
            return observation, await cluster.store_params()

    @asynccontextmanager
    async def _metadata(self) -> AsyncIterator[Cluster]:
        """Open the metadata while the context is open. Raises PeersUnknown."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS), self.open_metadata() as cluster:
                yield cluster
        except (
            BadRoot,
            MalformedMetadata,
            NoCluster,
            StoreError,
            TimeoutError,
            TlsConfigError,
        ) as problem:
            # A TimeoutError of `asyncio.timeout` has no text.
            raise PeersUnknown(f"ZooKeeper: {str(problem) or 'no answer in time'}") from problem
