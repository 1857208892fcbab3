"""Pure. The file of a write-ahead log: create it, recover its header, read its blocks.

The file is used only through the `Disk` that the caller passes.
"""

from __future__ import annotations

from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.log.segment_format import ByteSource
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.wal_header import (
    HEADER_BLOCKS,
    HeaderDamaged,
    WalHeader,
    decode_wal_header,
)

WAL_FILE = "waltz-storage.wal"
_NEW_FILE = f"{WAL_FILE}.new"
_WINDOW_BLOCKS = 256
"""How many blocks of 4096 bytes a `BlockReader` reads at a time."""


def create_wal(disk: Disk, header: WalHeader) -> None:
    """Create the file of an empty log, with all its blocks allocated.

    The file is written under another name, and renamed when its content is durable. So a crash
    leaves no incomplete log. Raises NoSpace, DiskFailed.
    """
    file = disk.create(_NEW_FILE)
    try:
        file.truncate(0)
        file.allocate(0, header.blocks * BLOCK_BYTES)
        file.write(header.slot * BLOCK_BYTES, header.encode())
        file.flush()
        disk.rename(_NEW_FILE, WAL_FILE)
        disk.flush_directory("")
    finally:
        file.close()


def recover_wal_header(file: DiskFile) -> WalHeader:
    """Read the current header, make it durable, and return it.

    The file has two blocks for headers. An update of the header writes the block that is not
    current. The last process may have written the current header and died before it flushed the
    file. Then only the header in the other block is durable. The next update would write over that
    block, and a crash that tore this write would leave no header. So this function writes the
    current header again and flushes it. Raises HeaderDamaged, OSError, NoSpace, DiskFailed.
    """
    raw = file.read(0, HEADER_BLOCKS * BLOCK_BYTES)
    header = decode_wal_header(raw[:BLOCK_BYTES], raw[BLOCK_BYTES:])
    check_size(header, file.size())
    write_wal_header(file, header)
    flush_wal(file)
    return header


def check_size(header: WalHeader, size: int) -> None:
    """Raise HeaderDamaged if a file of ``size`` bytes is shorter than ``header`` says.

    The missing blocks may have had transactions.
    """
    if size < header.blocks * BLOCK_BYTES:
        raise HeaderDamaged(
            f"the file has {size} bytes, but its header says {header.blocks * BLOCK_BYTES}"
        )


def write_wal_header(file: DiskFile, header: WalHeader) -> None:
    """Write the header to its block; it is durable after the next flush of the file."""
    file.write(header.slot * BLOCK_BYTES, header.encode())


def flush_wal(file: DiskFile) -> None:
    """Make everything that was written to the log durable; raises DiskFailed.

    This writes nothing. It uses `write_durably` because that method, unlike `DiskFile.flush`, runs
    one flush of a file at a time, so that no flush hides the error of another one.
    """
    file.write_durably(0, b"")


class BlockReader:
    """Reads blocks of the file for a scan, which reads most blocks once, in order.

    The reader keeps one *window* of consecutive blocks in memory. A block that is changed while it
    is in the window is read with its old content.
    """

    def __init__(self, file: ByteSource) -> None:
        self._file = file
        self._first_block = 0
        """The number of the first block in the window."""
        self._window = b""

    def read_block(self, number: int) -> bytes:
        """Return a block of the file, with zeros after the end of the file; raises OSError."""
        begin = (number - self._first_block) * BLOCK_BYTES
        is_in_window = 0 <= begin < len(self._window)
        if not is_in_window:
            self._first_block = number
            size = _WINDOW_BLOCKS * BLOCK_BYTES
            self._window = self._file.read(number * BLOCK_BYTES, size)
            begin = 0
        return self._window[begin : begin + BLOCK_BYTES].ljust(BLOCK_BYTES, b"\0")
