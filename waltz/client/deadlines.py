"""Bounds a wait, and raises an error that names what did not come. Reads the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from waltz.client.core.errors import AnswerLate

T = TypeVar("T")


async def in_time(work: Awaitable[T], seconds: float | None, missing: str) -> T:
    """Return what ``work`` returns. Raises AnswerLate if it takes longer than ``seconds``.

    ``missing`` begins the error, such as "partition 0 was not mounted". Without ``seconds`` there
    is no bound.
    """
    bound = asyncio.timeout(seconds)
    try:
        async with bound:
            return await work
    except TimeoutError:
        if not bound.expired():
            raise
        raise AnswerLate(
            f"{missing} within {seconds:g} s: check that servers and storages are running and "
            "reachable"
        ) from None
