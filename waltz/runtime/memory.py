"""Memory that was freed is kept for the next long message. Touches this process' C library.

Messages of a megabyte come and go all the time. glibc gives such memory back as soon as it is free
and has it mapped anew, page by page, which takes longer than everything else that is done with the
message.
"""

from __future__ import annotations

import ctypes
import sys

# Numbers of settings, see mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

_KEPT_BYTES = 32 << 20
_MAPPED_BYTES = 32 << 20
"""Longer pieces are still mapped for themselves, and given back; glibc allows no more."""


def keep_freed_memory() -> None:
    """Have this process keep up to 32 MiB of what it freed, in each thread that frees long pieces.

    Where the C library is another one, nothing happens.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
