"""A disk in memory that loses, tears and reorders writes that were not flushed.

It keeps the written and the durable content. `crashed` returns the disk as it may be after a loss
of power: each sector of a file has one of the contents since the last flush, or parts of two; the
same holds for sizes and names. `restarted` returns it as a new process finds it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from waltz_storage.core.disk import changing
from waltz_storage.core.errors import DiskFailed, NoSpace

SECTOR_BYTES = 512
UNLIMITED = 1 << 60
"""A limit in bytes that no test reaches."""

_OLD_BYTES_RATE = 0.2
"""How often a new sector whose write was lost has earlier bytes of the disk instead of zeros."""


@dataclass(slots=True)
class _Node:
    """A file: what is durable, what a reader sees, and the changes in between.

    A change is a position and the data written there. If the data are None, the position is the
    new size of the file.
    """

    durable: bytearray = field(default_factory=bytearray)
    current: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)


_NameChange = tuple[str, str, str, _Node | None]
"""A change of names: its kind, the old path, the new path, and the file of a "link"."""


def _apply(content: bytearray, change: tuple[int, bytes | None]) -> None:
    position, data = change
    if data is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
    else:
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data


class MemoryDisk:
    """Implements `waltz_storage.core.disk.Disk`.

    ``observer`` is called after every change: a test takes crashed copies there. ``space`` is the
    limit in bytes of all files together. ``failing_flush`` counts down at each flush of a file or a
    directory. The flush that takes it to zero fails, and the changes of the file then count as
    flushed, as on Linux. ``failing_open`` (of files and directories) and ``failing_remove`` count
    down in the same way. ``flushes`` counts the flushes of files and directories.
    """

    def __init__(self) -> None:
        self.observer: Callable[[], None] | None = None
        self.space = UNLIMITED
        self.failing_flush = 0
        self.failing_open = 0
        self.failing_remove = 0
        self.flushes = 0
        self.locks: dict[int, MemoryFile] = {}
        self.directories = {""}
        self._durable_directories = {""}
        self._names: dict[str, _Node] = {}
        self._durable_names: dict[str, _Node] = {}
        self._pending_names: list[_NameChange] = []

    def exists(self, path: str) -> bool:
        """See `Disk`."""
        return path in self._names or path in self.directories

    def names(self, directory: str) -> list[str]:
        """See `Disk`."""
        prefix = f"{directory}/" if directory else ""
        paths = [*self._names, *(d for d in self.directories if d)]
        inside = [p[len(prefix) :] for p in paths if p.startswith(prefix)]
        return [name for name in inside if "/" not in name]

    def make_directory(self, path: str) -> None:
        """See `Disk`."""
        assert path not in self.directories
        self.directories.add(path)
        self._record_name_change(("mkdir", path, path, None))

    def open(self, path: str) -> MemoryFile:
        """See `Disk`."""
        self._count_open()
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return MemoryFile(self, self._names[path])

    def create(self, path: str) -> MemoryFile:
        """See `Disk`."""
        with changing(f"creation of {path}"):
            self._count_open()
        node = self._names.get(path)
        if node is None:
            node = self._names[path] = _Node()
            self._record_name_change(("link", path, path, node))
        return MemoryFile(self, node)

    def rename(self, old: str, new: str) -> None:
        """See `Disk`."""
        self._names[new] = self._names.pop(old)
        self._record_name_change(("rename", old, new, None))

    def remove(self, path: str) -> None:
        """See `Disk`."""
        self.failing_remove -= 1
        if self.failing_remove == 0:
            raise DiskFailed(f"removal of {path} failed: as configured by the test")
        del self._names[path]
        self._record_name_change(("unlink", path, path, None))

    def flush_directory(self, path: str) -> None:
        """See `Disk`."""

        def inside(name: str) -> bool:
            return name.rpartition("/")[0] == path

        with changing("flush of a directory"):
            self._count_open()
        self._count_flush("directory")
        for change in [c for c in self._pending_names if inside(c[1])]:
            self._apply_name_change(self._durable_names, self._durable_directories, change)
            self._pending_names.remove(change)
        self._observe()

    def content(self, path: str) -> bytes:
        """Return the content of a file as a reader finds it."""
        return bytes(self._names[path].current)

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Change a file durably, as damage of the disk does: ``observer`` is not called."""
        node = self._names[path]
        for content in (node.durable, node.current):
            _apply(content, (position, data))

    def restarted(self) -> MemoryDisk:
        """Return the disk as the next process finds it: all written data are still cached."""
        disk = self._copy(self._names)
        nodes = {id(old): new for old, new in self._copied}
        disk._durable_names = {path: nodes[id(node)] for path, node in self._durable_names.items()}
        disk._durable_directories = set(self._durable_directories)
        disk.directories = set(self.directories)
        disk._pending_names = [
            (kind, old, new, nodes[id(node)] if node is not None else None)
            for kind, old, new, node in self._pending_names
        ]
        return disk

    def crashed(self, random: Random) -> MemoryDisk:
        """Return the disk as it may be after power was lost now."""
        names, directories = dict(self._durable_names), set(self._durable_directories)
        keep = random.choice((0.0, 0.5, 1.0))
        for change in self._pending_names:
            if random.random() < keep:
                self._apply_name_change(names, directories, change)
        names = {p: n for p, n in names.items() if p.rpartition("/")[0] in directories}
        disk = MemoryDisk()
        disk.directories, disk._durable_directories = directories, set(directories)
        for path, node in names.items():
            content = _survivor(node, random)
            disk._names[path] = _Node(bytearray(content), bytearray(content))
        disk._durable_names = dict(disk._names)
        return disk

    def change(self, node: _Node, change: tuple[int, bytes | None]) -> None:
        """Apply a change that is not durable yet."""
        _apply(node.current, change)
        node.pending.append(change)
        self._observe()

    def flush(self, node: _Node) -> None:
        """Make a file durable."""
        # If the flush fails below, the changes are no longer pending: no later flush repeats them.
        pending, node.pending = node.pending, []
        self._count_flush("file")
        for change in pending:
            _apply(node.durable, change)
        self._observe()

    def left(self) -> int:
        """Return how many bytes files may still grow by; negative if they exceed ``space``."""
        return self.space - sum(len(node.current) for node in self._names.values())

    def _copy(self, names: dict[str, _Node]) -> MemoryDisk:
        """Return a disk with copies of the files; keep the pairs of original and copy in `_copied`.

        The caller copies the directories, the durable names and the pending changes of names.
        """
        everything = [*names.values(), *self._durable_names.values()]
        everything += [node for *_, node in self._pending_names if node is not None]
        self._copied = []
        copies: dict[int, _Node] = {}
        for node in everything:
            if id(node) not in copies:
                copies[id(node)] = _Node(
                    bytearray(node.durable), bytearray(node.current), list(node.pending)
                )
                self._copied.append((node, copies[id(node)]))
        disk = MemoryDisk()
        disk._names = {path: copies[id(node)] for path, node in names.items()}
        return disk

    def _record_name_change(self, change: _NameChange) -> None:
        """Record a change of names that is not durable yet."""
        self._pending_names.append(change)
        self._observe()

    def _apply_name_change(
        self, names: dict[str, _Node], directories: set[str], change: _NameChange
    ) -> None:
        kind, old, new, node = change
        if kind == "mkdir":
            directories.add(new)
        elif kind == "link" and node is not None:
            names[new] = node
        elif kind == "unlink":
            names.pop(old, None)
        elif kind == "rename" and old in names:
            names[new] = names.pop(old)

    def _count_flush(self, what: str) -> None:
        """Count a flush. Raises DiskFailed if the test lets this flush fail."""
        self.flushes += 1
        self.failing_flush -= 1
        if self.failing_flush == 0:
            raise DiskFailed(f"flush of a {what} failed: as configured by the test")

    def _count_open(self) -> None:
        """Count the opening of a file or directory. Raises OSError if the test lets it fail."""
        self.failing_open -= 1
        if self.failing_open == 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def _observe(self) -> None:
        if self.observer is not None:
            self.observer()


