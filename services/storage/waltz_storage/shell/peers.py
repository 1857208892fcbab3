"""The other storages of the cluster: how this storage finds them, and the state of their replicas.

Touches ZooKeeper and the network; changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
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
"""The time that ZooKeeper and the storages have for all their answers together."""


class PeersUnknown(Exception):
    """ZooKeeper could not be read. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Peers:
    """``open_metadata`` opens the metadata in ZooKeeper, ``network`` connections with ``tls``."""

    open_metadata: Callable[[], AbstractAsyncContextManager[Cluster]]
    tls: TlsConfig
    network: Network

    async def observe(
        self, partitions: Sequence[int], *, damage: bool = False
    ) -> tuple[ReplicaObservation, StoreParams]:
        """Query the storages to which ``partitions`` are assigned; return also the cluster's key.

        With ``damage``, the storages are asked for their damaged records, too. A storage that does
        not answer has its problem in the observation. Raises PeersUnknown.
        """
        try:
            async with asyncio.timeout(_ANSWER_SECONDS), self.open_metadata() as cluster:
                assignments = (await cluster.storage_maps()).assignments
                storages = frozenset(s for p in partitions for s in assignments.storages_of(p))
                observer = ReplicaObserver(
                    cluster,
                    self.tls,
                    answer_seconds=_ANSWER_SECONDS / 3,
                    retry=False,
                    network=self.network,
                )
                scope = ObservationScope(
                    tuple(partitions), storages, query_peers=False, damage=damage
                )
                return await observer.observe(scope), await cluster.store_params()
        except (
            BadRoot,
            MalformedMetadata,
            NoCluster,
            StoreError,
            TimeoutError,
            TlsConfigError,
        ) as problem:
            raise PeersUnknown(f"ZooKeeper: {problem or 'no answer in time'}") from problem
