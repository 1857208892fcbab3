"""Write or replace a file so that its path never has an incomplete file, even after a crash.

Touches disk. Exports, records of imports and backups are written in this way.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from waltz.cli.running import Failed

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk, and of a user whose quota of the disk is used up."""


@contextlib.contextmanager
def written_durably(path: Path, partial_name: str) -> Iterator[Path]:
    """Yield the path of a partial file, which the block writes completely; rename it to ``path``.

    The partial file is beside ``path`` and has the name ``partial_name``. It is flushed to the disk
    before it is renamed. So ``path`` is always either what it was before or the complete new file,
    also after a power failure. Then the directory is flushed. So when the context has ended
    normally, a power failure does not undo the renaming.

    Raises Failed after an OSError, such as that of a full disk, also if the block raised it. The
    partial file is removed then, because it takes space that another attempt needs.
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
    # The text of the number, not ``problem.strerror``: pyarrow puts its own words into the latter.
    reason = os.strerror(problem.errno)
    if problem.errno in _NO_SPACE:
        return f"{reason}; free space, and run the same command again"
    return reason


def _flush(path: Path, flags: int) -> None:
    """Flush a file or a directory to the disk; ``flags`` are the flags for opening it."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
