"""Prevent two exports or imports from using the same files at the same time. Touches disk."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waltz.cli.running import Failed


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Lock ``path``, a file or directory, until the block ends. Raises Failed if it is locked.

    The operating system releases the lock if the process crashes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed(
                f"another export or import of {path} is running; wait until it ends"
            ) from None
        yield
    finally:
        os.close(descriptor)  # This also releases the lock.
