"""Keeps freed memory for the next long message. Touches the process's C library.

Messages of a megabyte are allocated and freed all the time. By default glibc returns such memory to
the kernel immediately and maps new pages for the next message, which takes longer than all other
work on the message.
"""

from __future__ import annotations

import ctypes
import sys

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_KEPT_BYTES = 32 << 20
_MAPPED_BYTES = 32 << 20
"""Longer blocks are still mapped one by one, and returned when freed; glibc allows no more."""


def keep_freed_memory() -> None:
    """Let each thread of this process keep up to 32 MiB of freed memory.

    With a C library other than glibc it has no effect.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
