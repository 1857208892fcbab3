"""A load closes every client that it has opened, also if another client cannot be opened."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from waltz.cli.bench import load
from waltz.cli.cluster_options import Target
from waltz.cli.running import Failed
from waltz.client import ClusterUnreachable
from waltz.client.opening import Opening


class CountedClients:
    """Clients of which the second one cannot be opened, and the third one takes longer."""

    def __init__(self) -> None:
        self.number = 0
        self.open = 0

    def open_client(self, _: Target, *, max_in_flight: int) -> Opening[CountedClients]:
        number, self.number = self.number, self.number + 1
        return Opening(lambda: self._open(number))

    async def _open(self, number: int) -> CountedClients:
        await asyncio.sleep(0.01 * number)
        if number == 1:
            raise ClusterUnreachable("no session")
        self.open += 1
        return self

    async def close(self) -> None:
        self.open -= 1


async def test_load_whose_second_client_fails_to_open_leaves_no_client_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = CountedClients()
    monkeypatch.setattr(load, "open_client", clients.open_client)
    plan = load.LoadPlan(partitions=[0], clients=3, transactions=1)
    with pytest.raises(ClusterUnreachable, match="no session"):
        await load.produce(cast(Target, None), plan, load.unlocked_write(b""), lambda _: None)
    await asyncio.sleep(0.05)
    assert clients.number == 3
    assert clients.open == 0


async def test_load_of_a_missing_partition_appends_to_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it had appended could not be removed."""

    class Clients(CountedClients):
        num_partitions = 4

        async def _open(self, number: int) -> CountedClients:
            return self

    async def write(*_: object) -> int:
        raise AssertionError("the load appended")

    clients = Clients()
    monkeypatch.setattr(load, "open_client", clients.open_client)
    plan = load.LoadPlan(partitions=[0, 4], clients=1, transactions=1)
    with pytest.raises(Failed, match="there is no partition 4: the cluster has partitions 0 to 3"):
        await load.produce(cast(Target, None), plan, write, lambda _: None)
