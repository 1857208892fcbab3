"""Write a complete file so that it survives a power failure. Touches disk."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from waltz.cli.running import Failed

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def written_durably(path: Path, partial_name: str) -> Iterator[Path]:
    """Yield the path of an incomplete file, which the block writes; then rename it to ``path``.

    The incomplete file is beside ``path`` and has the name ``partial_name``. It is flushed first:
    after a power failure ``path`` is the complete file, or what it was before. The directory is
    flushed last: when the context ends, ``path`` is the complete file.

    Raises Failed if the block or the rest raises an OSError, as on a full disk. The incomplete file
    is removed then, because it takes the space that another attempt needs.
    """
    partial = path.with_name(partial_name)
    try:
        yield partial
        _flush(partial, os.O_RDONLY)
        partial.rename(path)
        _flush(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as problem:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise Failed(f"{path} cannot be written: {_reason(problem)}") from problem


def _reason(problem: OSError) -> str:
    """Return what happened, and for a full disk what to do."""
    if problem.errno is None:
        return str(problem)
    # Not `strerror`: pyarrow sets a text that begins with its own words.
    reason = os.strerror(problem.errno)
    if problem.errno in _NO_SPACE:
        return f"{reason}; free space, and run the same command again"
    return reason


def _flush(path: Path, flags: int) -> None:
    """Flush a file or a directory to the disk; ``flags`` are those for opening it."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
