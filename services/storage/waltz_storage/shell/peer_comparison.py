"""Compare the own replicas with those of other storages after a pass of the scrubber.

The checksums of single records show damage. A comparison also finds records that are valid but not
the same on all replicas. Nothing is repaired, because no checksum says which version is wrong.
Touches ZooKeeper and the network; changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from waltz.admin.core.comparison import ComparisonResult, RangeSum
from waltz.admin.replica_comparison import SumQueries
from waltz.net import TlsConfigError
from waltz.runtime.core.token_bucket import TokenBucket
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.comparison_plan import (
    due_partitions,
    replica_comparison,
    slice_size,
)
from waltz_storage.core.scrub.differences import Differences
from waltz_storage.core.scrub.listing import listed
from waltz_storage.shell.peers import Peers, PeersUnknown

log = logging.getLogger(__name__)

_BURST_BYTES = 4 << 20
"""How many bytes are compared at once after a pause."""
_LEAST_BYTES = 64 << 10
"""For the rate, each request counts as at least this many bytes. Otherwise requests that fail, or
find few records, would follow each other without a pause."""


class PeerComparison:
    """Compares after each pass, at ``bytes_per_second``; ``differences`` has what was found.

    The rate limits what all storages together read for the comparisons of this storage. Every
    storage of a cluster begins comparisons, so each of them reads about this much for all
    comparisons together.

    A partition with n replicas is due after every n-th pass of each of its storages
    (`due_partitions`). ``pass_offset`` is added to the number of each pass. If storages that start
    at the same time had the same offset, all of them would compare a partition after the same pass,
    and none after the n - 1 passes between.
    """

    def __init__(
        self,
        differences: Differences,
        directory: StorageDirectory,
        peers: Peers,
        bytes_per_second: int,
        clock: Callable[[], float],
        pass_offset: int = 0,
    ) -> None:
        self._differences = differences
        self._directory = directory
        self._peers = peers
        self._clock = clock
        self._pass_offset = pass_offset
        self._bucket = TokenBucket(bytes_per_second, _BURST_BYTES, clock())
        self._unreachable: dict[str, str] = {}
        """The storages that did not answer in the present call of `compare`, each with the reason.

        They are not queried again in this call: each query could take its whole time limit."""

    async def compare(self, passes: int) -> None:
        """Compare the partitions that are due after the pass number ``passes``."""
        # Copied in one step, because other threads open and close partitions.
        open_partitions = dict(self._directory.partitions)
        self._differences.keep(open_partitions)
        # The slice sizes of the partitions that have records.
        slice_sizes = {
            number: slice_size(each.log.size_bytes, each.log.max_id + 1)
            for number, each in sorted(open_partitions.items())
            if each.log.max_id >= 0
        }
        if not slice_sizes:
            return
        self._unreachable = {}
        results: dict[int, ComparisonResult] = {}
        try:
            for partition in await self._due(tuple(slice_sizes), passes):
                results[partition] = await self._compare(partition, slice_sizes[partition])
        except (PeersUnknown, TlsConfigError) as problem:
            log.warning(
                "comparison: %s; the replicas are compared after a later pass of the scrubber",
                problem,
            )
            if not results:
                return
        self._log(results)

    async def _due(self, partitions: tuple[int, ...], passes: int) -> tuple[int, ...]:
        """Return which of ``partitions`` are due now, and all whose replicas are known to differ.

        The latter are compared after every pass, so that the metrics soon no longer show a
        difference that an administrator has removed. Raises PeersUnknown.
        """
        assigned = await self._peers.assigned(partitions)
        # A partition that has only one replica left has no known difference any more.
        self._differences.keep({p for p, replicas in assigned.items() if len(replicas) > 1})
        due = due_partitions(assigned, self._pass_offset + passes)
        return tuple(sorted({*due, *self._differences.known}))

    async def _compare(self, partition: int, slice_ids: int) -> ComparisonResult:
        """Compare the replicas of one partition, ``slice_ids`` transactions at a time.

        A difference that is new is logged. Raises PeersUnknown, TlsConfigError.
        """
        result, assigned = await self._result(partition, slice_ids)
        difference = result.difference
        if difference is not None:
            # During a long comparison, a replica may have left the session. It may then have
            # records that a recovery is about to remove, and these are no difference. So the
            # transaction is compared once more, by a new observation of which replicas take part.
            again, _ = await self._result(partition, slice_ids=1, only_id=difference.transaction_id)
            result = replace(result, difference=again.difference)
        new = self._differences.note(partition, result, assigned)
        if new is not None:
            log.error(
                "comparison: %s; nothing is repaired, because each version is valid: find the "
                "wrong replica with waltz storage compare, and replace it as docs/faults.md "
                "describes",
                new.text(partition),
            )
        return result

    async def _result(
        self, partition: int, slice_ids: int, only_id: int | None = None
    ) -> tuple[ComparisonResult, frozenset[str]]:
        """Return the result of a comparison, and the storages that have the partition.

        The arguments are those of `replica_comparison`. Raises PeersUnknown, TlsConfigError.
        """
        observation, params = await self._peers.observe((partition,), without=self._unreachable)
        assigned = observation.partitions[partition].replicas
        for storage in assigned - self._unreachable.keys():
            problem = observation.storage_problem(storage)
            if problem is not None:
                self._unreachable[storage] = problem
        comparison = replica_comparison(observation, partition, slice_ids, only_id)
        ports = observation.maps.connections.admin_ports
        queries = SumQueries(partition, ports, self._peers.tls, params, self._peers.network)
        id_range = comparison.next_range
        while id_range is not None:
            sums = await queries.sums(comparison.storages, id_range)
            comparison.add_sums(sums)
            read_bytes = sum(each.num_bytes for each in sums.values() if isinstance(each, RangeSum))
            self._differences.compared_bytes += read_bytes
            await self._wait(max(read_bytes, _LEAST_BYTES))
            id_range = comparison.next_range
        result = comparison.result
        # The observation was made without the storages in `_unreachable`, so it only says of them
        # that they are not in the cluster. Use the reason that was noted for each instead.
        problems = {s: self._unreachable.get(s, why) for s, why in result.problems.items()}
        return replace(result, problems=problems), assigned

    async def _wait(self, used_bytes: int) -> None:
        """Take ``used_bytes`` from the rate, and wait until more may be read."""
        self._bucket.take(used_bytes, self._clock())
        await asyncio.sleep(self._bucket.wait_seconds(self._clock()))

    def _log(self, results: dict[int, ComparisonResult]) -> None:
        """Log what was compared after one pass, and which replicas could not be compared."""
        problems = [
            f"partition {partition} on storage {storage}: {reason}"
            for partition, result in results.items()
            for storage, reason in sorted(result.problems.items())
        ]
        log.info(
            "comparison: partitions compared with their other replicas: %d; transactions: %d",
            len(results),
            sum(result.compared_until + 1 for result in results.values()),
        )
        if problems:
            log.warning(
                "comparison: not compared before a later pass of the scrubber: %s",
                listed(problems),
            )
