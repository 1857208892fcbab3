"""Compare replicas by checksums that their storages compute.

Touches ZooKeeper and the network; changes nothing. `core.comparison` decides which ranges are
compared next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from waltz.admin.core.comparison import (
    SLICE_IDS,
    ComparisonResult,
    RangeSum,
    comparison_of,
)
from waltz.admin.core.replicas import ObservationScope
from waltz.admin.core.steps import EqualReplicas
from waltz.admin.observation import ReplicaObserver
from waltz.admin.offline_copy import MayContinue
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import StoreParams
from waltz.metadata.retry import answered_within
from waltz.net import TCP, ConnectionLost, DialFailed, Network, RemoteFailure, TlsConfig
from waltz.protocol import UnsupportedByPeer

_ANSWER_SECONDS = 60.0
"""The time that a storage has to compute one checksum."""
_OBSERVATION_SECONDS = 5.0
"""The time for the observation in `prove_equality`.

It is short, so that a stopped storage delays the order that needs the proof only a little."""
_RECORDS_AT_ONCE = 1000
"""How many records one request reads from a storage that computes no checksums.

`StorageAdmin.records` reads fewer if they are large."""

OnCompared = Callable[[int, int], None]
"""Called with the last id that was compared so far, and the last id of the comparison."""


class UnknownPartition(LookupError):
    """The cluster has no such partition."""


class NotEqual(Exception):
    """Replicas are not proven to be equal. The text names them and gives the reason."""


async def prove_equality(
    cluster: Cluster,
    tls: TlsConfig,
    condition: EqualReplicas,
    *,
    on_compared: OnCompared = lambda _at, _last: None,
    network: Network = TCP,
) -> None:
    """Return if the replicas that ``condition`` names are equal; raise NotEqual otherwise.

    A replica that cannot be read is not proven to be equal. A replica that ends early, or is not
    healthy, is compared only as far as `comparison_of` allows: a recovery or a copy may still
    change what follows there. ``on_compared`` is called with the progress. Raises also NoCluster,
    MalformedMetadata, OperationTimedOut.
    """
    partition, storages = condition.partition, condition.storages
    result = await compare_replicas(
        cluster,
        tls,
        partition,
        storages=storages,
        observation_seconds=_OBSERVATION_SECONDS,
        metadata_seconds=_OBSERVATION_SECONDS,
        on_compared=on_compared,
        network=network,
    )
    if (difference := result.difference) is not None:
        raise NotEqual(
            f"{difference.text(partition)}; recover the wrong replica, and find it with: "
            "waltz storage compare"
        )
    if result.problems:
        storage, reason = min(result.problems.items())
        raise NotEqual(f"partition {partition} on storage {storage} cannot be compared: {reason}")


async def compare_replicas(
    cluster: Cluster,
    tls: TlsConfig,
    partition: int,
    *,
    storages: frozenset[str] | None = None,
    first_id: int = 0,
    last_id: int | None = None,
    slice_ids: int = SLICE_IDS,
    observation_seconds: float = _ANSWER_SECONDS,
    range_seconds: float = _ANSWER_SECONDS,
    metadata_seconds: float | None = None,
    on_compared: OnCompared = lambda _at, _last: None,
    may_continue: MayContinue = lambda: True,
    network: Network = TCP,
) -> ComparisonResult:
    """Compare the replicas of ``partition`` from ``first_id`` on; stop at the first difference.

    ``storages`` are the storages whose replicas are compared; None: those that ZooKeeper assigns.
    The comparison ends at ``last_id``. If that is None, `comparison_of` chooses the last id. One
    request asks for the checksum of at most ``slice_ids`` transactions.

    Time limits: a storage or a server that has not answered the observation within
    ``observation_seconds`` counts as failed. A storage that has not answered a request for a
    checksum within ``range_seconds`` leaves the comparison. ``metadata_seconds`` is ZooKeeper's
    limit for each group of reads; None: the comparison waits until ZooKeeper answers.

    The comparison ends early when ``may_continue`` returns False; the result says how far it got.
    But first it compares at least one range, if there are two replicas to compare. Without this
    rule, a caller that continues where the last comparison ended might never advance. ``network``
    opens the connections.

    Raises UnknownPartition, NoCluster, MalformedMetadata, OperationTimedOut.
    """
    observer = ReplicaObserver(
        cluster,
        tls,
        answer_seconds=observation_seconds,
        network=network,
        metadata_seconds=metadata_seconds,
    )
    observation = await observer.observe(
        ObservationScope((partition,), storages=storages or frozenset())
    )
    view = observation.partitions.get(partition)
    if view is None:
        raise UnknownPartition(
            f"partition {partition} does not exist; the cluster has partitions 0 to "
            f"{observation.num_partitions - 1}"
        )
    comparison = comparison_of(
        observation,
        view,
        storages=storages,
        first_id=first_id,
        last_id=last_id,
        slice_ids=slice_ids,
    )
    async with answered_within(metadata_seconds):
        params = await cluster.store_params()
        ports = (await cluster.connections()).value.admin_ports
    queries = SumQueries(partition, ports, tls, params, network, answer_seconds=range_seconds)
    while (id_range := comparison.next_range) is not None:
        if comparison.may_pause and not may_continue():
            break
        comparison.add_sums(await queries.sums(comparison.storages, id_range))
        on_compared(comparison.result.compared_until, comparison.last_id)
    return comparison.result


@dataclass(frozen=True, slots=True)
class SumQueries:
    """Requests checksums of ranges of one partition from storages.

    ``ports`` has the admin port of each storage of the cluster; ``params`` identify the cluster.
    A storage has ``answer_seconds`` for each checksum.
    """

    partition: int
    ports: Mapping[str, int]
    tls: TlsConfig
    params: StoreParams
    network: Network = TCP
    answer_seconds: float = _ANSWER_SECONDS

    async def sums(
        self, storages: Sequence[str], id_range: tuple[int, int]
    ) -> dict[str, RangeSum | str]:
        """Return the checksum of a range at each storage, or why it could not be computed.

        ``id_range`` is the first and the last id of the range. A `RangeSum` may cover only the
        beginning of the range: its ``last_id`` tells how far it reaches. Raises TlsConfigError.
        """
        answers = await asyncio.gather(*(self._sum(storage, id_range) for storage in storages))
        return dict(zip(storages, answers, strict=True))

    async def _sum(self, storage: str, id_range: tuple[int, int]) -> RangeSum | str:
        if storage not in self.ports:
            return "it is not in the cluster"
        port = self.ports[storage]
        first_id, last_id = id_range
        try:
            async with (
                asyncio.timeout(self.answer_seconds),
                await StorageAdmin.open(
                    storage, port, self.tls, self.params, self.network
                ) as admin,
            ):
                try:
                    answer = await admin.range_checksum(self.partition, first_id, last_id)
                    if answer.last_id > last_id:
                        return (
                            f"asked for records up to {last_id}, it answered for {answer.last_id}"
                        )
                    return answer
                except UnsupportedByPeer:
                    return await read_and_sum(admin, self.partition, first_id, last_id)
        except TimeoutError:
            return f"no answer within {self.answer_seconds:g} s"
        except (ConnectionLost, DialFailed, RemoteFailure) as problem:
            return str(problem)


async def read_and_sum(
    admin: StorageAdmin, partition: int, first_id: int, last_id: int
) -> RangeSum | str:
    """Read a range of records and return its checksum, or a text that names a damaged transaction.

    This is for a storage of Waltz 0.13.2, which cannot compute the checksum itself. If the replica
    ends early, the result covers only the transactions that the replica holds. Raises RemoteFailure
    and ConnectionLost.
    """
    total = RangeSum(first_id - 1)
    while total.last_id < last_id:
        start = total.last_id + 1
        count = min(_RECORDS_AT_ONCE, last_id - total.last_id)
        records = await admin.records(partition, start, count)
        if not records:
            break  # The replica ends here.
        if (damaged := records.mismatch(start)) is not None:
            return f"transaction {damaged} is damaged"
        total = total.plus(records)
    return total
