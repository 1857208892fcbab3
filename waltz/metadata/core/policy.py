"""Assign partitions to servers after servers have joined, left or changed preferences. Pure.

The rule is that of Waltz 0.13.2 (spec/zookeeper.md section 5), with one correction: every partition
has exactly one owner (test_every_partition_has_exactly_one_owner). 0.13.2 can leave a partition
without an owner if the partitions do not divide evenly. Example: of 5 partitions, 2 servers should
get 3 and 2. If the first server gets 2 preferred partitions, 0.13.2 counts them as 3. Then each
server gets 2 partitions, and the fifth has no owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment

Shuffle = Callable[[list[OwnedPartition]], None]
"""Reorders a list in place, usually at random."""


class PolicyError(ValueError):
    """No assignment can be computed from the present znodes. A retry would fail in the same way."""


def assign(
    old: PartitionAssignment,
    cversion: int,
    num_partitions: int,
    members: Mapping[int, tuple[int, ...]],
    shuffle: Shuffle,
) -> PartitionAssignment:
    """Return the assignment for ``members``, a map from server id to preferred partitions.

    ``cversion`` is ZooKeeper's number of changes to the list of ``members``. It is stored with the
    assignment, so that a reader sees whether the list has changed since.

    A partition that stays on its server keeps its generation. A partition that moves, or is new,
    gets the next generation. Servers and clients order the owners of a partition by its generation,
    so two servers must never get the same generation of a partition
    (test_random_faults_never_give_one_generation_to_two_servers). No server has more than its even
    share, unless it prefers more partitions.

    If a server must release partitions later, it releases the last ones of its list. ``shuffle``
    is applied to each list, so that a server does not always release the same partitions.

    Raises PolicyError if there are fewer partitions than before, or if ``old`` does not contain
    each of its partitions exactly once.
    """
    if not members:
        return PartitionAssignment(cversion, num_partitions, {})
    distribution = _Distribution(_pool(old, num_partitions), num_partitions, len(members))
    # There are three rounds. In each round, the servers choose in the order of their ids. First
    # they take the partitions that they prefer. Then they keep partitions that they had before, so
    # that few partitions move. At last they take any partitions that are still free.
    order = sorted(members)
    owned: dict[int, list[OwnedPartition]] = {server: [] for server in order}
    for server in order:
        owned_before = {partition for partition, _ in old.servers.get(server, ())}
        distribution.take_preferred(owned[server], members[server], owned_before)
    for server in order:
        distribution.keep(owned[server], old.servers.get(server, ()))
    for server in order:
        distribution.fill(owned[server])
    for server in order:
        shuffle(owned[server])
    assert not distribution.pool, "a partition without an owner loses its generation"
    assert sum(map(len, owned.values())) == num_partitions, "a partition has two owners"
    return PartitionAssignment(
        cversion, num_partitions, {server: tuple(taken) for server, taken in owned.items()}
    )


def _pool(old: PartitionAssignment, num_partitions: int) -> dict[int, int]:
    """Return a map from every partition to its last generation, 0 for a new partition.

    Raises PolicyError as `assign` does.
    """
    if num_partitions < old.num_partitions:
        raise PolicyError(
            f"the cluster has {num_partitions} partitions but {old.num_partitions} are assigned; "
            "the number of partitions cannot shrink"
        )
    pool: dict[int, int] = {}
    for owned in old.servers.values():
        for partition, generation in owned:
            if partition in pool or not 0 <= partition < old.num_partitions:
                raise PolicyError(
                    f"the stored assignment is damaged: partition {partition} of "
                    f"{old.num_partitions} is listed twice or does not exist"
                )
            pool[partition] = generation
    if len(pool) < old.num_partitions:
        lost = min(set(range(old.num_partitions)) - pool.keys())
        raise PolicyError(
            f"the stored assignment is damaged: partition {lost} has no owner, so that its "
            "generation is unknown"
        )
    return {partition: pool.get(partition, 0) for partition in range(num_partitions)}


class _Distribution:
    """Distributes the free partitions of ``pool``, a map from partition to its last generation.

    Each server has a share of ``_share`` partitions. If the partitions do not divide evenly, a
    surplus remains: some servers get one more partition each. ``_surplus`` is the part of the
    surplus that no server has got yet. Example: with 10 partitions and 3 servers, each share is 3,
    and the surplus is 1.

    If servers prefer more than their shares, the surplus becomes negative, and too few partitions
    may be left for the shares of the others. Example: if the first of the 3 servers prefers 6
    partitions, the surplus becomes -2, and the others get 3 partitions and 1.

    The parameter ``taken`` of each method is the list of the partitions that one server has got so
    far.
    """

    def __init__(self, pool: dict[int, int], num_partitions: int, num_servers: int) -> None:
        self.pool = pool
        self._share, self._surplus = divmod(num_partitions, num_servers)

    def take_preferred(
        self, taken: list[OwnedPartition], preferred: Iterable[int], owned_before: set[int]
    ) -> None:
        """Give a server its preferred partitions that are still free, even beyond its share.

        A partition that the server owned before keeps its generation.
        """
        for partition in preferred:
            if partition not in self.pool:
                continue
            self._give(taken, partition, moved=partition not in owned_before)
            # A preferred partition beyond the share is taken from the surplus.
            if len(taken) > self._share:
                self._surplus -= 1

    def keep(self, taken: list[OwnedPartition], owned_before: Iterable[OwnedPartition]) -> None:
        """Let a server keep partitions that it owned before: its share, and one of the surplus."""
        for partition, _ in owned_before:
            if partition in self.pool:
                if not self._claim_one_more(taken):
                    return
                self._give(taken, partition, moved=False)

    def fill(self, taken: list[OwnedPartition]) -> None:
        """Give a server the lowest free partitions: up to its share, and one of the surplus."""
        for partition in sorted(self.pool):
            if not self._claim_one_more(taken):
                return
            self._give(taken, partition, moved=True)

    def _claim_one_more(self, taken: list[OwnedPartition]) -> bool:
        """Return whether a server that has ``taken`` may get one more, and update the surplus."""
        if len(taken) < self._share:
            return True
        if len(taken) == self._share and self._surplus > 0:
            self._surplus -= 1
            return True
        return False

    def _give(self, taken: list[OwnedPartition], partition: int, *, moved: bool) -> None:
        """Give a free partition to a server, with the next generation if ``moved``."""
        generation = self.pool.pop(partition)
        taken.append(OwnedPartition(partition, generation + 1 if moved else generation))
