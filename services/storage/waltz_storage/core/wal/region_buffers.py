"""Pure. The changes of one file that are not written to it yet.

A transaction changes many files by a few bytes each. The buffer of a file gathers such changes, so
that the file gets a few large writes. A change is *pending* while it is only in the buffer. Reads
see pending changes. `region_files` has a buffer for each open file. Files are used only through the
`DiskFile` objects that the caller passes.
"""

from __future__ import annotations

from typing import Protocol

from waltz_storage.core.disk import DiskFile

_RUN_BYTES = 64 << 10
"""A run that has reached this size is written to its file."""


class Buffer(Protocol):
    """A file and its pending changes.

    If a method raises NoSpace, a part of the changes may be in the file.
    """

    file: DiskFile

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer only at the end of the file.

        Raises OSError. Raises NoSpace, DiskFailed if pending changes must be written first.
        """

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset``; raises NoSpace, DiskFailed."""

    def zero(self, offset: int, length: int) -> None:
        """Write ``length`` zeros at ``offset``; raises NoSpace, DiskFailed."""

    def cut(self, length: int) -> None:
        """Cut the file to ``length`` bytes; raises NoSpace, DiskFailed.

        A shorter file gets zeros at its end. This happens in a replay: a later operation of the
        log may have cut the file further, or removed it, before the crash.
        """

    def write_pending(self, offset: int, length: int) -> None:
        """Write the pending changes of these bytes to the file; raises NoSpace, DiskFailed."""

    def write_out(self) -> None:
        """Write all pending changes to the file; raises NoSpace, DiskFailed."""


class RunBuffer:
    """The buffer of a file that grows at its end.

    All pending changes are one *run* of consecutive bytes. A change elsewhere first writes the run
    to the file.
    """

    def __init__(self, file: DiskFile) -> None:
        self.file = file
        self._start = 0
        """The offset in the file at which the run begins."""
        self._end = 0
        """The offset after the run; the run is empty if this is ``_start``."""
        self._parts: list[bytes] = []
        """The data of the run, joined only when they are written: each byte is copied once."""

    def read(self, offset: int, length: int) -> bytes:
        """See `Buffer`."""
        # Bytes before the run are in the file already.
        if offset + length > self._start:
            self.write_out()
        return self.file.read(offset, length)

    def write(self, offset: int, data: bytes) -> None:
        """See `Buffer`."""
        if offset != self._end:
            self.write_out()
            self._start = self._end = offset
        self._parts.append(data)
        self._end += len(data)
        if self._end - self._start >= _RUN_BYTES:
            self.write_out()

    def zero(self, offset: int, length: int) -> None:
        """See `Buffer`."""
        self.write_out()
        self.file.allocate(offset, offset + length)  # Also overwrites existing bytes with zeros.

    def cut(self, length: int) -> None:
        """See `Buffer`."""
        self.write_out()
        self.file.truncate(length)

    def write_pending(self, offset: int, length: int) -> None:
        """See `Buffer`."""
        if offset < self._end and self._start < offset + length:
            self.write_out()

    def write_out(self) -> None:
        """See `Buffer`."""
        if self._start < self._end:
            self.file.write(self._start, b"".join(self._parts))
            self._parts.clear()
            self._start = self._end


class ImageBuffer:
    """The buffer of a small file that changes everywhere: its whole content is in memory."""

    def __init__(self, file: DiskFile) -> None:
        """Read the file; raises OSError."""
        self.file = file
        self._content = bytearray(file.read(0, file.size()))
        self._low = self._high = 0
        """The range of the content that has all pending changes; it is empty if there are none."""

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
