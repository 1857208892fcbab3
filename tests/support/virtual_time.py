"""Run a test on virtual time: timeouts and delays then take no real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from waltz.testing import run

P = ParamSpec("P")

_LONGEST_SECONDS = 600.0
"""A test that takes longer, on virtual time, fails. pytest's own timeout could not end it: the
exception would end only the task that runs at that moment."""


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Return ``test`` as a function that runs on a `waltz.testing.VirtualTimeLoop`.

    Asynchronous fixtures would run on another event loop: the test must not have any.
    """

    async def limited(*args: P.args, **kwargs: P.kwargs) -> None:
        async with asyncio.timeout(_LONGEST_SECONDS):
            await test(*args, **kwargs)

    @wraps(test)
    def run_test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(limited(*args, **kwargs))

    return run_test
