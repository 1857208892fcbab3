"""Pure. The interface between the storage's core and the disk, and a rule for its errors.

The core uses a disk only through `Disk` and `DiskFile`; `shell.posix_disk` implements both with the
operating system. Paths are relative to the directory of the `Disk`. Tests and simulations supply
disks that fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from waltz_storage.core.errors import DiskFailed


class DiskFile(Protocol):
    """An open file. Nothing written is durable before `flush` has returned."""

    def size(self) -> int:
        """Return the length in bytes; raises OSError."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer only at the end of the file.

        Raises OSError.
        """

    def write(self, offset: int, data: bytes) -> None:
        """Write all of ``data`` at ``offset``; raises NoSpace (part may be written), DiskFailed."""

    def write_durably(self, offset: int, data: bytes) -> None:
        """Take the lock of `one_flush`, write and flush; raises NoSpace, DiskFailed."""

    def one_flush(self) -> AbstractContextManager[object]:
        """Return a lock for flushes of this file: a thread holds it if other threads flush, too.

        Without the lock, flushes could run at the same time. If a write is lost, the operating
        system reports that to only one of them. The other flushes would report success for data
        that are not on disk.
        """

    def allocate(self, start: int, end: int) -> None:
        """Write zeros from ``start`` to ``end``; raises NoSpace, DiskFailed."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes; raises DiskFailed."""

    def flush(self) -> None:
        """Make content and length durable.

        Raises DiskFailed; then the content of the disk is unknown.
        """

    def lock(self, length: int) -> bool:
        """Take the exclusive lock of the first ``length`` bytes; False if another process has it.

        Closing the file releases the lock. Raises OSError if locking fails for another reason.
        """

    def close(self) -> None:
        """Close the file. It must not be used after that."""


class Disk(Protocol):
    """A directory of the storage.

    The partitions, the control file and the write-ahead log may each have a directory of their own.
    """

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this name exists.

        Raises OSError if the operating system cannot say.
        """

    def names(self, directory: str) -> list[str]:
        """Return the names of a directory's entries, in no particular order; raises OSError."""

    def make_directory(self, path: str) -> None:
        """Create one directory; raises NoSpace, DiskFailed."""

    def open(self, path: str) -> DiskFile:
        """Open an existing file for reading and writing.

        Raises OSError. A caller that opens the file to change it converts the error by `changing`.
        """

    def create(self, path: str) -> DiskFile:
        """Create a file, or open an existing one unchanged; raises NoSpace, DiskFailed."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file in its directory, atomically; raises NoSpace, DiskFailed."""

    def remove(self, path: str) -> None:
        """Remove a file; raises DiskFailed."""

    def flush_directory(self, path: str) -> None:
        """Make the names in a directory durable; raises DiskFailed."""


@contextmanager
def changing(what: str) -> Iterator[None]:
    """Convert an OSError to DiskFailed, which ends the process; ``what`` names the change.

    A change that failed halfway cannot be undone. The next start of the process reads the disk and
    recovers.
    """
    try:
        yield
    except OSError as error:
        raise DiskFailed(f"{what} failed: {error.strerror}") from error
