"""Has replicas compared by their storages. Touches ZooKeeper and the network; changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from waltz.metadata.cluster import Cluster
from waltz.metadata.formats import StoreParams
from waltz.net import ConnectionLost, DialFailed, RemoteFailure, TlsConfig
from waltz.operations.comparison import Compared, Comparison, RangeSum
from waltz.operations.observation import Observer
from waltz.operations.replicas import Observed, PartitionView, Scope, ailment
from waltz.operations.storage_admin import StorageAdmin
from waltz.protocol import UnsupportedByPeer

_ANSWER_SECONDS = 60.0
_RECORDS_AT_ONCE = 1000

OnCompared = Callable[[int, int], None]
"""Told the last id that has been compared, and the last that will be."""


class UnknownPartition(LookupError):
    """The cluster has no such partition."""


async def compare_replicas(
    cluster: Cluster,
    tls: TlsConfig,
    partition: int,
    *,
    first_id: int = 0,
    last_id: int | None = None,
    on_compared: OnCompared = lambda _at, _last: None,
) -> Compared:
    """Compare the replicas of ``partition`` from ``first_id`` on, until they differ.

    ``last_id`` must be committed; without it they are compared up to where the present store
    session began. A replica that takes no part in the session counts up to its own mark: what lies
    above may still be cut. Raises UnknownPartition, NoCluster, MalformedMetadata.
    """
    observed = await Observer(cluster, tls, answer_seconds=_ANSWER_SECONDS).observe(
        Scope((partition,))
    )
    view = observed.partitions.get(partition)
    if view is None:
        raise UnknownPartition(f"partition {partition} does not exist")
    if last_id is None:
        last_id = _session_start(observed, view)
    replicas = {s: _counts_up_to(observed, view, s, last_id) for s in view.replicas}
    comparison = Comparison(replicas, last_id, first_id=first_id)
    params = await cluster.store_params()
    ports = (await cluster.connections()).value.admin_ports
    while (asked := comparison.ask) is not None:
        summing = (
            _sum(storage, ports, tls, params, (partition, *asked))
            for storage in comparison.storages
        )
        answers = await asyncio.gather(*summing)
        comparison.answered(dict(zip(comparison.storages, answers, strict=True)))
        on_compared(asked[1], last_id)
    return comparison.result


def _session_start(observed: Observed, view: PartitionView) -> int:
    held = (observed.held(storage, view.partition) for storage in view.replicas)
    return max((each.low_water_mark for each in held if each is not None), default=-1)


def _counts_up_to(observed: Observed, view: PartitionView, storage: str, last_id: int) -> int | str:
    """Return up to where a replica's log is to be compared, or why it cannot be."""
    if problem := observed.storage_problem(storage):
        return problem
    held = observed.held(storage, view.partition)
    if held is None:
        return f"it does not hold partition {view.partition}"
    return last_id if ailment(observed, view, storage) is None else held.low_water_mark


async def _sum(
    storage: str,
    ports: Mapping[str, int],
    tls: TlsConfig,
    params: StoreParams,
    asked: tuple[int, int, int],
) -> RangeSum | str:
    """Return what ``storage`` holds of the range, or why that is not known."""
    if storage not in ports:
        return "it is not in the cluster"
    try:
        async with (
            asyncio.timeout(_ANSWER_SECONDS),
            await StorageAdmin.open(storage, ports[storage], tls, params) as admin,
        ):
            try:
                return await admin.range_checksum(*asked)
            except UnsupportedByPeer:
                return await read_and_sum(admin, *asked)
    except TimeoutError:
        return f"no answer within {_ANSWER_SECONDS:g} s"
    except (ConnectionLost, DialFailed, RemoteFailure) as problem:
        return str(problem)


async def read_and_sum(
    admin: StorageAdmin, partition: int, first_id: int, last_id: int
) -> RangeSum | str:
    """Do what a storage of Waltz 0.13.2 does not: read the records, and sum them up."""
    found = RangeSum(first_id - 1)
    while found.last_id < last_id:
        start = found.last_id + 1
        count = min(_RECORDS_AT_ONCE, last_id - found.last_id)
        records = await admin.records(partition, start, count)
        if not records:
            break
        if (damaged := records.mismatch(start)) is not None:
            return f"transaction {damaged} is damaged"
        found = found.plus(records)
    return found
