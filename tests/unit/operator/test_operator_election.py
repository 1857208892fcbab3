"""Leader election: at most one operator holds the Lease, and an ended leader is replaced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.operator_faults import Faults, FaultyKube
from tests.support.operator_world import World, cluster_resource
from waltz.testing import run
from waltz_operator.core.objects import ObjectKey
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.leader_election import (
    LEASE_SECONDS,
    RENEW_DEADLINE_SECONDS,
    LeaderElection,
    LeaseSighting,
    may_take,
)

LEASE = ObjectKey("Lease", "waltz-operator")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class UnreliableKube(FaultyKube):
    """An API server that can be disconnected, or accept requests and never answer them."""

    disconnected = False
    hangs = False
    requests = 0

    async def get(self, kind: str, namespace: str, name: str) -> object:
        self.requests += 1
        if self.disconnected:
            raise KubeError("connection refused")
        if self.hangs:
            await asyncio.Event().wait()
        return await super().get(kind, namespace, name)


async def several_attempts() -> None:
    """Give candidates the time for several attempts, to see that they change nothing."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def candidate(kube: FaultyKube, identity: str, clock: Clock) -> LeaderElection:
    return LeaderElection(
        kube, "waltz-system", LEASE.name, identity, clock=clock, renew_seconds=0.001
    )


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
def test_lease_without_holder_or_expired_may_be_taken(holder: str, age: float, free: bool) -> None:
    lease = {"spec": {"holderIdentity": holder, "leaseDurationSeconds": LEASE_SECONDS}}
    assert may_take(lease, "me", LeaseSighting("1", 100.0), 100.0 + age) is free


def test_renew_deadline_is_well_below_the_lease_duration() -> None:
    assert RENEW_DEADLINE_SECONDS * 1.2 < LEASE_SECONDS


async def test_candidate_waits_until_the_leader_releases_the_lease() -> None:
    kube, clock = UnreliableKube(World(cluster_resource(), []), Faults()), Clock()
    first, second = candidate(kube, "first", clock), candidate(kube, "second", clock)
    await first.acquire()
    acquiring = asyncio.ensure_future(second.acquire())
    await several_attempts()
    assert not acquiring.done()
    await first.release()
    await asyncio.wait_for(acquiring, 60)
    assert second.is_leader
    assert not first.is_leader


async def test_former_leader_does_not_release_the_lease_of_its_successor() -> None:
    kube, clock = UnreliableKube(World(cluster_resource(), []), Faults()), Clock()
    first, second, third = (candidate(kube, name, clock) for name in ("first", "second", "third"))
    await first.acquire()
    acquiring = asyncio.ensure_future(second.acquire())
    await several_attempts()
    clock.now += LEASE_SECONDS + 0.1
    await asyncio.wait_for(acquiring, 60)
    assert first.is_leader, "it has not noticed"
    await first.release()
    acquiring = asyncio.ensure_future(third.acquire())
    await several_attempts()
    assert not acquiring.done()
    acquiring.cancel()


async def test_killed_leader_is_replaced_when_its_lease_expires() -> None:
    kube, clock = UnreliableKube(World(cluster_resource(), []), Faults()), Clock()
    await candidate(kube, "killed", clock).acquire()
    second = candidate(kube, "second", clock)
    acquiring = asyncio.ensure_future(second.acquire())
    await several_attempts()
    clock.now += LEASE_SECONDS - 1
    await several_attempts()
    assert not acquiring.done()
    clock.now += 2
    await asyncio.wait_for(acquiring, 60)


async def test_deleted_lease_is_taken_only_when_its_leader_has_certainly_stopped() -> None:
    world, clock = World(cluster_resource(), []), Clock()
    kube = UnreliableKube(world, Faults())
    await candidate(kube, "leader", clock).acquire()
    second = candidate(kube, "second", clock)
    acquiring = asyncio.ensure_future(second.acquire())
    await several_attempts()
    del world.objects[LEASE]
    await several_attempts()
    clock.now += LEASE_SECONDS - 1
    await several_attempts()
    assert not acquiring.done(), "its leader may go on until it notices the deletion"
    clock.now += 2
    await asyncio.wait_for(acquiring, 60)


