"""The disk of the operating system: `Disk` and `DiskFile` over POSIX calls. Touches files."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path

from waltz_storage.core.disk import DiskFile, changing
from waltz_storage.core.errors import DirectoryRefused, DiskFailed, NoSpace

_ZEROS = bytes(1 << 20)
"""The zeros that one write of `PosixFile.allocate` writes at most."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a write to a full disk."""
_LOCKED = (errno.EACCES, errno.EAGAIN)
"""The errors of a lock that another process holds."""
_CLOSED = -1
"""The descriptor of a closed `PosixFile`. No file has it, so any use fails."""


class PosixDisk:
    """A directory of the operating system's file system."""

    def __init__(self, root: Path) -> None:
        try:
            is_directory = root.is_dir()
        except OSError as error:
            raise DirectoryRefused(
                f"the storage directory {root} cannot be opened: {error.strerror}; check its "
                "volume, and that this process may use it"
            ) from error
        if not is_directory:
            raise DirectoryRefused(
                f"the storage directory {root} is a file: name a directory"
                if root.exists()
                else f"the storage directory {root} does not exist: create it, or mount its volume"
            )
        self._root = str(root)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this name exists."""
        try:
            os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def names(self, directory: str) -> list[str]:
        """Return the names of a directory's entries."""
        return os.listdir(self._at(directory))

    def make_directory(self, path: str) -> None:
        """Create one directory."""
        try:
            os.mkdir(self._at(path))
        except OSError as error:
            raise _write_error(error, "creation of", path) from error

    def open(self, path: str) -> DiskFile:
        """Open an existing file."""
        return PosixFile(path, os.open(self._at(path), os.O_RDWR | os.O_CLOEXEC))

    def create(self, path: str) -> DiskFile:
        """Create or open a file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return PosixFile(path, os.open(self._at(path), flags, 0o644))
        except OSError as error:
            raise _write_error(error, "creation of", path) from error

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        try:
            os.rename(self._at(old), self._at(new))
        except OSError as error:
            raise _write_error(error, "renaming of", old) from error

    def remove(self, path: str) -> None:
        """Remove a file."""
        with changing(f"removal of {path}"):
            os.unlink(self._at(path))

    def flush_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        with changing(f"flush of directory {path or '.'}"):
            fd = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _at(self, path: str) -> str:
        """Return ``path`` with the directory of this disk before it."""
        return f"{self._root}/{path}" if path else self._root


class PosixFile:
    """A file descriptor, open until `close`."""

    __slots__ = ("_fd", "_flush_lock", "_path")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._flush_lock = threading.Lock()

    def size(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Read at ``offset``."""
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        # The operating system may return fewer bytes than the file has: it caps a read at 2 GiB.
        parts = [data]
        num_bytes = len(data)
        while num_bytes < length:
            data = os.pread(self._fd, length - num_bytes, offset + num_bytes)
            if not data:
                break
            parts.append(data)
            num_bytes += len(data)
        return b"".join(parts)

    def write(self, offset: int, data: bytes) -> None:
        """Write at ``offset``."""
        try:
            written = os.pwrite(self._fd, data, offset)
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], offset + written)
        except OSError as error:
            raise _write_error(error, "write to", self._path) from error

    def write_durably(self, offset: int, data: bytes) -> None:
        """Write and flush; the calls of several threads run one after the other.

        If a write is lost, the operating system reports that to only one of several flushes at the
        same time. The other threads would take their data for durable.
        """
        with self._flush_lock:
            self.write(offset, data)
            self.flush()

    def one_flush(self) -> AbstractContextManager[object]:
        """Return the lock that `write_durably` holds while it writes and flushes."""
        return self._flush_lock

    def allocate(self, start: int, end: int) -> None:
        """Write zeros."""
        for position in range(start, end, len(_ZEROS)):
            self.write(position, _ZEROS[: end - position])

    def truncate(self, size: int) -> None:
        """Cut the file."""
        with changing(f"truncation of {self._path}"):
            os.ftruncate(self._fd, size)

    def flush(self) -> None:
        """Flush content and length, not the times."""
        # Not `changing`: its context manager would add time to every append.
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise DiskFailed(f"flush of {self._path} failed: {error.strerror}") from error

    def lock(self, length: int) -> bool:
        """Lock the first ``length`` bytes against other processes."""
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, length)
        except OSError as error:
            if error.errno not in _LOCKED:
                raise
            return False
        return True

    def close(self) -> None:
        """Close the file and forget its descriptor.

        The next file that is opened may get the same descriptor. A later use of this object must
        fail, and must not change that file.
        """
        fd, self._fd = self._fd, _CLOSED
        os.close(fd)


def _write_error(error: OSError, what: str, path: str) -> NoSpace | DiskFailed:
    """Return NoSpace, which only refuses the request, if the disk is full; otherwise DiskFailed."""
    if error.errno in _FULL:
        return NoSpace(f"no space left on the storage disk: {path} cannot grow; free some space")
    return DiskFailed(f"{what} {path} failed: {error.strerror}")
