"""The client of the console's log browser is replaced after it has failed."""

from __future__ import annotations

from typing import cast

import pytest

from waltz.client import ClientClosed, ClientFailed, LogClient, WaltzError
from waltz.console.core.records import DataFormat
from waltz.console.shell.log_reader import LogPageReader


class Client:
    """A client of an empty log, which fails when the test says so."""

    def __init__(self) -> None:
        self.failure: WaltzError | None = None
        self.closed = False

    async def flush(self, **_: float) -> None:
        if self.failure is not None:
            raise self.failure

    async def high_water_mark(self, partition: int, **_: float) -> int:
        await self.flush()
        return -1

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("failure", [ClientFailed("access is denied"), ClientClosed()])
async def test_page_after_a_failure_is_read_by_a_new_client(failure: WaltzError) -> None:
    """Otherwise the console would have to be started again, for example after a restore."""
    opened: list[Client] = []

    async def open_client() -> LogClient[bytes]:
        opened.append(Client())
        return cast(LogClient[bytes], opened[-1])

    reader = LogPageReader(open_client)
    for _ in range(2):
        assert (await reader.page(0, None, 10, DataFormat.AUTO)).high_water_mark == -1
    assert len(opened) == 1
    opened[0].failure = failure
    assert (await reader.page(0, None, 10, DataFormat.AUTO)).high_water_mark == -1
    assert [each.closed for each in opened] == [True, False]
    await reader.aclose()
    assert opened[1].closed
