"""The access of clients outside of the Kubernetes cluster: Services, slots, addresses, names."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.operator_faults import delete_by_user
from tests.support.operator_world import Znodes, pool_resource
from tests.support.outside_world import (
    LOAD_BALANCER,
    NODE_PORT,
    OutsideWorld,
    outside_world,
)
from tests.unit.operator.test_operator_rolls import started as rolling_world
from waltz_operator.core import names
from waltz_operator.core.names import OUTSIDE_LABEL, SLOT_LABEL, Component
from waltz_operator.core.objects import ObjectKey, certificate_requests
from waltz_operator.core.observed import ObservedCluster
from waltz_operator.core.outside_steps import (
    DeleteOutsideAddresses,
    SetSlot,
    WriteOutsideAddresses,
)
from waltz_operator.core.planning import plan
from waltz_operator.core.planning.outside import plan_outside
from waltz_operator.core.planning.outside_addresses import outside_names, outside_status
from waltz_operator.core.preview import Ending, preview
from waltz_operator.core.resources.outside import OutsideAccess, OutsideStatus
from waltz_operator.core.steps import (
    AddFinalizer,
    ApplyObject,
    ClusterPlan,
    DeleteObject,
    ReplacePod,
    Step,
    concerns_outside_access,
    stops,
)

_STORAGE_A = "a-storage-0.a-storage.logs.svc"


def started(outside: dict[str, Any] | None, **more: Any) -> OutsideWorld:
    world = outside_world(outside, **more)
    world.until_done()
    return world


def planned(world: OutsideWorld) -> ClusterPlan:
    return plan(world.desired(), world.observed())


def status(world: OutsideWorld) -> OutsideStatus:
    return outside_status(world.desired(), world.observed())


def port_of(world: OutsideWorld, service: str) -> int:
    (port,) = world.services()[service]["spec"]["ports"]
    return int(port["nodePort"])


def test_every_server_and_storage_has_a_service_and_an_address() -> None:
    world = started(NODE_PORT)
    servers = [f"log-server-{slot}-outside" for slot in range(3)]
    storages = [f"{pool}-storage-0-outside" for pool in "abc"]
    assert sorted(world.services()) == sorted([*servers, *storages, "log-zookeeper-outside"])
    assert world.slots() == {"log-server-001": "0", "log-server-002": "1"}
    assert world.outside() == {
        "10.0.0.1:6100": f"node.example:{port_of(world, servers[0])}",
        "10.0.0.2:6100": f"node.example:{port_of(world, servers[1])}",
        **{
            f"{pool}-storage-0.{pool}-storage.logs.svc:6000": (
                f"node.example:{port_of(world, f'{pool}-storage-0-outside')}"
            )
            for pool in "abc"
        },
    }
    assert planned(world).done


def test_service_leads_to_one_pod_also_while_it_is_not_ready() -> None:
    services = started(NODE_PORT).services()
    server, storage = services["log-server-1-outside"], services["a-storage-0-outside"]
    assert server["spec"]["selector"] == {
        "waltz.dev/cluster": "log",
        "waltz.dev/component": "server",
        SLOT_LABEL: "1",
    }
    assert storage["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] == "a-storage-0"
    for service in (server, storage):
        assert service["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in services["log-zookeeper-outside"]["spec"]


def test_status_has_the_address_of_zookeeper_and_the_name_of_the_certificates() -> None:
    world = started(NODE_PORT)
    port = port_of(world, "log-zookeeper-outside")
    assert status(world) == OutsideStatus(
        connect_string=f"node.example:{port}", server_name="log.logs.waltz", addresses="5/5"
    )
    world.set_access(None)
    assert status(world) == OutsideStatus()


def test_external_zookeeper_gets_no_service_and_keeps_its_address() -> None:
    external = {"external": {"connectString": "zk-0:2181"}}
    world = started(NODE_PORT | {"openZooKeeper": False}, zookeeper=external)
    assert "log-zookeeper-outside" not in world.services()
    assert status(world).connect_string == "zk-0:2181"


def test_update_of_the_servers_moves_addresses_and_gives_no_slot_away_before_its_pod_is_gone() -> (
    None
):
    world = started(NODE_PORT)
    first = world.outside()
    assert first is not None
    new = world.start_server()
    world.until_done()
    assert world.slots() == {"log-server-001": "0", "log-server-002": "1", new: "2"}
    world.stop_server("log-server-001")
    world.until_done()
    outside = world.outside()
    assert outside is not None
    assert outside["10.0.0.1:6100"] == first["10.0.0.1:6100"], "it may still be used"
    second = world.start_server()
    world.until_done()
    assert world.slots()[second] is None
    assert any(second in reason for reason in planned(world).waits)
    world.end_server("log-server-001")
    world.stop_server("log-server-002")
    world.until_done()
    assert world.slots()[second] == "0"
    outside = world.outside()
    assert outside is not None
    assert "10.0.0.1:6100" not in outside
    assert outside["10.0.0.4:6100"] == first["10.0.0.1:6100"]


def test_pod_of_an_earlier_version_keeps_the_port_that_it_has_registered() -> None:
    world = started(NODE_PORT)
    assert world.cluster is not None
    world.cluster["spec"]["servers"] = {"port": 7100}
    world.until_done()
    outside = world.outside()
    assert outside is not None
    assert {"10.0.0.1:6100", "10.0.0.2:6100"} <= outside.keys()
    (port,) = world.services()["log-server-0-outside"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (7100, "waltz")


def test_address_of_an_ipv6_pod_is_the_registered_one() -> None:
    world = started(NODE_PORT | {"host": "2001:db8::7"})
    world.objects[ObjectKey("Pod", "log-server-001")]["status"]["podIP"] = "fd00::1"
    world.until_done()
    outside = world.outside()
    assert outside is not None
    port = port_of(world, "log-server-0-outside")
    assert outside["[fd00::1]:6100"] == f"[2001:db8::7]:{port}"


def test_admin_ports_are_mapped_only_on_request() -> None:
    world = started(NODE_PORT)
    assert not any(each.endswith(":6001") for each in world.outside() or ())
    world.set_access(NODE_PORT | {"adminPorts": True})
    world.until_done()
    outside = world.outside()
    assert outside is not None
    data, admin = world.services()["a-storage-0-outside"]["spec"]["ports"]
    assert outside[f"{_STORAGE_A}:6000"] == f"node.example:{data['nodePort']}"
    assert outside[f"{_STORAGE_A}:6001"] == f"node.example:{admin['nodePort']}"
    assert status(world).addresses == "5/5"


def test_storages_have_no_services_if_only_servers_are_wanted() -> None:
    world = started(NODE_PORT)
    world.set_access(NODE_PORT | {"storages": False})
    world.until_done()
    assert not any("storage" in name for name in world.services())
    assert world.outside() is not None
    assert {*(world.outside() or ())} == {"10.0.0.1:6100", "10.0.0.2:6100"}


def test_load_balancers_without_an_address_are_awaited_and_named() -> None:
    world = outside_world(LOAD_BALANCER)
    world.balancers_work = False
    world.until_done()
    assert world.outside() is None
    (reason,) = planned(world).waits
    assert "Services for clients outside have no address yet" in reason
    assert "log-server-0-outside" in reason
    assert "and 4 more" in reason
    assert status(world).connect_string == ""
    assert status(world).addresses == "0/5"
    assert "log-server-0-outside" in status(world).pending
    world.balancers_work = True
    world.until_done()
    assert planned(world).done
    outside = world.outside()
    assert outside is not None
    assert outside["10.0.0.1:6100"] == "log-server-0-outside.example:6100"
    assert outside[f"{_STORAGE_A}:6000"] == "a-storage-0-outside.example:6000"
    assert status(world).pending == ""


def test_ip_address_of_a_load_balancer_is_used_if_it_has_no_name() -> None:
    world = started(LOAD_BALANCER)
    world.balancers_work = False
    service = world.objects[ObjectKey("Service", "log-server-0-outside")]
    service["status"]["loadBalancer"]["ingress"] = [{"ip": "192.0.2.7"}]
    world.until_done()
    outside = world.outside()
    assert outside is not None
    assert outside["10.0.0.1:6100"] == "192.0.2.7:6100"
    assert "192.0.2.7" in outside_names(world.desired(), world.observed())


def test_removed_access_leaves_no_trace_and_removes_the_addresses_first() -> None:
    world = started(NODE_PORT)
    world.set_access(None)
    steps = world.until_done()
    assert world.services() == {}
    assert set(world.slots().values()) == {None}
    assert world.outside() is None
    kinds = [type(step) for step in steps if not isinstance(step, ApplyObject)]
    assert kinds == [DeleteOutsideAddresses, *[DeleteObject] * 7, *[SetSlot] * 2]
    assert planned(world).done


def test_addresses_of_an_administrator_stay_without_access_in_the_spec() -> None:
    world = started(None)
    assert isinstance(world.znodes, Znodes)
    world.znodes.outside = {"10.0.0.1:6100": "gateway.example:443"}
    assert planned(world).done


def test_services_are_closed_without_zookeeper_and_the_addresses_are_deleted_later() -> None:
    world = started(NODE_PORT)
    world.set_access(None)
    world.zookeeper_up = False
    world.until_done()
    assert {*world.services()} == {"log-server-2-outside"}, "no server has this slot"
    assert set(world.slots().values()) == {"0", "1"}
    for pod in world.server_pods():
        world.end_server(pod)
    world.until_done()
    assert set(world.slots().values()) == {None}
    world.zookeeper_up = True
    assert world.outside() is not None
    world.until_done()
    assert (world.outside(), world.services()) == (None, {})


def test_addresses_are_deleted_after_access_is_removed_and_servers_are_added_at_once() -> None:
    """Of the new last slot there is no Service: another one must stay as the sign."""
    world = started(NODE_PORT)
    world.set_access(None)
    assert world.cluster is not None
    world.cluster["spec"]["servers"] = {"replicas": 3}
    world.zookeeper_up = False
    world.until_done()
    assert {*world.services()} == {"log-server-2-outside"}
    for pod in world.server_pods():
        world.end_server(pod)
    world.until_done()
    world.zookeeper_up = True
    assert world.outside() is not None
    world.until_done()
    assert (world.outside(), world.services()) == (None, {})


def test_deleted_cluster_leaves_no_outside_addresses_in_kept_znodes() -> None:
    world = started(NODE_PORT)
    delete_by_user(world)
    performed: list[Step] = []
    while world.cluster is not None:
        world.settle()
        for step in planned(world).steps:
            if isinstance(step, DeleteOutsideAddresses):
                assert world.services(), "they are the sign"
                assert world.outside() is not None
            world.perform(step)
            performed.append(step)
    assert performed.count(DeleteOutsideAddresses()) == 1


def test_interrupted_removal_continues_after_every_step() -> None:
    for performed in range(10):
        world = started(NODE_PORT)
        world.set_access(None)
        for step in planned(world).steps[:performed]:
            world.perform(step)
        world.until_done()
        assert (world.services(), world.outside()) == ({}, None)
        assert set(world.slots().values()) == {None}


def test_foreign_service_with_a_needed_name_is_never_changed() -> None:
    world = outside_world(NODE_PORT)
    key = ObjectKey("Service", "log-server-0-outside")
    foreign = {"metadata": {"name": key.name, "uid": "x", "labels": {}}, "spec": {"ports": []}}
    world.objects[key] = foreign
    world.until_done()
    assert world.objects[key] is foreign
    assert any(str(key) in reason for reason in planned(world).problems)


def test_own_service_of_another_purpose_is_not_deleted() -> None:
    world = started(NODE_PORT)
    assert (
        OUTSIDE_LABEL not in world.objects[ObjectKey("Service", "log-server")]["metadata"]["labels"]
    )
    before = {key for key in world.objects if key.kind == "Service"}
    world.set_access(None)
    world.until_done()
    assert {key for key in before if not key.name.endswith("-outside")} <= world.objects.keys()


def test_more_and_fewer_servers_change_the_services() -> None:
    world = started(NODE_PORT)
    assert world.cluster is not None
    world.cluster["spec"]["servers"] = {"replicas": 3}
    world.until_done()
    assert set(world.slots().values()) == {"0", "1", "2"}
    assert "log-server-3-outside" in world.services()
    world.end_server("log-server-001")
    world.cluster["spec"]["servers"] = {"replicas": 1}
    world.until_done()
    assert {name for name in world.services() if "server" in name} == {
        "log-server-0-outside",
        "log-server-1-outside",
    }
    assert planned(world).done


def test_storage_that_leaves_keeps_its_service_while_it_is_registered() -> None:
    world = started(NODE_PORT)
    world.pools["a"]["spec"]["storages"] = 2
    world.until_done()
    assert "a-storage-1-outside" in world.services()
    world.pools["a"]["spec"]["storages"] = 1
    assert not [
        step
        for step in planned(world).steps
        if isinstance(step, DeleteObject) and step.key.kind == "Service"
    ]
    world.until_done()
    assert "a-storage-1-outside" not in world.services()
    assert planned(world).done


def test_pool_that_leaves_loses_its_services() -> None:
    world = started(NODE_PORT)
    assert world.cluster is not None
    for name in "de":
        world.pools[name] = pool_resource(name)
    world.cluster["spec"]["pools"] = list("abcde")
    world.until_done()
    assert "e-storage-0-outside" in world.services()
    world.cluster["spec"]["pools"] = list("abc")
    world.until_done()
    assert not {"d-storage-0-outside", "e-storage-0-outside"} & world.services().keys()
    assert planned(world).done


def test_pool_that_is_not_seen_for_a_moment_keeps_its_services_and_addresses() -> None:
    world = started(NODE_PORT)
    assert "b-storage-0-outside" in world.services()
    del world.pools["b"]
    assert plan_outside(world.desired(), world.observed()).steps == ()


def test_refused_access_stops_no_other_change() -> None:
    world = outside_world(NODE_PORT)
    for _ in range(100):
        world.settle()
        steps = planned(world).steps
        numbers = [number for number, step in enumerate(steps) if concerns_outside_access(step)]
        assert numbers == [*range(len(steps) - len(numbers), len(steps))], "they come last"
        if len(numbers) == len(steps):
            break
        for step in steps[: len(steps) - len(numbers)]:
            world.perform(step)
    assert planned(world).steps, "the access is still missing"
    assert world.services() == {}
    assert world.slots().keys() == {"log-server-001", "log-server-002"}


def test_pods_are_replaced_while_the_api_server_refuses_the_services() -> None:
    world = rolling_world()
    assert world.cluster is not None
    world.cluster["spec"]["access"] = {"outside": NODE_PORT}
    world.pools["a"]["spec"]["restartedAt"] = "2026-01-31T12:00:00Z"
    performed: list[Step] = []
    for _ in range(10):
        steps = plan(world.desired(), world.observed()).steps
        assert any(concerns_outside_access(step) for step in steps)
        for step in steps:
            if not concerns_outside_access(step):
                world.perform(step)
                performed.append(step)
        world.settle()
    assert any(isinstance(step, ReplacePod) for step in performed)


def test_slots_are_not_given_after_one_was_not_taken() -> None:
    take, give, write = SetSlot("a", None), SetSlot("b", 0), WriteOutsideAddresses((), ())
    world = outside_world(NODE_PORT)
    world.settle()
    services = list(plan_outside(world.desired(), world.observed()).steps)
    assert stops(take, give)
    assert stops(give, write)
    assert not stops(take, DeleteOutsideAddresses())
    assert isinstance(services[0], ApplyObject)
    assert not any(stops(services[0], other) for other in (services[1], give, write))
    assert stops(AddFinalizer(), services[0])


def test_malformed_addresses_are_a_problem_and_not_replaced() -> None:
    world = started(NODE_PORT)
    assert isinstance(world.znodes, Znodes)
    world.znodes.outside, world.znodes.outside_problem = None, "malformed OutsideAddresses"
    assert planned(world).problems == ("malformed OutsideAddresses",)
    assert planned(world).steps == ()


def test_paused_cluster_keeps_its_access() -> None:
    world = started(NODE_PORT)
    assert world.cluster is not None
    world.cluster["spec"]["paused"] = True
    world.set_access(None)
    assert planned(world).steps == ()


def test_damaged_addresses_and_labels_are_repaired() -> None:
    world = started(NODE_PORT)
    right = world.outside()
    assert isinstance(world.znodes, Znodes)
    world.znodes.outside = {"10.0.0.1:6100": "wrong.example:1", "10.9.9.9:6100": "gone.example:1"}
    for pod in world.server_pods():
        world.objects[ObjectKey("Pod", pod)]["metadata"]["labels"][SLOT_LABEL] = "1"
    world.until_done()
    assert set(world.slots().values()) == {"0", "1"}
    assert {*(world.outside() or ())} == {*(right or ())}


def test_service_keeps_annotations_and_source_ranges_of_the_spec() -> None:
    access = LOAD_BALANCER | {
        "annotations": {"cloud.example/internal": "true"},
        "sourceRanges": ["10.0.0.7/8"],
        "externalTrafficPolicy": "Local",
    }
    world = started(access)
    service = world.services()["log-server-0-outside"]
    assert service["metadata"]["annotations"]["cloud.example/internal"] == "true"
    assert service["spec"]["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert service["spec"]["externalTrafficPolicy"] == "Local"
    world.set_access(access | {"annotations": {"cloud.example/internal": "false"}})
    world.until_done()
    service = world.services()["log-server-0-outside"]
    assert service["metadata"]["annotations"]["cloud.example/internal"] == "false"


def test_policy_admits_clients_to_servers_of_the_earlier_port_until_they_are_replaced() -> None:
    access = {"sourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local"}
    world = started(LOAD_BALANCER | access)

    def open_ports() -> list[int]:
        policy = world.objects[ObjectKey("NetworkPolicy", "log-server")]
        clients, _ = policy["spec"]["ingress"]
        return [each["port"] for each in clients["ports"]]

    assert open_ports() == [6100]
    assert world.cluster is not None
    world.cluster["spec"]["servers"] = {"port": 6200}
    world.until_done()
    assert open_ports() == [6100, 6200]
    for pod in world.server_pods():
        containers = world.objects[ObjectKey("Pod", pod)]["spec"]["containers"]
        containers[0]["ports"][0]["containerPort"] = 6200
    world.until_done()
    assert open_ports() == [6200]


def test_monitoring_reaches_pods_of_the_earlier_http_port_until_they_are_replaced() -> None:
    access = {"sourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local"}
    world = started(LOAD_BALANCER | access)
    pools = world.desired().own_pools
    assert world.cluster is not None
    ports = {"log-server": [6101], **{f"{p.metadata.name}-storage": [6002] for p in pools}}

    def declare_ports() -> None:
        for pod in world.server_pods():
            containers = world.objects[ObjectKey("Pod", pod)]["spec"]["containers"]
            containers[0]["ports"][1:] = [{"name": "http", "containerPort": ports["log-server"][0]}]
        for pool in pools:
            name = f"{pool.metadata.name}-storage"
            world.objects[ObjectKey("Pod", f"{name}-0")] = {
                "metadata": {
                    "name": f"{name}-0",
                    "uid": f"uid-{name}",
                    "labels": names.labels("log", Component.STORAGE, pool.metadata.name),
                    "ownerReferences": [{"kind": "StatefulSet", "name": name}],
                },
                "spec": {
                    "containers": [{"ports": [{"name": "http", "containerPort": ports[name][0]}]}]
                },
            }

    def open_to_all(policy: str) -> list[int]:
        rules = world.objects[ObjectKey("NetworkPolicy", policy)]["spec"]["ingress"]
        (rule,) = [each for each in rules if "from" not in each]
        return [port["port"] for port in rule["ports"]]

    declare_ports()
    world.until_done()
    assert {each: open_to_all(each) for each in ports} == ports
    world.cluster["spec"]["servers"] = {"httpPort": 6201}
    for pool in world.pools.values():
        pool["spec"]["httpPort"] = 6202
    world.until_done()
    for name, earlier in ports.items():
        changed = 6201 if name == "log-server" else 6202
        assert open_to_all(name) == [*earlier, changed]
        monitored = world.objects[ObjectKey("Service", name)]["spec"]["ports"]
        (http,) = [port for port in monitored if port["name"] == "http"]
        assert (http["port"], http["targetPort"]) == (changed, "http")
        ports[name] = [changed]
    declare_ports()
    world.until_done()
    assert {each: open_to_all(each) for each in ports} == ports


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (["10.0.0.9/8", "0.0.0.0/0", "255.255.255.255/32"], True),
        (["2001:db8::1/32", "::/0", "1:2:3:4:5:6:7:8/128", "fe80::/10", "::1/128"], True),
        *(([each], False) for each in ("10.0.0.0/99", "10.0.0.256/8", "10.0.0/8", "10.0.0.0")),
        *(([each], False) for each in (":::/8", "1::2::3/8", "2001:db8::/129", "1:2:3:4:5:6:7/8")),
    ],
)
def test_source_range_that_kubernetes_would_refuse_is_invalid(
    ranges: list[str], expected: bool
) -> None:
    fields = LOAD_BALANCER | {"sourceRanges": ranges}
    if expected:
        assert len(OutsideAccess.model_validate(fields).normalized_source_ranges) == len(ranges)
    else:
        with pytest.raises(ValidationError, match="pattern"):
            OutsideAccess.model_validate(fields)


def names_of(world: OutsideWorld) -> tuple[str, ...]:
    return outside_names(world.desired(), world.observed())


def test_certificates_get_the_names_by_which_clients_reach_servers_and_storages() -> None:
    assert names_of(started(NODE_PORT | {"host": "Node.Example"})) == ("node.example",)
    assert names_of(started(NODE_PORT | {"host": "2001:DB8::0007"})) == ("2001:db8::7",)
    balanced = names_of(started(LOAD_BALANCER))
    assert "log-server-2-outside.example" in balanced
    assert "a-storage-0-outside.example" in balanced
    assert "log-zookeeper-outside.example" not in balanced
    assert names_of(started(NODE_PORT | {"host": "log.logs.waltz"})) == ()
    assert names_of(started(None)) == ()


def test_certificate_of_cert_manager_has_the_outside_names() -> None:
    world = started(None)
    assert world.cluster is not None
    world.cluster["spec"]["tls"] = {"mode": "CertManager", "issuerRef": {"name": "ca"}}
    processes, clients = certificate_requests(
        world.desired().cluster, ("node.example", "192.0.2.7")
    )
    assert processes.body["spec"]["dnsNames"] == ["log.logs.waltz", "node.example"]
    assert processes.body["spec"]["ipAddresses"] == ["192.0.2.7"]
    assert clients.body["spec"]["dnsNames"] == ["client.log.logs.waltz"]
    assert "ipAddresses" not in clients.body["spec"]


@pytest.mark.parametrize("outside", [NODE_PORT, LOAD_BALANCER])
def test_preview_of_new_access_is_complete(outside: dict[str, Any]) -> None:
    world = started(None)
    world.set_access(outside)
    shown = preview(world.desired(), world.observed())
    assert shown.ending is Ending.COMPLETE
    steps = list(shown.steps)
    assert sum(isinstance(step, ApplyObject) and step.new for step in steps) == 7
    assert any(isinstance(step, WriteOutsideAddresses) for step in steps)
    world.until_done()
    world.set_access(None)
    shown = preview(world.desired(), world.observed())
    assert shown.ending is Ending.COMPLETE
    assert DeleteOutsideAddresses() in [*shown.steps]


def test_addresses_are_not_written_for_another_cluster_at_the_root() -> None:
    world = started(NODE_PORT)
    assert isinstance(world.znodes, Znodes)
    world.znodes.name = "logs/other"
    world.znodes.outside = None
    observed: ObservedCluster = world.observed()
    found = plan(world.desired(), observed)
    assert not any(isinstance(step, WriteOutsideAddresses) for step in found.steps)
