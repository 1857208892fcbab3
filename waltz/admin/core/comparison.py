"""Compare replicas by checksums of ranges, and find where they first differ. Pure.

A `Comparison` alternates with its caller: `next_range` is the range whose checksum the caller
requests from all storages, and `add_sums` takes the answers. The log is compared in slices of
`SLICE_IDS` transactions. A slice that differs is halved until the first transaction that differs is
found. A replica that ends early, or cannot be read, leaves the comparison and is listed in the
result; it does not count as a difference. `replicas` defines the low-water mark and health of a
replica.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from waltz.admin.core.replicas import PartitionView, ReplicaObservation, unhealthy_reason
from waltz.protocol.checksums import crc32
from waltz.protocol.records import RecordBatch

SLICE_IDS = 10_000
"""How many transactions a range has at most."""

_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class RangeSum:
    """The size and the checksum of consecutive records in their form on disk.

    ``last_id`` is the id of the last record. A sum of no records has the id before the first one.
    """

    last_id: int
    num_bytes: int = 0
    checksum: int = 0
    """CRC-32, unsigned."""

    def plus(self, records: RecordBatch) -> RangeSum:
        """Return the sum of this range and ``records``, which begin after ``last_id``.

        A storage of Waltz 0.13.2 sends records and no sums. The sums of all other storages are
        computed from the records on their disks, so this one is computed in the same form.
        """
        num_bytes, checksum = self.num_bytes, self.checksum
        for record in records:
            # In its wire form, a record ends with its data and the checksum of the data. On disk,
            # that checksum precedes the data, and a checksum of the whole record follows.
            wire = record.encode()
            data_end = len(wire) - _CRC.size
            head, data_checksum = wire[: data_end - len(record.data)], wire[data_end:]
            content = head + data_checksum + record.data
            on_disk = content + _CRC.pack(crc32(content))
            num_bytes += len(on_disk)
            checksum = crc32(on_disk, checksum)
        return RangeSum(self.last_id + records.count, num_bytes, checksum)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first transaction that is not the same on all storages."""

    transaction_id: int
    versions: tuple[frozenset[str], ...]
    """Each set has the storages that hold the same version; the largest set is first."""

    def text(self, partition: int) -> str:
        """Return, for example, ``transaction 5 of partition 0 differs on a:1, b:1 and on c:1``."""
        versions = " and on ".join(", ".join(sorted(each)) for each in self.versions)
        return f"transaction {self.transaction_id} of partition {partition} differs on {versions}"


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """The result of a comparison up to ``last_id``.

    ``compared_until`` is the last id up to which all transactions were compared and are the same:
    less than ``last_id`` if the comparison has ended early. ``ends`` has the storages of the
    replicas that cannot be compared up to ``last_id``, each with the last id that can be compared:
    the replica's last id, or its low-water mark if it is not healthy. ``problems`` has the storages
    of the replicas that could not be read, each with the reason. On the storages in neither of the
    two, all compared transactions before ``difference`` are the same.
    """

    last_id: int
    compared_until: int
    difference: Difference | None
    ends: Mapping[str, int]
    problems: Mapping[str, str]

    @property
    def is_sound(self) -> bool:
        """Whether every replica could be read and no compared transaction differs.

        A replica in ``ends`` lags or is not healthy, which is no difference.
        """
        return self.difference is None and not self.problems


