"""Tune the memory of a process: what the C library keeps, how often Python collects garbage.

Touches the C library and the garbage collector of the process.

A process allocates and frees messages of a megabyte all the time. By default, glibc returns this
memory to the kernel immediately and maps new pages for the next message. That takes longer than all
other work on the message. So `favour_speed` lets glibc keep the memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from collections.abc import Mapping

# Parameters of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_KEPT_BYTES = 32 << 20
"""How many freed bytes glibc keeps at the end of each memory area; each thread uses one area."""

_MAPPED_BYTES = 32 << 20
"""Each block of at least this size is still returned to the kernel when it is freed.

This is the largest value that glibc allows."""

_SMALL_BLOCK_BYTES = 64 << 10
"""With `favour_size`, each block of at least this size is returned to the kernel when it is freed.

By default glibc raises this limit when the first such block is freed, and keeps later blocks of
that size in the heap. Then the 256 KiB that asyncio has for each connection with TLS leave holes in
the heap, which never becomes smaller. A limit that is set here stays as it is."""

# The thresholds of gc.set_threshold.
_YOUNG_OBJECTS = 20_000
"""How many new objects cause a collection of the youngest generation."""

_YOUNG_RUNS = 20
"""How many collections of the youngest generation cause one of the middle generation."""

_MIDDLE_RUNS = 20
"""How many collections of the middle generation cause one of the oldest generation."""


def favour_speed() -> None:
    """Tune a process that handles many messages: a server, a storage, a client."""
    keep_freed_memory()
    _collect_rarely()


def favour_size() -> None:
    """Tune a process that works little and should be small, such as the operator."""
    # Keep no freed bytes at the end of a memory area, and have two areas for all threads: each
    # further area would have free memory of its own.
    _set_malloc({_M_TRIM_THRESHOLD: 0, _M_MMAP_THRESHOLD: _SMALL_BLOCK_BYTES, _M_ARENA_MAX: 2})
    _freeze()


async def collect_every(seconds: float) -> None:
    """Run a full garbage collection every ``seconds``, until this task is cancelled.

    Failed requests leave cycles of few objects that refer to large buffers of their connections.
    Python counts only objects, not bytes: by itself, it would collect such cycles only after they
    use hundreds of megabytes.
    """
    while True:
        await asyncio.sleep(seconds)
        gc.collect()


def keep_freed_memory() -> None:
    """Let each thread of this process keep up to 32 MiB of freed memory.

    With a C library other than glibc, this function has no effect.
    """
    _set_malloc({_M_TRIM_THRESHOLD: _KEPT_BYTES, _M_MMAP_THRESHOLD: _MAPPED_BYTES})


def _set_malloc(parameters: Mapping[int, int]) -> None:
    """Set parameters of glibc's malloc; no effect with another C library."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in parameters.items():
            mallopt(parameter, value)


def _freeze() -> None:
    """Exclude the objects that exist now from all later garbage collections."""
    gc.collect()
    gc.freeze()


def _collect_rarely() -> None:
    """Make the garbage collector run less often, and exclude the objects that exist now.

    The collector is needed only for cycles of objects, which failed connections and exceptions
    leave. All other objects of a server or a storage are freed by their reference counts. By
    default, Python 3.11 runs the collector after 700 new objects, which is every few appends. Its
    full runs examine every module and every cached record.
    """
    _freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_RUNS, _MIDDLE_RUNS)
