"""Wait for a condition with a deadline. Touches the clock; the condition may touch anything."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 1.0

KILLED = "WALTZ_E2E_KILLED"
"""The environment variable that is 1 if every operator is killed after its first step."""

OPERATORS_ARE_KILLED = os.environ.get(KILLED) == "1"
PATIENCE = 4.0 if OPERATORS_ARE_KILLED else 1.0
"""How many times longer each wait may last: killed operators need a start for each step."""


def until(
    condition: Callable[[], T | None],
    seconds: float,
    description: str,
    *,
    show: Callable[[], object] | None = None,
) -> T:
    """Call ``condition`` until its result is true or not empty; return that result.

    After ``seconds``, or later with killed operators (`PATIENCE`), it raises AssertionError with
    ``description`` and the result of ``show``.
    """
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            state = "" if show is None else f"\n{show()}"
            raise AssertionError(f"not within {seconds:g} s: {description}{state}")
        time.sleep(_POLL_SECONDS)
