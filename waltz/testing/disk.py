"""A disk in memory that loses, tears and reorders writes that were not flushed. Touches nothing.

The disk keeps for each file the content that a reader sees, and the durable content: that of the
last flush. `MemoryDisk.crashed` returns the disk as it may be after a loss of power. Each sector of
a file then has the content of any moment since the last flush, or parts of two such contents; the
file has the size of any such moment (`torn_files`). Each change of names is kept or lost by itself.
`MemoryDisk.restarted` returns the disk as the next process finds it without a loss of power.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from random import Random
from typing import NamedTuple

from waltz.testing.torn_files import torn_content
from waltz_storage.core.disk import changing
from waltz_storage.core.errors import DiskFailed, NoSpace

UNLIMITED = 1 << 60
"""A limit in bytes that no test reaches."""


class _Write(NamedTuple):
    """A change of a file: ``data`` is written at ``position``, which may be beyond its end."""

    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        """Make this change of ``content``. Bytes between its end and ``position`` are zeros."""
        content.extend(bytes(max(0, self.position - len(content))))
        content[self.position : self.position + len(self.data)] = self.data


class _Resize(NamedTuple):
    """A change of a file: it is cut to ``size``, or extended by zeros."""

    size: int

    def apply(self, content: bytearray) -> None:
        """Make this change of ``content``."""
        del content[self.size :]
        content.extend(bytes(self.size - len(content)))


_Change = _Write | _Resize


@dataclass(slots=True)
class _Inode:
    """A file: the durable content, the content that a reader sees, and the changes in between."""

    durable: bytearray = field(default_factory=bytearray)
    current: bytearray = field(default_factory=bytearray)
    pending: list[_Change] = field(default_factory=list)

    def copy(self) -> _Inode:
        """Return a file with the same contents and changes."""
        return _Inode(bytearray(self.durable), bytearray(self.current), list(self.pending))


class _NameChange(NamedTuple):
    """A change of names: "mkdir", "link", "unlink", or "rename".

    Only a "rename" has two paths; any other change has its path as ``old`` and as ``new``.
    ``inode`` is the file of a "link", otherwise None.
    """

    kind: str
    old: str
    new: str
    inode: _Inode | None = None

    def apply(self, names: dict[str, _Inode], directories: set[str]) -> None:
        """Make this change of ``names`` or ``directories``.

        Ignore it if an earlier change that it needs was lost.
        """
        if self.kind == "mkdir":
            directories.add(self.new)
        elif self.kind == "link" and self.inode is not None:
            names[self.new] = self.inode
        elif self.kind == "unlink":
            names.pop(self.old, None)
        elif self.kind == "rename" and self.old in names:
            names[self.new] = names.pop(self.old)


class MemoryDisk:
    """Implements `waltz_storage.core.disk.Disk`.

    ``observer`` is called after every change: a test takes crashed copies there. ``space`` is the
    limit in bytes of all files together. ``failing_flush`` counts down at each flush of a file or a
    directory, and the flush that takes it from 1 to 0 fails. If a flush of a file fails, its
    changes are not durable, and no later flush repeats them, as on Linux. ``failing_open`` (of
    files, and of directories for their flush) and ``failing_remove`` count down in the same way.
    ``flushes`` counts the flushes of files and directories, ``open_files`` the files open now.
    """

    def __init__(self) -> None:
        self.observer: Callable[[], None] | None = None
        self.space = UNLIMITED
        self.failing_flush = 0
        self.failing_open = 0
        self.failing_remove = 0
        self.flushes = 0
        self.open_files = 0
        self.locks: dict[int, MemoryFile] = {}
        """For each locked `_Inode`, by its ``id``: the open file that holds the lock."""
        self.directories = {""}  # What a reader finds; below, what survives a loss of power.
        self._durable_directories = {""}
        self._names: dict[str, _Inode] = {}  # As with directories.
        self._durable_names: dict[str, _Inode] = {}
        self._pending_names: list[_NameChange] = []
        """The changes of names and directories that are not durable yet."""

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
        self._record_name_change(_NameChange("mkdir", path, path))

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
        inode = self._names.get(path)
        if inode is None:
            inode = self._names[path] = _Inode()
            self._record_name_change(_NameChange("link", path, path, inode))
        return MemoryFile(self, inode)

    def rename(self, old: str, new: str) -> None:
        """See `Disk`."""
        self._names[new] = self._names.pop(old)
        self._record_name_change(_NameChange("rename", old, new))

    def remove(self, path: str) -> None:
        """See `Disk`."""
        self.failing_remove -= 1
        if self.failing_remove == 0:
            raise DiskFailed(f"removal of {path} failed: as configured by the test")
        del self._names[path]
        self._record_name_change(_NameChange("unlink", path, path))

    def flush_directory(self, path: str) -> None:
        """See `Disk`."""
        with changing("flush of a directory"):
            self._count_open()  # A real disk opens the directory for its flush.
        self._count_flush("directory")
        for change in [c for c in self._pending_names if _directory_of(c.old) == path]:
            change.apply(self._durable_names, self._durable_directories)
            self._pending_names.remove(change)
        self._observe()

    def content(self, path: str) -> bytes:
        """Return the content of a file as a reader finds it."""
        return bytes(self._names[path].current)

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Change a file durably, as damage of the disk does: ``observer`` is not called."""
        inode = self._names[path]
        for content in (inode.durable, inode.current):
            _Write(position, data).apply(content)

    def lose_directory(self, path: str) -> None:
        """Remove a directory and its files durably, as an administrator may do by mistake."""
        prefix = f"{path}/"
        for names in (self._names, self._durable_names):
            for name in [name for name in names if name.startswith(prefix)]:
                del names[name]
        # The slash is added so that the path of the directory itself begins with ``prefix``, too.
        self._pending_names = [c for c in self._pending_names if not f"{c.old}/".startswith(prefix)]
        self.directories.discard(path)
        self._durable_directories.discard(path)

    def restarted(self) -> MemoryDisk:
        """Return the disk as a new process finds it: no file is locked, and no power was lost."""
        copies = {id(inode): inode.copy() for inode in self._inodes()}
        disk = MemoryDisk()
        disk._names = {path: copies[id(inode)] for path, inode in self._names.items()}
        disk._durable_names = {
            path: copies[id(inode)] for path, inode in self._durable_names.items()
        }
        disk.directories = set(self.directories)
        disk._durable_directories = set(self._durable_directories)
        disk._pending_names = [
            change if change.inode is None else change._replace(inode=copies[id(change.inode)])
            for change in self._pending_names
        ]
        return disk

    def crashed(self, random: Random) -> MemoryDisk:
        """Return the disk as it may be after power was lost now."""
        names, directories = dict(self._durable_names), set(self._durable_directories)
        kept_share = random.choice((0.0, 0.5, 1.0))  # Of the changes of names.
        for change in self._pending_names:
            if random.random() < kept_share:
                change.apply(names, directories)
        return _after_crash(names, directories, lambda inode: _torn_content_of(inode, random))

    @property
    def unflushed(self) -> int:
        """How many changes of files and names are not durable."""
        return len(self._pending_names) + sum(len(inode.pending) for inode in self._inodes())

    def every_crash(self) -> Iterator[MemoryDisk]:
        """Yield the disk after a loss of power, once for each subset of changes that may survive.

        Each change that is not durable survives whole or is lost: there are 2^`unflushed` subsets.
        """
        inodes = self._inodes()
        writes = [(inode, change) for inode in inodes for change in inode.pending]
        for kept in product((False, True), repeat=self.unflushed):
            contents = {id(inode): bytearray(inode.durable) for inode in inodes}
            names, directories = dict(self._durable_names), set(self._durable_directories)
            # ``kept`` has first a value for each write, then one for each change of names.
            kept_writes, kept_names = kept[: len(writes)], kept[len(writes) :]
            for (inode, write), survives in zip(writes, kept_writes, strict=True):
                if survives:
                    write.apply(contents[id(inode)])
            for change, survives in zip(self._pending_names, kept_names, strict=True):
                if survives:
                    change.apply(names, directories)
            surviving = {id(inode): bytes(contents[id(inode)]) for inode in inodes}
            yield _after_crash(names, directories, content=partial(_content_in, surviving))

    def change(self, inode: _Inode, change: _Change) -> None:
        """Make a change of a file, which is not durable before `flush`."""
        change.apply(inode.current)
        inode.pending.append(change)
        self._observe()

    def flush(self, inode: _Inode) -> None:
        """Make a file durable."""
        # If the flush fails below, the changes are no longer pending: no later flush repeats them.
        pending, inode.pending = inode.pending, []
        self._count_flush("file")
        for change in pending:
            change.apply(inode.durable)
        self._observe()

    def free_bytes(self) -> int:
        """Return by how many bytes files may still grow; negative if they exceed ``space``."""
        return self.space - sum(len(inode.current) for inode in self._names.values())

    def _inodes(self) -> list[_Inode]:
        """Return all files that have or had a name, each once."""
        inodes = [*self._names.values(), *self._durable_names.values()]
        inodes += [change.inode for change in self._pending_names if change.inode is not None]
        return list({id(inode): inode for inode in inodes}.values())

    def _record_name_change(self, change: _NameChange) -> None:
        """Record a change of names, which is not durable before `flush_directory`."""
        self._pending_names.append(change)
        self._observe()

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

    def __init__(self, disk: MemoryDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._closed = False
        disk.open_files += 1

    def size(self) -> int:
        """See `DiskFile`."""
        return len(self._inode.current)

    def read(self, offset: int, length: int) -> bytes:
        """See `DiskFile`."""
        assert not self._closed
        return bytes(self._inode.current[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        """See `DiskFile`. If the space does not suffice, write the part of ``data`` that fits."""
        assert not self._closed
        growth = offset + len(data) - len(self._inode.current)
        missing_bytes = 0
        if self._disk.space < UNLIMITED:  # For speed: `free_bytes` adds the sizes of all files.
            missing_bytes = max(0, growth) - max(0, self._disk.free_bytes())
        if missing_bytes > 0:
            fitting = data[: max(0, len(data) - missing_bytes)]
            if fitting:
                self._disk.change(self._inode, _Write(offset, fitting))
            raise NoSpace("no space left: as configured by the test")
        if data:
            self._disk.change(self._inode, _Write(offset, bytes(data)))

    def write_durably(self, offset: int, data: bytes) -> None:
        """See `DiskFile`."""
        self.write(offset, data)
        self.flush()

    def one_flush(self) -> AbstractContextManager[object]:
        """Return a context without effect in place of the lock: flushes in memory take no time."""
        return nullcontext()

    def allocate(self, start: int, end: int) -> None:
        """See `DiskFile`."""
        self.write(start, bytes(end - start))

    def truncate(self, size: int) -> None:
        """See `DiskFile`."""
        assert not self._closed
        self._disk.change(self._inode, _Resize(size))

    def flush(self) -> None:
        """See `DiskFile`."""
        assert not self._closed
        self._disk.flush(self._inode)

    def lock(self, length: int) -> bool:
        """See `DiskFile`."""
        holder = self._disk.locks.setdefault(id(self._inode), self)
        return holder is self

    def close(self) -> None:
        """See `DiskFile`."""
        assert not self._closed
        self._closed = True
        self._disk.open_files -= 1
        if self._disk.locks.get(id(self._inode)) is self:
            del self._disk.locks[id(self._inode)]


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def _after_crash(
    names: dict[str, _Inode], directories: set[str], content: Callable[[_Inode], bytes]
) -> MemoryDisk:
    """Return a disk with the ``content`` of each file whose directory survives, all durable."""
    disk = MemoryDisk()
    disk.directories, disk._durable_directories = directories, set(directories)
    for path, inode in names.items():
        if _directory_of(path) in directories:
            surviving = content(inode)
            disk._names[path] = _Inode(bytearray(surviving), bytearray(surviving))
    disk._durable_names = dict(disk._names)
    return disk


def _content_in(contents: dict[int, bytes], inode: _Inode) -> bytes:
    return contents[id(inode)]


def _torn_content_of(inode: _Inode, random: Random) -> bytes:
    """Return a file's content after a crash: a mixture of its contents since the last flush."""
    version = bytearray(inode.durable)
    versions = [bytes(version)]
    for change in inode.pending:
        change.apply(version)
        versions.append(bytes(version))
    return torn_content(versions, random)
