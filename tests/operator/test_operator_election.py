"""One operator acts at a time: the Lease, what is left of it, and who takes it when."""

from __future__ import annotations

import asyncio

import pytest

from tests.eventually import eventually
from tests.operator.operator_faults import Faults, FaultyKube
from tests.operator.operator_world import World, cluster_resource
from waltz_operator.core.objects import ObjectKey
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.leader_election import (
    LEASE_SECONDS,
    PATIENCE_SECONDS,
    Election,
    Sighting,
    may_take,
)

LEASE = ObjectKey("Lease", "waltz-operator")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Cut(FaultyKube):
    """An API server that can be cut off."""

    cut = False

    async def get(self, kind: str, namespace: str, name: str) -> object:
        if self.cut:
            raise KubeError("nobody answers")
        return await super().get(kind, namespace, name)


async def tries() -> None:
    """Give candidates the time for several tries, to see that they do nothing."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def candidate(kube: FaultyKube, identity: str, clock: Clock) -> Election:
    return Election(kube, "waltz-system", LEASE.name, identity, clock=clock, renew_seconds=0.001)


@pytest.mark.parametrize(
    ("holder", "age", "free"),
    [
        ("", 0.0, True),
        ("me", 0.0, True),
        ("other", 0.0, False),
        ("other", LEASE_SECONDS, False),
        ("other", LEASE_SECONDS + 0.1, True),
    ],
)
def test_a_lease_is_taken_when_it_is_free(holder: str, age: float, free: bool) -> None:
    lease = {"spec": {"holderIdentity": holder, "leaseDurationSeconds": LEASE_SECONDS}}
    assert may_take(lease, "me", Sighting("1", 100.0), 100.0 + age) is free


def test_a_leader_gives_up_before_another_may_begin() -> None:
    assert PATIENCE_SECONDS * 1.2 < LEASE_SECONDS


async def test_the_second_waits_until_the_first_is_gone() -> None:
    kube, clock = Cut(World(cluster_resource(), []), Faults()), Clock()
    first, second = candidate(kube, "first", clock), candidate(kube, "second", clock)
    await first.win()
    winning = asyncio.ensure_future(second.win())
    await tries()
    assert not winning.done()
    await first.resign()
    await asyncio.wait_for(winning, 5)
    assert second.leads
    assert not first.leads


async def test_a_leader_that_died_is_replaced_when_its_lease_has_run_out() -> None:
    kube, clock = Cut(World(cluster_resource(), []), Faults()), Clock()
    await candidate(kube, "dead", clock).win()
    second = candidate(kube, "second", clock)
    winning = asyncio.ensure_future(second.win())
    await tries()
    clock.now += LEASE_SECONDS - 1
    await tries()
    assert not winning.done()
    clock.now += 2
    await asyncio.wait_for(winning, 5)


async def test_a_leader_that_is_cut_off_stops() -> None:
    kube, clock = Cut(World(cluster_resource(), []), Faults()), Clock()
    leader = candidate(kube, "leader", clock)
    await leader.win()
    losing = asyncio.ensure_future(leader.lose())
    await tries()
    kube.cut = True
    clock.now += PATIENCE_SECONDS - 1
    await tries()
    assert not losing.done()
    clock.now += 2
    await asyncio.wait_for(losing, 5)
    assert not leader.leads


async def test_a_leader_whose_lease_another_has_stops_at_once_and_does_not_fight() -> None:
    world, clock = World(cluster_resource(), []), Clock()
    kube = Cut(world, Faults())
    leader = candidate(kube, "leader", clock)
    await leader.win()
    world.objects[LEASE]["spec"]["holderIdentity"] = "usurper"
    await asyncio.wait_for(leader.lose(), 5)
    assert world.objects[LEASE]["spec"]["holderIdentity"] == "usurper"


async def test_renewing_goes_on_for_as_long_as_it_works() -> None:
    world, clock = World(cluster_resource(), []), Clock()
    kube = Cut(world, Faults())
    leader = candidate(kube, "leader", clock)
    await leader.win()
    losing = asyncio.ensure_future(leader.lose())
    before = world.objects[LEASE]["metadata"].get("resourceVersion")
    await eventually(
        lambda: world.objects[LEASE]["metadata"].get("resourceVersion") != before,
    )
    assert leader.leads
    losing.cancel()
