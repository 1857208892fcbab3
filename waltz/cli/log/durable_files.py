"""Rename a complete file so that the new name survives a power failure. Touches disk."""

from __future__ import annotations

import os
from pathlib import Path


def rename_durably(complete: Path, path: Path) -> None:
    """Rename ``complete`` to ``path`` in the same directory, and flush both to the disk.

    The file is flushed first: after a power failure ``path`` is the complete file, or what it was
    before. The directory is flushed last: when this function returns, ``path`` is the complete
    file.
    """
    assert complete.parent == path.parent, "only one directory is flushed"
    _flush(complete, os.O_RDONLY)
    complete.rename(path)
    _flush(path.parent, os.O_RDONLY | os.O_DIRECTORY)


def _flush(path: Path, flags: int) -> None:
    """Flush a file or a directory to the disk; ``flags`` are those for opening it."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
