"""Tune the memory of a process: what the C library keeps, how often Python collects garbage.

Touches the C library and the garbage collector of the process.

A process allocates and frees messages of a megabyte all the time. By default, glibc returns this
memory to the kernel immediately and maps new pages for the next message. That takes longer than all
other work on the message.
"""

from __future__ import annotations

import ctypes
import gc
import sys

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_KEPT_BYTES = 32 << 20
"""How many freed bytes glibc keeps at the end of each memory area; each thread uses one area."""

_MAPPED_BYTES = 32 << 20
"""Each block of at least this size is still returned to the kernel when it is freed.

This is the largest value that glibc allows."""

# The thresholds of gc.set_threshold.
_YOUNG_OBJECTS = 20_000
"""How many new objects cause a collection of the youngest generation."""

_YOUNG_RUNS = 20
"""How many collections of the youngest generation cause one of the middle generation."""

_MIDDLE_RUNS = 20
"""How many collections of the middle generation cause one of the oldest generation."""


def keep_freed_memory() -> None:
    """Let each thread of this process keep up to 32 MiB of freed memory.

    With a C library other than glibc, this function has no effect.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)


def collect_rarely() -> None:
    """Let the garbage collector run less often, and never examine the objects that exist now.

    The collector finds cycles of objects. Failed connections and exceptions leave cycles; all other
    objects of a server or a storage are freed by their reference counts. By default, Python 3.11
    runs the collector after 700 new objects, which is every few appends, and its full runs examine
    every module and every cached record.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_RUNS, _MIDDLE_RUNS)
