"""Why the storage node says no. Pure.

`RequestRefused` and its kinds become failure answers; their texts begin with the class names that
peers of Waltz 0.13.2 show (spec/wire.md section 6). `DiskFailed` is fatal to the process, and
`DirectoryRefused` and `PartitionDamaged` are found when a directory is opened.
"""

from __future__ import annotations

from typing import ClassVar


class RequestRefused(Exception):
    """A request cannot be done; nothing was changed unless the text says so."""

    peer_class: ClassVar[str] = "com.wepay.waltz.storage.exception.StorageException"

    @property
    def message(self) -> str:
        """The text of the failure answer."""
        return f"{self.peer_class}: {self}"


class SessionFenced(RequestRefused):
    """The request belongs to an older store session than one already seen."""

    peer_class = "com.wepay.waltz.storage.exception.ConcurrentUpdateException"


class NotAssigned(RequestRefused):
    """The partition is not on this node."""

    peer_class = "java.lang.Exception"

    def __init__(self, partition: int) -> None:
        super().__init__(f"Partition:{partition} is not assigned.")


class UnknownRequest(RequestRefused):
    """A message that is no request."""

    peer_class = "java.lang.IllegalStateException"


class NoSpace(RequestRefused):
    """The disk is full: nothing of the refused records stays, and nothing older is lost."""


class PartitionDamaged(RequestRefused):
    """The files of a partition contradict what must be on them; only this partition is refused.

    ``file`` is relative to the storage directory, ``offset`` a byte position in it.
    """

    def __init__(self, partition: int, file: str, offset: int, what: str) -> None:
        super().__init__(
            f"partition {partition} is damaged: {what} ({file} at offset {offset}); restore it "
            f"from another replica: waltz storage unassign HOST:PORT {partition} --only storage "
            f"--delete-files, then waltz storage recover HOST:PORT {partition}, of this storage"
        )
        self.partition = partition
        self.file = file
        self.offset = offset
        self.what = what


class PartitionUnopened(RequestRefused):
    """This process may not open the files of a partition, or not now; nothing is wrong with them.

    ``file`` is relative to the storage directory.
    """

    def __init__(self, partition: int, file: str, why: str, advice: str) -> None:
        super().__init__(
            f"partition {partition} cannot be opened: {why} ({file}); its files are as they were: "
            f"{advice}, then assign it again or restart this storage node"
        )


class UnknownPartition(Exception):
    """The id is outside the cluster's partitions; version 0 of the admin port has no answer."""


class DirectoryRefused(Exception):
    """The storage directory cannot be used by this process; the text says what to do."""


class DiskFailed(Exception):
    """A change of the disk failed: what is there is no longer known. Never retried."""