async def test_leader_creates_its_deleted_lease_at_once() -> None:
    world, clock = World(cluster_resource(), []), Clock()
    kube = UnreliableKube(world, Faults())
    leader = candidate(kube, "leader", clock)
    await leader.acquire()
    renewing = asyncio.ensure_future(leader.renew_until_lost())
    await several_attempts()
    del world.objects[LEASE]
    await several_attempts()
    assert LEASE in world.objects
    assert leader.is_leader
    renewing.cancel()


async def test_leader_without_api_server_stops_at_the_deadline() -> None:
    kube, clock = UnreliableKube(World(cluster_resource(), []), Faults()), Clock()
    leader = candidate(kube, "leader", clock)
    await leader.acquire()
    renewing = asyncio.ensure_future(leader.renew_until_lost())
    await several_attempts()
    kube.disconnected = True
    clock.now += RENEW_DEADLINE_SECONDS - 1
    await several_attempts()
    assert not renewing.done()
    clock.now += 2
    await asyncio.wait_for(renewing, 60)
    assert not leader.is_leader


async def test_leader_whose_request_hangs_stops_at_the_deadline() -> None:
    kube, clock = UnreliableKube(World(cluster_resource(), []), Faults()), Clock()
    leader = candidate(kube, "leader", clock)
    await leader.acquire()
    kube.hangs, before = True, kube.requests
    renewing = asyncio.ensure_future(leader.renew_until_lost())
    await asyncio.sleep(0)
    # An attempt has the time that is left until the deadline, not its usual timeout of seconds.
    clock.now += RENEW_DEADLINE_SECONDS - 0.05
    started = asyncio.get_running_loop().time()
    await eventually(lambda: kube.requests >= before + 2)
    assert asyncio.get_running_loop().time() - started < 2
    clock.now += 0.05
    await asyncio.wait_for(renewing, 60)
    assert not leader.is_leader


@pytest.mark.parametrize("answer_seconds", [0.0, 1.9])
def test_renewal_without_an_answer_is_tried_again_before_the_deadline(
    answer_seconds: float,
) -> None:
    """The last renewal before the API server hangs is answered after ``answer_seconds``."""

    async def renew() -> tuple[list[float], float]:
        now = asyncio.get_running_loop().time
        requests: list[float] = []

        class HangingKube(FaultyKube):
            async def get(self, kind: str, namespace: str, name: str) -> Any:
                requests.append(now())
                if len(requests) > 2:
                    await asyncio.Event().wait()
                await asyncio.sleep(answer_seconds)
                return await super().get(kind, namespace, name)

        kube = HangingKube(World(cluster_resource(), []), Faults())
        leader = LeaderElection(kube, "waltz-system", LEASE.name, "leader", clock=now)
        await leader.acquire()
        await leader.renew_until_lost()
        renewed = requests[1]
        return [each - renewed for each in requests[2:]], now() - renewed

    attempts, stopped = run(renew())
    assert attempts == pytest.approx([2.0, 4.0, 6.0])
    assert stopped == pytest.approx(RENEW_DEADLINE_SECONDS)


async def test_lease_whose_spec_was_removed_is_free_and_ends_its_leader() -> None:
    world, clock = World(cluster_resource(), []), Clock()
    world.objects[LEASE] = {"metadata": {"name": LEASE.name}}
    leader = candidate(UnreliableKube(world, Faults()), "leader", clock)
    await asyncio.wait_for(leader.acquire(), 60)
    del world.objects[LEASE]["spec"]
    await asyncio.wait_for(leader.renew_until_lost(), 60)
    assert not leader.is_leader


async def test_leader_stops_when_another_holds_the_lease() -> None:
    world, clock = World(cluster_resource(), []), Clock()
    kube = UnreliableKube(world, Faults())
    leader = candidate(kube, "leader", clock)
    await leader.acquire()
    world.objects[LEASE]["spec"]["holderIdentity"] = "another"
    await asyncio.wait_for(leader.renew_until_lost(), 60)
    assert world.objects[LEASE]["spec"]["holderIdentity"] == "another"


async def test_leader_that_renews_stays_leader() -> None:
    world, clock = World(cluster_resource(), []), Clock()
    kube = UnreliableKube(world, Faults())
    leader = candidate(kube, "leader", clock)
    await leader.acquire()
    renewing = asyncio.ensure_future(leader.renew_until_lost())
    before = world.objects[LEASE]["metadata"].get("resourceVersion")
    await eventually(
        lambda: world.objects[LEASE]["metadata"].get("resourceVersion") != before,
    )
    assert leader.is_leader
    renewing.cancel()


