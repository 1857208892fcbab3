"""Limit the time of a wait, and name the missing result in the error. Reads the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from waltz.client.core.errors import AnswerLate

T = TypeVar("T")


async def in_time(work: Awaitable[T], seconds: float | None, missing: str) -> T:
    """Await ``work`` and return its result. Raises AnswerLate if that takes more than ``seconds``.

    ``seconds`` may be None: no limit. The error begins with ``missing``, for example "partition 0
    was not mounted".
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
