"""The two event loops on which Waltz runs, for tests of what differs between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import pytest
import uvloop

T = TypeVar("T")

NewLoop = Callable[[], asyncio.AbstractEventLoop]

both_loops = pytest.mark.parametrize(
    "new_loop",
    [asyncio.new_event_loop, cast(NewLoop, uvloop.new_event_loop)],
    ids=["asyncio", "uvloop"],
)
"""Gives a test the argument ``new_loop``, of type `NewLoop`."""


def run_on(new_loop: NewLoop, main: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``main``, which runs on a new event loop."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