class SlowKube(UnreliableKube):
    """An API server that takes ``seconds`` for a write, and is disconnected after it."""

    def __init__(self, world: World, clock: Clock, seconds: float) -> None:
        super().__init__(world, Faults())
        self._clock = clock
        self._seconds = seconds

    async def patch(self, *args: object, **options: object) -> None:
        self._clock.now += self._seconds
        await super().patch(*args, **options)  # type: ignore[arg-type]
        self.disconnected = True


async def test_leader_counts_its_deadline_from_the_request_of_a_renewal() -> None:
    """The Lease may have been renewed at the moment of the request, long before the answer."""
    clock = Clock()
    kube = SlowKube(World(cluster_resource(), []), clock, seconds=3.0)
    leader = candidate(kube, "leader", clock)
    await leader.acquire()
    renewing = asyncio.ensure_future(leader.renew_until_lost())
    await eventually(lambda: kube.disconnected)
    assert clock.now == 3.0
    clock.now = RENEW_DEADLINE_SECONDS
    await asyncio.wait_for(renewing, 60)
    assert not leader.is_leader


async def test_leader_may_not_write_after_its_deadline_although_no_renewal_has_run() -> None:
    """A process that was paused continues with its writes before its renewals run again."""
    world, clock = World(cluster_resource(), []), Clock()
    kube = UnreliableKube(world, Faults())
    leader = candidate(kube, "leader", clock)
    assert not leader.may_write()
    await leader.acquire()
    clock.now = RENEW_DEADLINE_SECONDS - 0.1
    assert leader.may_write()
    clock.now = RENEW_DEADLINE_SECONDS
    assert leader.is_leader
    assert not leader.may_write()


async def test_deadline_of_a_new_leader_counts_from_its_request() -> None:
    clock = Clock()
    kube = SlowKube(World(cluster_resource(), []), clock, seconds=3.0)
    first = candidate(UnreliableKube(kube._world, Faults()), "first", clock)
    await first.acquire()
    await first.release()
    second = candidate(kube, "second", clock)
    await second.acquire()
    assert clock.now == 3.0
    clock.now = RENEW_DEADLINE_SECONDS
    assert not second.may_write()


class RacingKube(UnreliableKube):
    """An API server that, while ``race`` is set, answers no read before all candidates read."""

    race: asyncio.Barrier | None = None

    async def get(self, kind: str, namespace: str, name: str) -> object:
        found = await super().get(kind, namespace, name)
        if self.race is not None:
            await self.race.wait()
            self.race = None
        return found


async def test_of_two_candidates_that_read_the_same_free_lease_one_leads() -> None:
    kube, clock = RacingKube(World(cluster_resource(), []), Faults()), Clock()
    before = candidate(kube, "before", clock)
    await before.acquire()
    await before.release()
    kube.race = asyncio.Barrier(2)
    candidates = [candidate(kube, name, clock) for name in ("first", "second")]
    acquiring = [asyncio.ensure_future(each.acquire()) for each in candidates]
    await eventually(lambda: any(each.is_leader for each in candidates))
    await several_attempts()
    assert [each.is_leader for each in candidates].count(True) == 1
    for task in acquiring:
        task.cancel()


async def test_lease_counts_its_leaders_and_keeps_the_time_of_the_present_one() -> None:
    world, clock = World(cluster_resource(), []), Clock()
    kube = UnreliableKube(world, Faults())
    first, second = candidate(kube, "first", clock), candidate(kube, "second", clock)

    def spec() -> Any:
        return world.objects[LEASE]["spec"]

    await first.acquire()
    assert (spec()["holderIdentity"], spec().get("leaseTransitions", 0)) == ("first", 0)
    spec()["acquireTime"] = "the time of the first"
    await first._try_lease(1.0)
    assert spec()["acquireTime"] == "the time of the first", "a renewal is no acquisition"
    await first.release()
    before = spec()["leaseTransitions"]
    await second.acquire()
    assert spec()["leaseTransitions"] == before + 1
    assert spec()["acquireTime"] != "the time of the first"
