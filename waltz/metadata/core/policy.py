"""The assignment of partitions to servers that join, leave or change their preferences. Pure.

The caller provides the shuffling. The rule is that of Waltz 0.13.2 (spec/zookeeper.md section 5)
with a corrected count of the surplus: in 0.13.2, a server whose preferences fill it exactly up to
the minimum is counted as having one more, and partitions can remain without an owner. Here every
partition has exactly one owner (test_every_partition_has_exactly_one_owner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment

Shuffle = Callable[[list[OwnedPartition]], None]
"""Reorders a list in place."""


class PolicyError(ValueError):
    """No assignment can be computed from the znodes; repeating the computation does not help."""


def assign(
    old: PartitionAssignment,
    cversion: int,
    num_partitions: int,
    members: Mapping[int, tuple[int, ...]],
    shuffle: Shuffle,
) -> PartitionAssignment:
    """Return the assignment for ``members``, a map from server id to preferred partitions.

    A partition that stays keeps its generation; one that moves, or is new, gets the next. Servers
    and clients order the owners of a partition by generation, so one must never be given to two
    servers (test_random_faults_never_give_one_generation_to_two_servers). No server has more
    than its even share unless it prefers more. ``shuffle`` is applied to each server's list,
    because later moves take partitions from the end.

    Raises PolicyError if there are fewer partitions than before, or if ``old`` does not contain
    each of its partitions exactly once.
    """
    if not members:
        return PartitionAssignment(cversion, num_partitions, {})
    dealing = _Dealing(_pool(old, num_partitions), num_partitions, len(members))
    order = sorted(members)
    hands: dict[int, list[OwnedPartition]] = {server: [] for server in order}
    for server in order:
        kept = {partition for partition, _ in old.servers.get(server, ())}
        dealing.take_preferred(hands[server], members[server], kept)
    for server in order:
        dealing.keep(hands[server], old.servers.get(server, ()))
    for server in order:
        dealing.fill(hands[server])
    for server in order:
        shuffle(hands[server])
    assert not dealing.pool, "a partition without an owner loses its generation"
    assert sum(map(len, hands.values())) == num_partitions, "a partition has two owners"
    return PartitionAssignment(
        cversion, num_partitions, {server: tuple(hand) for server, hand in hands.items()}
    )


def _pool(old: PartitionAssignment, num_partitions: int) -> dict[int, int]:
    """Return every partition with its last generation; that of a new partition is 0."""
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
        lost = next(p for p in range(old.num_partitions) if p not in pool)
        raise PolicyError(
            f"the stored assignment is damaged: partition {lost} has no owner, so that its "
            "generation is unknown"
        )
    return {p: pool.get(p, 0) for p in range(num_partitions)}


class _Dealing:
    """Deals the pool out, and counts the servers that may still get one over the minimum."""

    def __init__(self, pool: dict[int, int], num_partitions: int, servers: int) -> None:
        self.pool = pool
        self._minimum, self._extra = divmod(num_partitions, servers)

    def take_preferred(
        self, hand: list[OwnedPartition], preferred: Iterable[int], kept: set[int]
    ) -> None:
        """Give a server those of its preferred partitions that are still free, even beyond its
        share.
        """
        for partition in preferred:
            if partition not in self.pool:
                continue
            self._give(hand, partition, moved=partition not in kept)
            if len(hand) > self._minimum:
                self._extra -= 1

    def keep(self, hand: list[OwnedPartition], owned: Iterable[OwnedPartition]) -> None:
        """Let a server keep its partitions, up to its share."""
        for partition, _ in owned:
            if partition in self.pool:
                if not self._claim_place(hand):
                    return
                self._give(hand, partition, moved=False)

    def fill(self, hand: list[OwnedPartition]) -> None:
        """Fill a server up to its share with the lowest free partitions."""
        for partition in sorted(self.pool):
            if not self._claim_place(hand):
                return
            self._give(hand, partition, moved=True)

    def _claim_place(self, hand: list[OwnedPartition]) -> bool:
        if len(hand) < self._minimum:
            return True
        if len(hand) == self._minimum and self._extra > 0:
            self._extra -= 1
            return True
        return False

    def _give(self, hand: list[OwnedPartition], partition: int, *, moved: bool) -> None:
        hand.append(OwnedPartition(partition, self.pool.pop(partition) + moved))
