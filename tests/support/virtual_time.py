"""Run a test on virtual time: timeouts and delays then take no real time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from waltz.testing import run

P = ParamSpec("P")


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Return ``test`` as a function that runs on a `waltz.testing.VirtualTimeLoop`.

    Asynchronous fixtures would run on another event loop: the test must not have any.
    """

    @wraps(test)
    def run_test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return run_test
