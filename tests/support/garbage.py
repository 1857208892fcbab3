"""Look at memory without the garbage collector, which servers and storages run seldom."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect once, then switch the collector off in the block: no cycle is freed there."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def kept_garbage() -> Iterator[list[object]]:
    """Yield a list that gets, at the end of the block, what only the collector could free.

    The objects are those that became unreachable in the block.
    """
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    found: list[object] = []
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
