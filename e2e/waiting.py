"""Waits for a condition, with a deadline. Touches the clock, and what the condition touches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.5


def until(
    look: Callable[[], T | None],
    seconds: float,
    what: str,
    *,
    show: Callable[[], object] | None = None,
) -> T:
    """Return the first thing that ``look`` returns that counts as true.

    Fails after so many seconds, saying what did not come about, and what ``show`` tells.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            told = "" if show is None else f"\n{show()}"
            raise AssertionError(f"not within {seconds:g} s: {what}{told}")
        time.sleep(_POLL_SECONDS)
