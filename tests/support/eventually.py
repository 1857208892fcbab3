"""Wait in tests for a condition instead of a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Return as soon as ``condition()`` is true; fail after ``seconds``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"still not true after {seconds:g} s"
        await asyncio.sleep(0.002)
