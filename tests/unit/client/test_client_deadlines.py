"""The time limit of a wait: its own error when it passes, and no other error changed."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.virtual_time import on_virtual_time
from waltz.client.deadlines import TimeLimit


def late() -> OSError:
    return OSError("late")


@on_virtual_time
async def test_time_limit_that_passes_raises_the_given_error() -> None:
    with pytest.raises(OSError, match="late"):
        async with TimeLimit(5, late):
            await asyncio.sleep(6)


@on_virtual_time
async def test_time_limit_leaves_a_timeout_error_of_its_block_as_it_is() -> None:
    with pytest.raises(TimeoutError, match="of the block"):
        async with TimeLimit(5, late):
            raise TimeoutError("of the block")


@on_virtual_time
async def test_time_limit_of_none_never_passes() -> None:
    async with TimeLimit(None, late):
        await asyncio.sleep(500)
