"""Tunes the memory of a process: what the C library keeps, how often Python collects garbage.

Touches the C library and the garbage collector of the process.

Messages of a megabyte are allocated and freed all the time. By default glibc returns such memory to
the kernel immediately and maps new pages for the next message, which takes longer than all other
work on the message.
"""

from __future__ import annotations

import ctypes
import gc
import sys

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_KEPT_BYTES = 32 << 20
_MAPPED_BYTES = 32 << 20
"""Longer blocks are still mapped one by one, and returned when freed; glibc allows no more."""

_YOUNG_OBJECTS = 20_000
_YOUNG_RUNS = 20
_OLD_RUNS = 20
"""The thresholds of gc.set_threshold: new objects, and runs of the two younger generations."""


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


def collect_rarely() -> None:
    """Collect garbage after 20,000 new objects instead of 700, and never examine today's objects.

    Reference counts free almost everything that a server or a storage allocates; cycles are left
    only by failed connections and exceptions. By default the collector runs every few appends, and
    its full runs examine every module and every cached record.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_RUNS, _OLD_RUNS)
