"""A `Disk` that keeps all changes of a storage in memory. Reads files, writes none.

The code of the storage runs on this disk to rehearse a start without a change to any file.
"""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from waltz_storage.core.disk import DiskFile
from waltz_storage.core.log.segment_format import DATA_SUFFIX


class ReadOnlyFile:
    """A file that is opened only for reading."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def size(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer only at the end of the file.

        Raises OSError.
        """
        parts = []
        while length > 0:
            # One call may return fewer bytes than the file has; it returns none at the end.
            data = os.pread(self._fd, length, offset)
            if not data:
                break
            parts.append(data)
            offset, length = offset + len(data), length - len(data)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> ReadOnlyFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ChangeKind(Enum):
    """The kind of change that a start would make to a file."""

    CREATE = "create"
    REMOVE = "remove"
    REBUILD_INDEX = "rebuild the index"
    CUT = "cut"
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class Change:
    """How one file would change. A size is in bytes, or None if the file does not exist."""

    path: str
    size_before: int | None
    size_after: int | None
    rewritten: bool
    """Whether a byte would change at an offset that the file has before and after the start."""

    @property
    def kind(self) -> ChangeKind:
        """The kind of this change."""
        if self.size_before is None:
            return ChangeKind.CREATE
        if self.size_after is None:
            return ChangeKind.REMOVE
        # The start of a partition changes only data files and index files. So this is an index
        # file.
        if not self.path.endswith(DATA_SUFFIX):
            return ChangeKind.REBUILD_INDEX
        return ChangeKind.CUT if self.size_after < self.size_before else ChangeKind.REWRITE


class DryDisk:
    """The directory ``root``, with the changes of the storage in memory.

    Implements `waltz_storage.core.disk.Disk`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, _Content] = {}
        """The files that were used so far, by path."""
        self._directories: set[str] = set()
        """The directories that were created in memory."""

    def changes(self) -> list[Change]:
        """Return the changes of all files that would change, sorted by path."""
        changes = (content.change(path) for path, content in sorted(self._files.items()))
        return [change for change in changes if change is not None]

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this name exists. Raises OSError."""
        known = self._files.get(path)
        if known is not None:
            return known.exists
        return path in self._directories or _exists(self._root / path)

    def names(self, directory: str) -> list[str]:
        """Return the names of a directory's entries. Raises OSError."""
        names = set(os.listdir(self._root / directory)) if self._is_real(directory) else set()
        for path, content in self._files.items():
            parent, _, name = path.rpartition("/")
            if parent == directory and content.exists:
                names.add(name)
            elif parent == directory:
                names.discard(name)
        return list(names)

    def make_directory(self, path: str) -> None:
        """Create a directory in memory."""
        self._directories.add(path)

    def open(self, path: str) -> DiskFile:
        """Open an existing file. Raises OSError."""
        content = self._content(path)
        if not content.exists:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        content.check_readable()
        return _DryFile(content)

    def create(self, path: str) -> DiskFile:
        """Create or open a file."""
        content = self._content(path)
        content.exists = True
        return _DryFile(content)

    def rename(self, old: str, new: str) -> None:
        """Rename a file in memory."""
        moved = self._content(old)
        target = self._content(new)
        target.replace(moved.read(0, moved.size))
        moved.exists = False

    def remove(self, path: str) -> None:
        """Remove a file in memory."""
        self._content(path).exists = False

    def flush_directory(self, path: str) -> None:
        """Do nothing: no change is kept."""

    def _is_real(self, directory: str) -> bool:
        """Return whether a directory is on the disk, and not only in memory."""
        return (self._root / directory).is_dir()

    def _content(self, path: str) -> _Content:
        """Return the content of a file, with the changes so far; the file need not exist."""
        if path not in self._files:
            real = self._root / path
            self._files[path] = _Content(real if _exists(real) else None)
        return self._files[path]


def _exists(path: Path) -> bool:
    """Return whether a file exists, as `Disk.exists`; raises OSError if that is unknown."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class _Content:
    """The content of a file: read from the disk until it is changed, then kept in memory."""

    def __init__(self, real: Path | None) -> None:
        self._real = real
        """The file on the disk, None if there is none."""
        self._size_before = None if real is None else real.stat().st_size
        """The length on the disk, None if there is no file."""
        self._changed: bytearray | None = None
        """The whole content, None while it is that of the file on the disk."""
        self.exists = real is not None
        """Whether the file exists, after the changes so far."""
        self.size = self._size_before or 0
        """The length, after the changes so far."""

    def check_readable(self) -> None:
        """Open and close the file, so that the rehearsal fails at the same step as a start."""
        if self._real is not None:
            ReadOnlyFile(self._real).close()

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer only at the end of the content."""
        if self._changed is not None:
            return bytes(self._changed[offset : offset + length])
        if self._real is None:
            return b""
        with ReadOnlyFile(self._real) as file:
            return file.read(offset, max(0, min(length, self.size - offset)))

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset``; zeros fill a gap before it."""
        if self.read(offset, len(data)) == data:
            # Recovery writes existing bytes again. Such a write changes nothing and needs no
            # memory.
            return
        if self._changed is None:
            self.replace(self.read(0, self.size))
        assert self._changed is not None
        self._changed.extend(bytes(max(0, offset - self.size)))
        self._changed[offset : offset + len(data)] = data
        self.size = len(self._changed)

    def truncate(self, size: int) -> None:
        """Give the content exactly ``size`` bytes; new bytes are zeros."""
        if size > self.size or self._changed is not None:
            self.replace(self.read(0, size).ljust(size, b"\0"))
        # Otherwise the content is that of the file on the disk: `read` ends at this size.
        self.size = size

    def replace(self, content: bytes) -> None:
        """Replace the whole content; the file exists afterwards."""
        self._changed = bytearray(content)
        self.size, self.exists = len(content), True

    def change(self, path: str) -> Change | None:
        """Return how the file would change, None if it would stay as it is."""
        after = self.size if self.exists else None
        common = min(self._size_before or 0, after or 0)
        rewritten = self._changed is not None and self._differs(common)
        if after == self._size_before and not rewritten:
            return None
        return Change(path, self._size_before, after, rewritten)

    def _differs(self, size: int) -> bool:
        """Return whether one of the first ``size`` bytes differs from the file on the disk."""
        if self._real is None or self._changed is None:
            return False
        with ReadOnlyFile(self._real) as file:
            return file.read(0, size) != bytes(self._changed[:size])


class _DryFile:
    """An open file of a `DryDisk`; implements `waltz_storage.core.disk.DiskFile`."""

    def __init__(self, content: _Content) -> None:
        self._content = content

    def size(self) -> int:
        return self._content.size

    def read(self, offset: int, length: int) -> bytes:
        return self._content.read(offset, length)

    def write(self, offset: int, data: bytes) -> None:
        self._content.write(offset, data)

    def write_durably(self, offset: int, data: bytes) -> None:
        self._content.write(offset, data)

    def one_flush(self) -> AbstractContextManager[object]:
        return nullcontext()

    def allocate(self, start: int, end: int) -> None:
        self._content.write(start, bytes(end - start))

    def truncate(self, size: int) -> None:
        self._content.truncate(size)

    def flush(self) -> None:
        """Do nothing: no change is kept."""

    def lock(self, length: int) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: no descriptor is open."""
