"""An adoption and a retirement end, harm no copy, and can be changed back half-way.

Random histories add and remove pools, ask for the retirement and withdraw it, and stop the foreign
servers at a random time. The operator is killed between steps, acts on observations that are
outdated, and storages fail, foreign ones, too. `AdoptionWorld` checks each step.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.adoption_world import KEY, MIN_COPIES, NAME, AdoptionWorld
from tests.support.operator_faults import FakeEnvironment, Faults, StoredZnodes
from tests.support.operator_world import Znodes
from tests.support.planned import next_plan
from tests.unit.operator.test_operator_plan_properties import check_plan
from tests.unit.operator.test_operator_reconcile import Operation
from tests.unit.operator.test_operator_shape_properties import (
    check_shape,
    finish,
    follow,
    outdated,
)
from waltz.admin.core.replicas import LAG_ALLOWED
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import ServerDescriptor
from waltz.metadata.lifecycle import create_cluster
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import ClusterPlan

_EVENTS = 50
_GROUPS = ((1, 1, 1), (2, 1, 1), (1, 1, 1, 1, 1))
"""The numbers of storages in the foreign groups, of clusters with three copies or more."""


def random_world(dice: random.Random, groups: tuple[tuple[int, ...], ...]) -> AdoptionWorld:
    """Return a foreign cluster with transactions, and pools that may adopt it."""
    world = AdoptionWorld(
        groups=dice.choice(groups),
        partitions=dice.randrange(1, 4),
        pools="abc" if dice.random() < 0.7 else "abcd",
        others="efg",
    )
    for pool in world.pools.values():
        pool["spec"]["storages"] = dice.randrange(1, 3)
    if dice.random() < 0.3:
        world.retire()
    return world


def specify(world: AdoptionWorld, dice: random.Random) -> None:
    """Change the spec as the API server allows it."""
    assert world.cluster is not None
    pools: list[str] = world.cluster["spec"]["pools"]
    match dice.randrange(4):
        case 0:
            world.retire(dice.choice(("Keep", "Retire")))
        case 1 if len(pools) > MIN_COPIES:
            world.specify(pools=pools[1:])
        case 2 if len(pools) < MIN_COPIES + 2:
            others = [name for name in world.pools if name not in pools]
            world.specify(pools=[*pools, dice.choice(others)])
        case _:
            world.pools[dice.choice(sorted(world.pools))]["spec"]["storages"] = dice.randrange(1, 3)


def disturb(world: AdoptionWorld, dice: random.Random) -> None:
    """Stop the foreign servers, or let a storage fail; foreign storages return by chance."""
    if dice.random() < 0.1 and len(world.servers) > len(world.old_servers):
        world.old_servers = frozenset()
    if dice.random() < 0.05:
        world.down.add(dice.choice(sorted(world.disks)))
    if dice.random() < 0.5:
        world.down -= world.foreign


def random_history(world: AdoptionWorld, dice: random.Random, *, changes: bool) -> None:
    """Let operators act that are killed or late, while things fail and the spec may change."""
    kept = ClusterPlan()
    for _ in range(_EVENTS):
        if changes and dice.random() < 0.15:
            specify(world, dice)
        disturb(world, dice)
        if dice.random() < 0.7:
            world.settle()
        decided = plan(world.desired(), world.observed())
        check_plan(decided)
        follow(world, decided, dice)
        if dice.random() < 0.1:
            world.acts_late = True
            follow(world, outdated(kept), dice)
            world.acts_late = False
        if dice.random() < 0.3:
            kept = decided


def calm(world: AdoptionWorld) -> None:
    """End all faults, and the foreign servers."""
    world.down -= world.foreign
    world.settle()
    for _ in range(5):
        follow(world, plan(world.desired(), world.observed()), None)
        world.settle()
    world.old_servers = frozenset()


def check_random_adoption(seed: int) -> None:
    """Check every plan of a random history, and that the retirement leaves the pools alone."""
    dice = random.Random(seed)
    world = random_world(dice, ((1,), *_GROUPS))
    random_history(world, dice, changes=True)
    calm(world)
    world.retire()
    finish(world)
    check_shape(world)
    assert set(world.copies_on(foreign=True)) == {0}


@settings(max_examples=8)
@given(st.integers(0, 2**32))
def test_random_adoptions_end_without_harm_to_copies(seed: int) -> None:
    check_random_adoption(seed)


@pytest.mark.slow
@settings(max_examples=80)
@given(st.integers(0, 2**32))
def test_more_random_adoptions_end_without_harm_to_copies(seed: int) -> None:
    check_random_adoption(seed)


@settings(max_examples=6)
@given(st.integers(0, 2**32))
def test_random_adoption_that_is_given_up_returns_to_the_foreign_groups(seed: int) -> None:
    """A single copy is left out: it cannot become the only one again."""
    dice = random.Random(seed)
    world = random_world(dice, _GROUPS)
    world.retire("Keep")
    foreign = world.copies_on(foreign=True)
    random_history(world, dice, changes=False)
    assert world.copies_on(foreign=True) == foreign, "nothing is given up without a request"
    calm(world)
    world.specify(pools=[])
    finish(world)
    assert world.copies_on(foreign=True) == foreign
    assert set(world.copies_on(foreign=False)) == {0}
    assert {*world.maps.groups.groups} == world.foreign
    assert not world.unhealthy()


@pytest.mark.slow
def test_random_adoptions_copy_and_give_up_foreign_copies() -> None:
    """Otherwise the properties above would hold for a planner that does nothing."""
    copied = given_up = 0
    for seed in range(10):
        dice = random.Random(seed)
        world = random_world(dice, _GROUPS)
        random_history(world, dice, changes=True)
        copied += world.copied
        given_up += world.given_up
    assert min(copied, given_up) > 0


# ---- the operator's shell


class AdoptedZnodes(StoredZnodes):
    """Keeps the servers in the store as they are in the world: those that have left are removed."""

    async def _join(self, cluster: Cluster) -> None:
        known = {each.address for each in (await cluster.membership()).servers().values()}
        for address in sorted(self.world.servers - known):
            host, _, port = address.rpartition(":")
            server = ServerDescriptor(await cluster.next_server_id(), host, int(port))
            await self.session.create(
                cluster.paths.new_server_descriptor,
                server.encode(),
                ephemeral=True,
                sequence=True,
            )
        for name in (await self.session.children(cluster.paths.server_descriptors)).names:
            node = await self.session.get(cluster.paths.server_descriptor(name))
            if node is not None and node.data:
                address = ServerDescriptor.decode(node.data).address
                if address not in self.world.servers:
                    await self.session.delete(cluster.paths.server_descriptor(name))


async def adoption(faults: Faults) -> tuple[Operation, AdoptionWorld]:
    """Return an operator that will adopt a foreign cluster of one partition."""
    world = AdoptionWorld(groups=(1,), partitions=1)
    maps = world.maps
    operation = Operation(faults, world=world)
    operation.znodes = AdoptedZnodes(world)
    operation.environment = FakeEnvironment(operation.znodes, faults)
    store, root = operation.znodes.session, world.desired().root
    await create_cluster(store, root, NAME, 1, key=KEY, storages=maps)
    cluster = Cluster(store, root)
    assert isinstance(world.znodes, Znodes)
    version = (await cluster.partition_metadata(0)).version
    await cluster.write_partition_metadata(0, world.znodes.metadata[0], version)
    return operation, world


async def migrate(operation: Operation, world: AdoptionWorld) -> None:
    """Adopt the cluster, stop its servers when the new ones have joined, retire its group."""
    for _ in range(100):
        await operation.znodes.settle(world.desired())
        await operation.reconcile()
        if len(world.servers) == 3:
            break
    world.old_servers = frozenset()
    await operation.until_done()
    assert (world.copies_on(foreign=True), world.copies_on(foreign=False)) == ([1], [3])
    world.retire()
    await operation.until_done()


def count_steps(world: AdoptionWorld) -> int:
    """Follow plans by operators that are killed after each step; return the number of steps."""
    steps = idle = 0
    while idle < 3:
        world.settle()
        first = next(iter(next_plan(world).steps), None)
        if first is None:
            idle += 1
        else:
            idle = 0
            steps += 1
            world.perform(first)
    return steps


@pytest.mark.parametrize("lag_allowed", [0, LAG_ALLOWED])
@pytest.mark.parametrize("plans_before", [0, 2, 4, 100])
def test_adoption_and_retirement_by_killed_operators_need_the_steps_that_e2e_counts(
    lag_allowed: int, plans_before: int
) -> None:
    """An operator that is not killed performs ``plans_before`` plans while the old servers run."""
    groups, pools, partitions = 3, 3, 2
    world = AdoptionWorld(groups=(1,) * groups, partitions=partitions, pools="xyz")
    world.lag_allowed = lag_allowed
    for _ in range(plans_before):
        for step in next_plan(world).steps:
            world.perform(step)
        world.settle()
    count_steps(world)
    world.old_servers = frozenset()
    # Without a copy, one step assigns each partition, and one creates the replicas of y and of z.
    assert count_steps(world) >= pools * partitions + pools - 1
    assert world.copies_on(foreign=False) == [pools] * partitions
    world.retire()
    # Each group gives up each partition, drops its replicas, and unregisters its storage.
    assert count_steps(world) >= groups * (partitions + 2)
    check_shape(world)


async def count_calls() -> int:
    faults = Faults()
    await migrate(*await adoption(faults))
    return faults.calls


async def check_killed(kill_at: int) -> None:
    """Check that a migration completes whose operator is killed after the call ``kill_at``."""
    faults = Faults()
    faults.kill_at = kill_at
    operation, world = await adoption(faults)
    await migrate(operation, world)
    assert operation.kills == 1
    check_shape(world)
    assert operation.condition("Foreign")["status"] == "False"
    assert operation.condition("Healthy")["status"] == "True"


async def test_operator_killed_after_a_call_completes_the_migration() -> None:
    for kill_at in range(1, await count_calls() + 1, 5):
        await check_killed(kill_at)


@pytest.mark.slow
async def test_operator_killed_after_any_call_completes_the_migration() -> None:
    for kill_at in range(1, await count_calls() + 1):
        await check_killed(kill_at)


@pytest.mark.parametrize("seed", range(3))
async def test_unreliable_api_server_delays_the_migration_only(seed: int) -> None:
    faults = Faults(random.Random(seed))
    operation, world = await adoption(faults)
    await migrate(operation, world)
    faults.dice = None
    await operation.until_done()
    check_shape(world)
