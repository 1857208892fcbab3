"""The load generator ends with an error, instead of waiting, if a connection is lost."""

from __future__ import annotations

import pytest

from bench.load import Load, LoadClient


async def test_load_client_fails_if_its_connection_is_lost_before_the_mount() -> None:
    load = Load(
        host="127.0.0.1",
        port=1,
        generations={0: 1},
        clients=1,
        window=1,
        size=8,
        records=1,
        locks=False,
        tls=False,
        first_client_id=1,
    )
    client = LoadClient(load, 1, [0], 1)
    client.lost("the server has stopped")
    for future in (client.mounted, client.done):
        with pytest.raises(ConnectionError, match="the server has stopped"):
            await future
