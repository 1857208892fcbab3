"""Limit the time of a wait; the error says what is missing. Reads the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar

from waltz.client.core.errors import AnswerLate

T = TypeVar("T")


class TimeLimit:
    """Cancels its block after ``seconds``, and raises the error that ``late_error`` returns.

    ``seconds`` may be None: no limit. A TimeoutError of the block itself is raised as it is.
    """

    def __init__(self, seconds: float | None, late_error: Callable[[], Exception]) -> None:
        self._bound = asyncio.timeout(seconds)
        self._late_error = late_error

    async def __aenter__(self) -> None:
        await self._bound.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._bound.__aexit__(kind, error, traceback)
        except TimeoutError:  # `asyncio.timeout` raises it only if this limit has passed.
            raise self._late_error() from None


def no_problems() -> str:
    """Return nothing to add to the text of an error: the default of ``problems``."""
    return ""


async def in_time(
    work: Awaitable[T],
    seconds: float | None,
    missing: str,
    problems: Callable[[], str] = no_problems,
) -> T:
    """Await ``work`` and return its result. Raises AnswerLate if that takes more than ``seconds``.

    ``seconds`` may be None: no limit. The text of the error begins with ``missing``, for example
    "partition 0 was not mounted", and ends with what ``problems`` returns at that time.
    """

    def late_error() -> AnswerLate:
        return AnswerLate(
            f"{missing} within {seconds:g} s: check that servers and storages are running and "
            f"reachable{problems()}"
        )

    async with TimeLimit(seconds, late_error):
        return await work