class Comparison:
    """One comparison of a partition's replicas, from ``first_id`` to ``last_id``.

    ``replicas`` has, for each storage, the last id to compare, or why the storage is left out.
    """

    def __init__(
        self,
        replicas: Mapping[str, int | str],
        last_id: int,
        *,
        first_id: int = 0,
        slice_ids: int = SLICE_IDS,
    ) -> None:
        self._limits = {s: end for s, end in replicas.items() if isinstance(end, int)}
        """The last id to compare of each storage that is still compared."""
        self._last_id = last_id
        self._slice_ids = slice_ids
        self._next_id = first_id
        """The first id that is not compared yet."""
        self._differing_end: int | None = None
        """The last id of the range from ``_next_id`` on that is known to differ.

        None if no such range is known.
        """
        self._range_end = first_id - 1
        """The last id of the range to query next; below ``_next_id`` if everything is compared."""
        self._may_pause = False
        self._difference: Difference | None = None
        self._ends: dict[str, int] = {}
        self._problems = {s: why for s, why in replicas.items() if isinstance(why, str)}
        self._set_range(last_id)

    @property
    def last_id(self) -> int:
        """The last id that is compared."""
        return self._last_id

    @property
    def storages(self) -> tuple[str, ...]:
        """The storages that are still compared."""
        return tuple(sorted(self._limits))

    @property
    def next_range(self) -> tuple[int, int] | None:
        """The first and last id to query from all `storages`.

        None at the end, or if fewer than two replicas are left.
        """
        is_finished = self._difference is not None or self._range_end < self._next_id
        if is_finished or len(self._limits) < 2:
            return None
        return self._next_id, self._range_end

    @property
    def result(self) -> ComparisonResult:
        """The result so far."""
        return ComparisonResult(
            self._last_id, self._next_id - 1, self._difference, self._ends, self._problems
        )

    @property
    def may_pause(self) -> bool:
        """Whether a later comparison can continue from `result`.

        A later comparison begins after ``compared_until`` and knows nothing else of this one. So
        this is False before the first range is compared, after an answer that was too short, and
        while a difference is narrowed down: a later comparison would have to repeat that work. If
        each one paused there, none would get past this point.
        """
        return self._may_pause

    def add_sums(self, answers: Mapping[str, RangeSum | str]) -> None:
        """Add the answers for `next_range`: each storage's checksum, or why it sent none."""
        assert self.next_range is not None
        self._may_pause = False
        sums: dict[str, RangeSum] = {}
        for storage in self.storages:
            match answers[storage]:
                case str(problem):
                    self._problems[storage] = problem
                    del self._limits[storage]
                case RangeSum() as answer if answer.last_id < self._next_id:
                    # The replica ends before the range, so `_set_range` will remove it.
                    self._limits[storage] = self._next_id - 1
                case RangeSum() as answer:
                    sums[storage] = answer
        shortest = min((each.last_id for each in sums.values()), default=self._range_end)
        if len(sums) < len(answers) or any(each.last_id != shortest for each in sums.values()):
            # Some storage sent no sum, or a shorter one. Query the storages that are left again, as
            # far as all of them reach.
            self._set_range(shortest)
        elif len(set(sums.values())) == 1:
            self._continue_after(shortest)
        else:
            self._narrow(sums, shortest)

    def _continue_after(self, equal_end: int) -> None:
        """Continue after ``equal_end``: all transactions up to this id are the same."""
        self._next_id = equal_end + 1
        if self._differing_end is not None and self._next_id > self._differing_end:
            # Both halves of a range that differed are the same now: the replica that differed has
            # left the comparison meanwhile.
            self._differing_end = None
        if self._differing_end is None:
            self._may_pause = True
            self._set_range(self._last_id)
        else:
            # The first half of a range that differs is the same, so the second half differs:
            # compare the first half of that.
            self._set_range(self._middle(self._differing_end))

    def _narrow(self, sums: Mapping[str, RangeSum], differing_end: int) -> None:
        """The range up to ``differing_end`` differs: continue with its first half.

        If the range has only one transaction, record this transaction as the first difference.
        """
        self._differing_end = differing_end
        if differing_end > self._next_id:
            self._set_range(self._middle(differing_end))
            return
        versions: dict[RangeSum, set[str]] = {}
        for storage, range_sum in sums.items():
            versions.setdefault(range_sum, set()).add(storage)
        # The largest set first; of sets with the same size, the one with the first storage.
        ordered = sorted(versions.values(), key=lambda storages: (-len(storages), min(storages)))
        self._difference = Difference(self._next_id, tuple(map(frozenset, ordered)))

    def _middle(self, end: int) -> int:
        """Return the last id of the first half of the range from ``_next_id`` to ``end``."""
        return self._next_id + (end - self._next_id) // 2

    def _set_range(self, wanted_end: int) -> None:
        """Set the next range: up to ``wanted_end``, but at most one slice that all replicas have.

        Before that, remove the replicas that end before the range.
        """
        # When everything is compared, `_next_id` is above the limit of every replica. But a replica
        # that reaches `_last_id` was compared completely, so it stays.
        for storage, limit in list(self._limits.items()):
            if limit < min(self._next_id, self._last_id):
                self._ends[storage] = limit
                del self._limits[storage]
        slice_end = self._next_id + self._slice_ids - 1
        self._range_end = min(wanted_end, slice_end, self._last_id, *self._limits.values())


def comparison_of(
    observation: ReplicaObservation,
    view: PartitionView,
    *,
    storages: frozenset[str] | None = None,
    first_id: int = 0,
    last_id: int | None = None,
    slice_ids: int = SLICE_IDS,
) -> Comparison:
    """Return the comparison of the replicas of a partition, as ``observation`` shows them.

    ``storages`` are the storages of the replicas; None: those that ZooKeeper assigns. ``last_id``
    must be committed, because replicas may differ above the last committed id; None: the last id
    before the present store session. A replica that is not healthy (`unhealthy_reason`) is compared
    only up to its own low-water mark, because a recovery may still cut its later transactions.
    """
    if last_id is None:
        last_id = _last_id_before_session(observation, view)
    compared = view.replicas if storages is None else storages
    replicas = {s: _comparable_end(observation, view, s, last_id) for s in compared}
    return Comparison(replicas, last_id, first_id=first_id, slice_ids=slice_ids)


def _last_id_before_session(observation: ReplicaObservation, view: PartitionView) -> int:
    """Return the last transaction before the present store session, -1 if none is known."""
    held = (observation.held(storage, view.partition) for storage in view.replicas)
    return max((each.low_water_mark for each in held if each is not None), default=-1)


def _comparable_end(
    observation: ReplicaObservation, view: PartitionView, storage: str, last_id: int
) -> int | str:
    """Return the last id to compare of the replica on ``storage``, or why there is none."""
    if problem := observation.storage_problem(storage):
        return problem
    held = observation.held(storage, view.partition)
    if held is None:
        return f"it does not hold partition {view.partition}"
    return last_id if unhealthy_reason(observation, view, storage) is None else held.low_water_mark
