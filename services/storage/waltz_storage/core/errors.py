"""Pure. The errors with which a storage node refuses requests, partitions or directories.

`RequestRefused` and its subclasses become failure answers; their texts begin with the class names
that peers of Waltz 0.13.2 show (spec/wire.md section 6). After `DiskFailed` the process ends. After
`DirectoryRefused` it does not start. If the opening of a partition raises a `RequestRefused`, such
as `PartitionDamaged` or `PartitionUnopened`, the process refuses the requests of servers to that
partition.
"""

from __future__ import annotations

from typing import ClassVar, Self


class RequestRefused(Exception):
    """A request is refused.

    If the request is an append, its first records may be in the log all the same: see
    `StagedAppend` of `waltz_storage.core.log.partition_log`.
    """

    peer_class: ClassVar[str] = "com.wepay.waltz.storage.exception.StorageException"

    @property
    def message(self) -> str:
        """The text of the failure answer."""
        return f"{self.peer_class}: {self}"

    def new_instance(self) -> Self:
        """Return the same error without a traceback, to raise it once more or to keep it.

        Each raise adds its frames to the traceback of an instance, and the frames keep the records
        of their requests in memory.
        """
        # A call of the class would fail for some subclasses: their `__init__` makes the text from
        # other arguments, and ``self.args`` has only the text.
        new = type(self).__new__(type(self), *self.args)
        new.__dict__.update(self.__dict__)
        return new


class SessionFenced(RequestRefused):
    """The request belongs to an older store session than an earlier request."""

    peer_class = "com.wepay.waltz.storage.exception.ConcurrentUpdateException"


class NotAssigned(RequestRefused):
    """The partition is not assigned to this node."""

    peer_class = "java.lang.Exception"

    def __init__(self, partition: int) -> None:
        super().__init__(f"Partition:{partition} is not assigned.")


class UnknownRequest(RequestRefused):
    """The message is not a request."""

    peer_class = "java.lang.IllegalStateException"


class NoSpace(RequestRefused):
    """The disk is full. No older record is lost.

    If the records of a refused append go to two segments, those in the first segment are kept.
    """


class PartitionDamaged(RequestRefused):
    """The files of a partition are damaged, so it is not served; the other partitions are.

    ``file`` is relative to the storage directory, ``offset`` is a byte position in ``file``.
    """

    def __init__(self, partition: int, file: str, offset: int, what: str) -> None:
        problem = f"partition {partition} is damaged: {what} ({file} at offset {offset})"
        super().__init__(f"{problem}; {self._advice(partition)}")
        self.partition = partition
        self.file = file
        self.offset = offset
        self.what = what

    def _advice(self, partition: int) -> str:
        """Return what the process does now, and what an administrator can do."""
        return f"it is not served; {_replacement(partition)}"


class RecordsDamaged(PartitionDamaged):
    """A read has found damage. Only this read is refused: the partition is served.

    After the next start, the partition is refused if the opening finds the damage and cannot tell
    where the damaged records end (spec/disk.md section 8).
    """

    def _advice(self, partition: int) -> str:
        return (
            f"its other records are served; waltz storage recover HOST:PORT {partition}, with "
            "HOST:PORT of this storage, copies the damaged ones from another replica"
        )


class TruncationRefused(RecordsDamaged):
    """A truncation has found damage where it would cut the log. The log is not changed.

    The replica takes part in no store session, because each session begins with this truncation.
    It must be replaced, because neither way of repair works:

    * `waltz storage recover` fills no replica that counts in the servers' votes, and this one does.
    * A damaged record is repaired only up to the local low-water mark, and this one is above it.
    """

    def _advice(self, partition: int) -> str:
        return (
            "the log is not cut, and this replica takes part in no store session; "
            f"{_replacement(partition)}"
        )


class PartitionUnopened(RequestRefused):
    """This process cannot open the files of a partition, but they are not damaged.

    ``file`` is relative to the storage directory. ``why`` is the reason. ``advice`` says what an
    administrator must do first, and ``then`` how to open the partition after that.
    """

    def __init__(
        self,
        partition: int,
        file: str,
        why: str,
        advice: str,
        then: str = "assign it again or restart this storage node",
    ) -> None:
        super().__init__(
            f"partition {partition} cannot be opened: {why} ({file}); it is not served and its "
            f"files are unchanged: {advice}, then {then}"
        )
        self.file = file
        self.why = why


class UnknownPartition(Exception):
    """The cluster has no partition with this id, or the partition to unassign is not assigned.

    Version 0 of the admin port has no answer to such a request.
    """


class DirectoryRefused(Exception):
    """This process cannot use the storage directory; the text says what to do."""


class DiskFailed(Exception):
    """A change of the disk failed, so the content of the disk is unknown, and the process ends.

    The change is never retried: a second flush may report success although the data are lost,
    because the operating system marks the pages clean after the first failure.
    """


def _replacement(partition: int) -> str:
    """Return how to replace a replica by a copy of another one."""
    return (
        f"restore it from another replica: waltz storage unassign HOST:PORT {partition} "
        f"--only storage --delete-files, then waltz storage recover HOST:PORT {partition}, both "
        "with HOST:PORT of this storage"
    )
