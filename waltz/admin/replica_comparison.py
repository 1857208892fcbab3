"""Compare replicas by checksums that their storages compute.

Touches ZooKeeper and the network; changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from waltz.admin.core.comparison import (
    SLICE_IDS,
    ComparisonResult,
    RangeSum,
    comparison_of,
)
from waltz.admin.core.replicas import ObservationScope
from waltz.admin.observation import ReplicaObserver
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import StoreParams
from waltz.net import TCP, ConnectionLost, DialFailed, Network, RemoteFailure, TlsConfig
from waltz.protocol import UnsupportedByPeer

_ANSWER_SECONDS = 60.0
"""The time that a storage has to compute one checksum."""
_RECORDS_AT_ONCE = 1000
"""How many records one request reads from a storage that computes no checksums."""

OnCompared = Callable[[int, int], None]
"""Called with the last id that was compared so far, and the last id of the comparison."""


class UnknownPartition(LookupError):
    """The cluster has no such partition."""


async def compare_replicas(
    cluster: Cluster,
    tls: TlsConfig,
    partition: int,
    *,
    first_id: int = 0,
    last_id: int | None = None,
    slice_ids: int = SLICE_IDS,
    on_compared: OnCompared = lambda _at, _last: None,
    network: Network = TCP,
) -> ComparisonResult:
    """Compare the replicas of ``partition`` from ``first_id`` on; stop at the first difference.

    The comparison ends at ``last_id``. If that is None, `comparison_of` chooses the last id. One
    request asks for the checksum of at most ``slice_ids`` transactions. ``network`` opens the
    connections. Raises UnknownPartition, NoCluster, MalformedMetadata.
    """
    observer = ReplicaObserver(cluster, tls, answer_seconds=_ANSWER_SECONDS, network=network)
    observation = await observer.observe(ObservationScope((partition,)))
    view = observation.partitions.get(partition)
    if view is None:
        raise UnknownPartition(f"partition {partition} does not exist")
    comparison = comparison_of(
        observation, view, first_id=first_id, last_id=last_id, slice_ids=slice_ids
    )
    params = await cluster.store_params()
    ports = (await cluster.connections()).value.admin_ports
    while (id_range := comparison.next_range) is not None:
        queries = (
            _query_sum(storage, ports, tls, params, partition, id_range, network)
            for storage in comparison.storages
        )
        answers = await asyncio.gather(*queries)
        comparison.add_sums(dict(zip(comparison.storages, answers, strict=True)))
        on_compared(id_range[1], comparison.last_id)
    return comparison.result


async def _query_sum(
    storage: str,
    ports: Mapping[str, int],
    tls: TlsConfig,
    params: StoreParams,
    partition: int,
    id_range: tuple[int, int],
    network: Network,
) -> RangeSum | str:
    """Return the checksum of a range at ``storage``, or why it could not be computed.

    ``id_range`` is the first and the last id of the range. The result may cover only the beginning
    of the range: its ``last_id`` tells how far it reaches.
    """
    if storage not in ports:
        return "it is not in the cluster"
    try:
        async with (
            asyncio.timeout(_ANSWER_SECONDS),
            await StorageAdmin.open(storage, ports[storage], tls, params, network) as admin,
        ):
            try:
                return await admin.range_checksum(partition, *id_range)
            except UnsupportedByPeer:
                return await read_and_sum(admin, partition, *id_range)
    except TimeoutError:
        return f"no answer within {_ANSWER_SECONDS:g} s"
    except (ConnectionLost, DialFailed, RemoteFailure) as problem:
        return str(problem)


async def read_and_sum(
    admin: StorageAdmin, partition: int, first_id: int, last_id: int
) -> RangeSum | str:
    """Read a range of records and return its checksum, or which transaction is damaged.

    A storage of Waltz 0.13.2 cannot compute the checksum itself. If the replica ends early, the
    result covers only the transactions that the replica holds.
    """
    total = RangeSum(first_id - 1)
    while total.last_id < last_id:
        start = total.last_id + 1
        count = min(_RECORDS_AT_ONCE, last_id - total.last_id)
        records = await admin.records(partition, start, count)
        if not records:
            break
        if (damaged := records.mismatch(start)) is not None:
            return f"transaction {damaged} is damaged"
        total = total.plus(records)
    return total
