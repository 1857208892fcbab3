"""Pure. The damaged records that are known, as ranges of ids for each partition.

The openings of logs, the scrubber and the checks after repairs add to them. The repairs, the
metrics and the admin port read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from waltz_storage.core.log.log_check import CheckedRecords


@dataclass(frozen=True, slots=True, order=True)
class IdRange:
    """The records from ``first_id`` to ``last_id``, both included."""

    first_id: int
    last_id: int

    @property
    def count(self) -> int:
        """How many records the range has."""
        return self.last_id - self.first_id + 1

    def __str__(self) -> str:
        """Return the id of a single record, or the first and the last id."""
        if self.first_id == self.last_id:
            return str(self.first_id)
        return f"{self.first_id}-{self.last_id}"


Ranges = tuple[IdRange, ...]
"""Damaged ranges in ascending order, with undamaged records between each two of them."""


class Findings:
    """The damaged records of all partitions; a later check of a record replaces the earlier one."""

    def __init__(self) -> None:
        self._ranges: dict[int, Ranges] = {}
        self.repaired = 0
        """How many damaged records were repaired since the process started."""

    @property
    def ranges(self) -> Mapping[int, Ranges]:
        """The damaged ranges of each partition that has some."""
        return self._ranges

    @property
    def count(self) -> int:
        """How many records are damaged."""
        return sum(damaged.count for ranges in self._ranges.values() for damaged in ranges)

    def note(self, partition: int, checked: CheckedRecords) -> Ranges:
        """Note the result of a check; return the damaged ranges that were not known before."""
        before = self._ranges.get(partition, ())
        # The check replaces all that was known about the checked ids.
        kept = _without(before, checked.first_id, checked.next_id)
        # The log ends before ``end_id``. Records that it had from there on were truncated, and new
        # records may get their ids.
        kept = _without(kept, checked.end_id, None)
        # The damaged ids among the checked ones that were known before.
        known: set[int] = set()
        for damaged in before:
            first_id = max(damaged.first_id, checked.first_id)
            next_id = min(damaged.last_id + 1, checked.next_id)
            known.update(range(first_id, next_id))
        self._set(partition, _joined((*kept, *ranges_of(checked.damaged))))
        return ranges_of(damaged_id for damaged_id in checked.damaged if damaged_id not in known)

    def note_opening(self, partition: int, damaged: Iterable[int]) -> Ranges:
        """Note the damaged records that the opening of a log found; return them as ranges."""
        ranges = ranges_of(damaged)
        self._set(partition, ranges)
        return ranges

    def note_repair(self, partition: int, checked: CheckedRecords) -> None:
        """Note a check that followed a repair, and count the records that it repaired."""
        before = self.count
        self.note(partition, checked)
        # The check may also have found more damaged records than were repaired.
        self.repaired += max(0, before - self.count)

    def note_truncation(self, partition: int, last_id: int) -> None:
        """Forget the damaged records after ``last_id``, the last record of the log now."""
        self._set(partition, _without(self._ranges.get(partition, ()), last_id + 1, None))

    def forget(self, partition: int) -> None:
        """Forget the damaged records of a partition that is not open any more."""
        self._ranges.pop(partition, None)

    def keep(self, partitions: Iterable[int]) -> None:
        """Forget the damaged records of all other partitions."""
        wanted = frozenset(partitions)
        self._ranges = {p: ranges for p, ranges in self._ranges.items() if p in wanted}

    def _set(self, partition: int, ranges: Ranges) -> None:
        """Replace the known ranges of a partition."""
        if ranges:
            self._ranges[partition] = ranges
        else:
            self.forget(partition)


def ranges_of(ids: Iterable[int]) -> Ranges:
    """Return ids, in any order, as ranges."""
    return _joined(IdRange(transaction_id, transaction_id) for transaction_id in ids)


def _joined(ranges: Iterable[IdRange]) -> Ranges:
    """Return disjoint ranges in ascending order, with neighbours joined."""
    joined: list[IdRange] = []
    for following in sorted(ranges):
        if joined and following.first_id == joined[-1].last_id + 1:
            joined[-1] = IdRange(joined[-1].first_id, following.last_id)
        else:
            joined.append(following)
    return tuple(joined)


def _without(ranges: Ranges, first_id: int, next_id: int | None) -> Ranges:
    """Return ``ranges`` without the ids from ``first_id`` to ``next_id`` - 1.

    If ``next_id`` is None, return them without all ids from ``first_id`` on.
    """
    kept: list[IdRange] = []
    for old in ranges:
        # A part of the old range may stay on each side of the removed ids.
        if old.first_id < first_id:
            kept.append(IdRange(old.first_id, min(old.last_id, first_id - 1)))
        if next_id is not None and old.last_id >= next_id:
            kept.append(IdRange(max(old.first_id, next_id), old.last_id))
    return tuple(kept)
