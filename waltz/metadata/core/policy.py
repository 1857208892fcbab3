"""Which server gets which partition when servers come, go or change their preferences.

Pure: the shuffling is handed in. The rule is the reference's (spec/zookeeper.md section 5) with its
accounting of the surplus put right: there, a server that its preferences fill exactly up to the
minimum is charged for one more, and partitions can be left without an owner. Here every partition
always has exactly one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment

Shuffle = Callable[[list[OwnedPartition]], None]
"""Reorders a list in place."""


class PolicyError(ValueError):
    """No assignment can be computed from what the znodes say; doing it again would not help."""


def assign(
    old: PartitionAssignment,
    cversion: int,
    num_partitions: int,
    members: Mapping[int, tuple[int, ...]],
    shuffle: Shuffle,
) -> PartitionAssignment:
    """Return the assignment for ``members``, a map from server id to preferred partitions.

    A partition that stays keeps its generation; one that moves, or is new, gets the next one. No
    server holds more than its even share but by its own preference. ``shuffle`` is applied to each
    server's list, because later moves take from the end.

    Raises PolicyError if there are fewer partitions than before, or if ``old`` does not name each
    of its partitions exactly once.
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
    assert not dealing.pool
    return PartitionAssignment(
        cversion, num_partitions, {server: tuple(hand) for server, hand in hands.items()}
    )


def _pool(old: PartitionAssignment, num_partitions: int) -> dict[int, int]:
    """Return every partition and the generation it had; a new one had generation 0."""
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
    """Deals the pool out; keeps count of how many servers may still get one over the minimum."""

    def __init__(self, pool: dict[int, int], num_partitions: int, servers: int) -> None:
        self.pool = pool
        self._minimum, self._extra = divmod(num_partitions, servers)

    def take_preferred(
        self, hand: list[OwnedPartition], preferred: Iterable[int], kept: set[int]
    ) -> None:
        """Give a server what it prefers and nobody before it took, beyond its share if need be."""
        for partition in preferred:
            if partition not in self.pool:
                continue
            self._give(hand, partition, moved=partition not in kept)
            if len(hand) > self._minimum:
                self._extra -= 1

    def keep(self, hand: list[OwnedPartition], owned: Iterable[OwnedPartition]) -> None:
        """Let a server keep what it has, up to its share."""
        for partition, _ in owned:
            if partition in self.pool:
                if not self._claim_place(hand):
                    return
                self._give(hand, partition, moved=False)

    def fill(self, hand: list[OwnedPartition]) -> None:
        """Fill a server up to its share with the lowest partitions that are left."""
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
