"""A sample of a cluster's state, and rates computed from two samples. Pure.

A sample has what ZooKeeper and all processes said at about the same time. `waltz.admin.monitoring`
takes samples; `replica_states`, `health` and `sample_checks` judge them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from waltz.admin.core.replicas import HeldPartition
from waltz.admin.core.storage_figures import StorageFigures
from waltz.metadata.core.formats import NO_SESSION, PartitionMetadata
from waltz.metadata.core.membership_steps import Membership
from waltz.metadata.core.storage_maps import StorageMaps
from waltz.protocol.damaged_ranges import DamagedRange


@dataclass(frozen=True, slots=True)
class ServerSample:
    """The report of one server; ``problem`` is why it reported nothing, None if it reported.

    ``refused`` tells whether the server's host refused the connection: then no process listens on
    the port. ``denied`` tells whether the server answered that this client has no right to the
    report. ``marks`` has the high-water mark of each of the server's partitions, None while the
    partition opens. ``health`` has, by partition, whether the store session is open; None if that
    was not queried.
    """

    marks: Mapping[int, int | None] = field(default_factory=dict)
    problem: str | None = None
    health: Mapping[int, bool] | None = None
    refused: bool = False
    denied: bool = False


@dataclass(frozen=True, slots=True)
class StorageSample:
    """The replicas that one storage reported, by partition.

    ``problem`` is why the storage reported nothing, None if it reported. ``damaged`` are the
    records that the storage found damaged. ``figures`` are None if they were not queried.
    """

    held: Mapping[int, HeldPartition] = field(default_factory=dict)
    problem: str | None = None
    damaged: tuple[DamagedRange, ...] = ()
    figures: StorageFigures | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a cluster; ``at`` is when it was sampled, in seconds of a monotonic clock.

    ``membership`` has the servers and the partitions that ZooKeeper assigns to each, ``maps`` has
    the same for storages. ``servers`` and ``storages`` are the reports of the processes themselves.
    """

    at: float
    num_partitions: int
    membership: Membership
    maps: StorageMaps
    metadata: Mapping[int, PartitionMetadata]
    servers: Mapping[int, ServerSample]
    storages: Mapping[str, StorageSample]
    changed_at: Mapping[int, float] = field(default_factory=dict)
    """When the metadata of each partition were last written, in seconds since 1970, if known."""
    _owners: Mapping[int, tuple[int, int]] = field(init=False, repr=False, compare=False)
    """For each assigned partition its server and generation, because `owner` is called often."""

    def __post_init__(self) -> None:
        owners: dict[int, tuple[int, int]] = {}
        for server, owned in self.membership.assignment.servers.items():
            for each in owned:
                # A partition has two servers only in a wrong state; then the first one counts.
                owners.setdefault(each.partition, (server, each.generation))
        object.__setattr__(self, "_owners", owners)  # The dataclass is frozen.

    def owner(self, partition: int) -> tuple[int | None, int | None]:
        """Return the server that ZooKeeper assigns ``partition`` to, and the generation.

        Both are None if there is no such server.
        """
        return self._owners.get(partition, (None, None))

    def endpoint(self, server: int) -> str | None:
        """Return the address of a server, None if ZooKeeper does not have it."""
        member = self.membership.servers().get(server)
        return None if member is None else member.address

    def mark(self, partition: int) -> int | None:
        """Return the high-water mark that the partition's server reported, None without a report.

        The mark is also None while the partition opens.
        """
        server, _ = self.owner(partition)
        if server is None or server not in self.servers:
            return None
        return self.servers[server].marks.get(partition)

    def session(self, partition: int) -> int | None:
        """Return the id of the partition's newest store session, which may not be open yet.

        Return None if no session has begun.
        """
        metadata = self.metadata.get(partition)
        # A server writes the partition's znode before the first session begins.
        if metadata is None or metadata.session_id == NO_SESSION:
            return None
        return metadata.session_id

    def in_session(self, partition: int, storage: str) -> bool:
        """Return whether the replica on ``storage`` takes part in the newest store session."""
        metadata = self.metadata.get(partition)
        return metadata is not None and metadata.takes_part(storage)

    def damaged_records(self, partition: int, storage: str) -> int:
        """Return how many records of a replica its storage found damaged."""
        return damaged_records(self.storages.get(storage, StorageSample()).damaged, partition)

    def lag(self, partition: int, storage: str) -> int | None:
        """Return how many committed transactions ``storage`` lacks, None if that is not known."""
        held = self.storages.get(storage, StorageSample()).held.get(partition)
        mark = self.mark(partition)
        if held is None or held.max_transaction_id is None or mark is None:
            return None
        return max(0, mark - held.max_transaction_id)


def damaged_records(ranges: Iterable[DamagedRange], partition: int) -> int:
    """Return how many records of a partition are in ``ranges``."""
    return sum(each.count for each in ranges if each.partition == partition)


def rate(before: Sample | None, now: Sample, partition: int) -> float | None:
    """Return the transactions per second between two samples.

    The result is None without an earlier sample, or if a sample has no mark of the partition.
    """
    if before is None or now.at <= before.at:
        return None
    first, last = before.mark(partition), now.mark(partition)
    if first is None or last is None:
        return None
    return max(0, last - first) / (now.at - before.at)


def sessions_since(first: Sample, now: Sample, partition: int) -> int:
    """Return how many store sessions have begun since ``first``; each began with a recovery."""
    before, after = first.session(partition), now.session(partition)
    if after is None:
        return 0
    if before is None:
        return after + 1  # The first session has the id 0.
    return after - before