class MemoryFile:
    """Implements `waltz_storage.core.disk.DiskFile`."""

    def __init__(self, disk: MemoryDisk, node: _Node) -> None:
        self._disk = disk
        self._node = node
        self._closed = False

    def size(self) -> int:
        """See `DiskFile`."""
        return len(self._node.current)

    def read(self, offset: int, length: int) -> bytes:
        """See `DiskFile`."""
        assert not self._closed
        return bytes(self._node.current[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        """See `DiskFile`."""
        assert not self._closed
        growth = offset + len(data) - len(self._node.current)
        missing = max(0, growth) - max(0, self._disk.left())
        if missing > 0:
            fits = data[: max(0, len(data) - missing)]
            if fits:
                self._disk.change(self._node, (offset, fits))
            raise NoSpace("no space left: as configured by the test")
        if data:
            self._disk.change(self._node, (offset, bytes(data)))

    def write_durably(self, offset: int, data: bytes) -> None:
        """See `DiskFile`."""
        self.write(offset, data)
        self.flush()

    def allocate(self, start: int, end: int) -> None:
        """See `DiskFile`."""
        self.write(start, bytes(end - start))

    def truncate(self, size: int) -> None:
        """See `DiskFile`."""
        assert not self._closed
        self._disk.change(self._node, (size, None))

    def flush(self) -> None:
        """See `DiskFile`."""
        assert not self._closed
        self._disk.flush(self._node)

    def lock(self, length: int) -> bool:
        """See `DiskFile`."""
        holder = self._disk.locks.setdefault(id(self._node), self)
        return holder is self

    def close(self) -> None:
        """See `DiskFile`."""
        assert not self._closed
        self._closed = True
        if self._disk.locks.get(id(self._node)) is self:
            del self._disk.locks[id(self._node)]


def _survivor(node: _Node, random: Random) -> bytes:
    """Return a file's content after a crash: a mixture of its contents since the last flush."""
    version = bytearray(node.durable)
    versions = [bytes(version)]
    for change in node.pending:
        _apply(version, change)
        versions.append(bytes(version))
    outcome = random.choice(("lost", "kept", "mixed", "mixed"))
    if outcome == "lost" or len(versions) == 1:
        return versions[0]
    if outcome == "kept":
        return versions[-1]
    chosen = random.randrange(len(versions))
    size = len(versions[chosen])
    mixture = b"".join(
        _sector(random.choice(_candidates(versions, chosen, start)), start, random)
        for start in range(0, size, SECTOR_BYTES)
    )
    # One sector is torn: from the byte ``tear`` to its end it has the content of another version.
    tear = random.randrange(size + 1)
    other = random.choice(_candidates(versions, chosen, tear))
    end = min(size, tear - tear % SECTOR_BYTES + SECTOR_BYTES)
    return mixture[:tear] + other[tear:end].ljust(end - tear, b"\0") + mixture[end:size]


def _candidates(versions: list[bytes], chosen: int, start: int) -> list[bytes]:
    """Return the versions whose content the sector at ``start`` may have.

    The file has the size of the version ``chosen``. Later versions that end before ``start`` are
    excluded: their truncation was lost, so the sector has kept its content.
    """
    return [v for n, v in enumerate(versions) if n <= chosen or len(v) > start]


def _sector(version: bytes, start: int, random: Random) -> bytes:
    """Return the sector at ``start`` of ``version``, which may end before or within the sector."""
    sector = version[start : start + SECTOR_BYTES]
    if not sector and random.random() < _OLD_BYTES_RATE:
        return random.randbytes(SECTOR_BYTES)
    return sector.ljust(SECTOR_BYTES, b"\0")
