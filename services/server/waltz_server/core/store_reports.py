"""The reports of a store to its partition, and the list that holds them. Pure.

The *store* is the part of a partition that replicates its appends (`store_partition`). A report is
not an effect: the shell never sees it. The store, its session and its reads get one `StoreReports`
at construction and add reports to it. `Partition.take_ready` takes the reports when the input that
caused them is complete, and acts on them in order.

Reports are not callbacks, because acting on a report calls the store again. For example,
`AppendsCommitted` frees locks, so that waiting appends are granted and passed to the store. The
session then sends another batch. A callback would do all this while the session is still counting
acknowledgements. A report waits until the session is in a consistent state. Reports that are added
while the partition acts on a report are taken next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from waltz.protocol import RecordBatch, RecordHeader
from waltz.protocol.stored import StoredBatch
from waltz_server.core.appends.append import Append
from waltz_server.core.reads.read_purposes import ReadPurpose


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A store session is open; the log's high-water mark is ``mark``."""

    mark: int


@dataclass(frozen=True, slots=True)
class SessionDelayed:
    """No session is open, and it is unknown when the next one opens.

    Then `data_reads` refuses requests of long queues, and `range_reads` gives up its reads of
    replicas: they would delay what the same connections read from other partitions.
    """


class AppendsCommitted(NamedTuple):
    """These appends are on a quorum's disks, with consecutive ids from ``first_id`` on.

    ``records`` has one record for each append, in the encoding of the protocol.
    """

    first_id: int
    appends: list[Append]
    records: RecordBatch


@dataclass(frozen=True, slots=True)
class AppendsFailed:
    """These appends are not in the log and never will be."""

    appends: list[Append]


@dataclass(frozen=True, slots=True)
class AppendsUnresolved:
    """It is unknown whether these appends are in the log; their clients look for them there.

    They were sent in an older generation, and another server may have committed them since.
    """

    appends: list[Append]


@dataclass(frozen=True, slots=True)
class ReadDone:
    """A read of a replica is over.

    Exactly one of ``records``, ``stored``, ``headers`` and ``error`` is set. ``stored`` has records
    as they lie on the disk of a storage, which has not verified them.
    """

    purpose: ReadPurpose
    records: RecordBatch | None = None
    stored: StoredBatch | None = None
    headers: tuple[RecordHeader, ...] | None = None
    error: str | None = None


Outcome = AppendsCommitted | AppendsFailed | AppendsUnresolved
StoreReport = SessionOpened | SessionDelayed | Outcome | ReadDone


class StoreReports:
    """The reports that the partition has not taken, in order."""

    __slots__ = ("_reports",)

    def __init__(self) -> None:
        self._reports: list[StoreReport] = []

    def add(self, report: StoreReport) -> None:
        """Report to the partition, after the earlier reports."""
        self._reports.append(report)

    def take(self) -> list[StoreReport]:
        """Remove and return the reports added since the last call."""
        reports = self._reports
        if reports:
            self._reports = []
        return reports
