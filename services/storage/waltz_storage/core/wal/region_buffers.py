"""Pure. The changes of one file that are not written to it yet.

A transaction changes many files by a few bytes each. A buffer gathers such changes, so that the
file gets a few large writes. Reads see the changes. A file is used only through the `DiskFile` that
the caller passes.
"""

from __future__ import annotations

from typing import Protocol

from waltz_storage.core.disk import DiskFile

_RUN_BYTES = 64 << 10
"""A run of this size is written to its file."""


class Buffer(Protocol):
    """A file and its pending changes.

    If a method raises NoSpace, only a part of the changes is in the file.
    """

    file: DiskFile

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer only at the end. Raises NoSpace, DiskFailed."""

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset``; raises NoSpace, DiskFailed."""

    def zero(self, offset: int, length: int) -> None:
        """Write ``length`` zeros at ``offset``; raises NoSpace, DiskFailed."""

    def cut(self, length: int) -> None:
        """Give the file exactly ``length`` bytes; raises NoSpace, DiskFailed."""

    def write_pending(self, offset: int, length: int) -> None:
        """Write the pending changes of these bytes to the file; raises NoSpace, DiskFailed."""

    def write_out(self) -> None:
        """Write all pending changes to the file; raises NoSpace, DiskFailed."""


class RunBuffer:
    """The buffer of a file that grows at its end: one run of consecutive bytes is pending."""

    def __init__(self, file: DiskFile) -> None:
        self.file = file
        self._start = 0
        """The offset in the file at which the run begins."""
        self._run = bytearray()

    def read(self, offset: int, length: int) -> bytes:
        """See `Buffer`."""
        if offset + length > self._start:
            self.write_out()
        return self.file.read(offset, length)

    def write(self, offset: int, data: bytes) -> None:
        """See `Buffer`."""
        if self._run and offset != self._start + len(self._run):
            self.write_out()
        if not self._run:
            self._start = offset
        self._run += data
        if len(self._run) >= _RUN_BYTES:
            self.write_out()

    def zero(self, offset: int, length: int) -> None:
        """See `Buffer`."""
        self.write_out()
        self.file.allocate(offset, offset + length)

    def cut(self, length: int) -> None:
        """See `Buffer`."""
        self.write_out()
        self.file.truncate(length)

    def write_pending(self, offset: int, length: int) -> None:
        """See `Buffer`."""
        if offset < self._start + len(self._run) and self._start < offset + length:
            self.write_out()

    def write_out(self) -> None:
        """See `Buffer`."""
        if self._run:
            self.file.write(self._start, bytes(self._run))
            self._run.clear()


class ImageBuffer:
    """The buffer of a small file that changes everywhere: its whole content is in memory."""

    def __init__(self, file: DiskFile) -> None:
        """Read the file; raises OSError."""
        self.file = file
        self._content = bytearray(file.read(0, file.size()))
        # The pending changes are in this range of the content; it is empty if there are none.
        self._low = self._high = 0

    def read(self, offset: int, length: int) -> bytes:
        """See `Buffer`."""
        return bytes(self._content[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        """See `Buffer`."""
        end = offset + len(data)
        if not data:
            return
        # Bytes between the former end and ``offset`` are zeros and are written, too.
        begin = min(offset, len(self._content))
        self._content.extend(bytes(max(0, end - len(self._content))))
        self._content[offset:end] = data
        if self._low == self._high:
            self._low, self._high = begin, end
        else:
            self._low, self._high = min(self._low, begin), max(self._high, end)

    def zero(self, offset: int, length: int) -> None:
        """See `Buffer`."""
        self.write(offset, bytes(length))

    def cut(self, length: int) -> None:
        """See `Buffer`."""
        self.write_out()
        self.file.truncate(length)
        del self._content[length:]
        self._content.extend(bytes(length - len(self._content)))

    def write_pending(self, offset: int, length: int) -> None:
        """See `Buffer`."""
        if offset < self._high and self._low < offset + length:
            self.write_out()

    def write_out(self) -> None:
        """See `Buffer`."""
        if self._low < self._high:
            self.file.write(self._low, bytes(self._content[self._low : self._high]))
            self._low = self._high = 0
