"""What people are told of a storage that takes its time."""

from __future__ import annotations

import asyncio

import pytest

from waltz.cli.admin_access import given_time
from waltz.cli.running import Failed


async def test_a_storage_that_takes_too_long_goes_on_by_itself() -> None:
    said = r"s:1 has not answered within 0.01 s; .* goes on with that\. Then: waltz storage sync"
    with pytest.raises(Failed, match=said):
        async with given_time("s:1", 0.01, "Then: waltz storage sync"):
            await asyncio.Event().wait()


async def test_one_that_is_quick_is_not_spoken_of() -> None:
    async with given_time("s:1", 60, ""):
        pass
