"""From any state of servers, Services and addresses, plans give each server its own way outside.

Servers start, stop and end in any order; Services, labels and addresses are damaged; the access is
removed and given again. Plans are interrupted between any two steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.operator_world import Znodes
from tests.support.outside_world import LOAD_BALANCER, NODE_PORT, OutsideWorld, outside_world
from waltz_operator.core.event_reasons import EVENT_REASONS
from waltz_operator.core.names import SLOT_LABEL
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.outside_steps import SetSlot
from waltz_operator.core.planning import plan

_EVENTS = 25
_REPLICAS = 2


def start_server(world: OutsideWorld, dice: random.Random) -> None:
    if len([pod for pod in world.server_pods() if not world.stops(pod)]) <= _REPLICAS:
        world.start_server()


def stop_server(world: OutsideWorld, dice: random.Random) -> None:
    if pods := world.server_pods():
        world.stop_server(dice.choice(pods))


def end_server(world: OutsideWorld, dice: random.Random) -> None:
    stopping = [pod for pod in world.server_pods() if world.stops(pod)]
    if stopping:
        world.end_server(dice.choice(stopping))


def fail_pod(world: OutsideWorld, dice: random.Random) -> None:
    """Let the node evict a pod, which then exists without a process."""
    if pods := world.server_pods():
        world.objects[ObjectKey("Pod", dice.choice(pods))]["status"]["phase"] = "Failed"


def delete_service(world: OutsideWorld, dice: random.Random) -> None:
    if services := sorted(world.services()):
        del world.objects[ObjectKey("Service", dice.choice(services))]


def change_label(world: OutsideWorld, dice: random.Random) -> None:
    if pods := world.server_pods():
        labels = world.objects[ObjectKey("Pod", dice.choice(pods))]["metadata"]["labels"]
        labels[SLOT_LABEL] = dice.choice(["0", "1", "2", "3", "x"])


def change_addresses(world: OutsideWorld, dice: random.Random) -> None:
    assert isinstance(world.znodes, Znodes)
    if world.znodes.outside is not None:
        world.znodes.outside = {"10.0.0.1:6100": "wrong.example:1"}


def change_access(world: OutsideWorld, dice: random.Random) -> None:
    world.set_access(dice.choice([None, NODE_PORT, LOAD_BALANCER]))


def change_balancers(world: OutsideWorld, dice: random.Random) -> None:
    world.balancers_work = not world.balancers_work


def change_zookeeper(world: OutsideWorld, dice: random.Random) -> None:
    world.zookeeper_up = not world.zookeeper_up


_CHANGES: tuple[Callable[[OutsideWorld, random.Random], None], ...] = (
    start_server,
    stop_server,
    end_server,
    fail_pod,
    delete_service,
    change_label,
    change_addresses,
    change_access,
    change_balancers,
    change_zookeeper,
)


def perform_some(world: OutsideWorld, dice: random.Random) -> None:
    """Perform a part of the next plan."""
    world.give_addresses()
    steps = plan(world.desired(), world.observed()).steps
    for step in steps[: dice.randrange(len(steps) + 1)]:
        assert type(step) in EVENT_REASONS
        world.perform(step)
        if isinstance(step, SetSlot) and step.slot is not None:
            taken = [pod for pod, label in world.slots().items() if label == str(step.slot)]
            assert taken == [step.pod], "a slot is given only when no other pod has it"


def check_ways(world: OutsideWorld) -> None:
    """Check that each address leads to the Service of the pod that has registered it."""
    outside = world.outside() or {}
    services = world.services()
    for pod, label in world.slots().items():
        live = world.objects[ObjectKey("Pod", pod)]
        registered = f"{live['status']['podIP']}:6100"
        if label is None:
            assert registered not in outside
            continue
        service = services[f"log-server-{label}-outside"]
        assert service["spec"]["selector"][SLOT_LABEL] == label
        (port,) = service["spec"]["ports"]
        expected = {
            "NodePort": f"node.example:{port['nodePort']}",
            "LoadBalancer": f"log-server-{label}-outside.example:6100",
        }[service["spec"]["type"]]
        assert outside[registered] == expected


@pytest.mark.parametrize("seed", range(40))
def test_every_server_gets_its_own_way_outside_from_any_state(seed: int) -> None:
    dice = random.Random(seed)
    world = outside_world(dice.choice([NODE_PORT, LOAD_BALANCER]), pools=1)
    world.until_done()
    for _ in range(_EVENTS):
        dice.choice(_CHANGES)(world, dice)
        perform_some(world, dice)
    world.balancers_work = world.zookeeper_up = True
    world.until_done()
    if world.desired().cluster.spec.access.outside is None:
        assert (world.services(), world.outside()) == ({}, None)
        assert set(world.slots().values()) <= {None}
        return
    for pod in world.server_pods():
        if world.stops(pod):
            world.end_server(pod)
    world.until_done()
    running = [
        label
        for pod, label in world.slots().items()
        if world.objects[ObjectKey("Pod", pod)]["status"]["phase"] == "Running"
    ]
    assert None not in running
    assert len({*running}) == len(running)
    check_ways(world)
