"""The plan of a local cluster: its file, the settings of its processes, and bad input."""

from __future__ import annotations

import json
import os
import socket
import sys
from itertools import count, cycle
from pathlib import Path

import pytest
import yaml

from waltz.local import ClusterLayout, PlanError, Shape, wanted_shape
from waltz.local.core.plan import (
    LocalClusterPlan,
    cluster_description,
    end_times,
    server_settings,
    storage_settings,
)
from waltz.local.ports import NoFreePorts, PortReservations, choose_ports
from waltz.runtime.configuration import read_settings
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig

SHAPE = Shape(partitions=5, storages=3, servers=2, tls=True)
PLAN = LocalClusterPlan.of(SHAPE, count(20_000))
LAYOUT = ClusterLayout(Path("/somewhere"))


def test_plan_round_trip_keeps_everything() -> None:
    assert LocalClusterPlan.from_json(PLAN.to_json()) == PLAN


def test_plan_uses_every_port_once() -> None:
    storages = [p for each in PLAN.storages for p in (each.port, each.admin, each.http)]
    servers = [p for each in PLAN.servers for p in (each.port, each.http)]
    used = [PLAN.zookeeper_port, *storages, *servers]
    assert sorted(used) == list(range(20_000, 20_000 + SHAPE.num_ports))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "shape": {}}'])
def test_malformed_plan_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"it is damaged|of format 2"):
        LocalClusterPlan.from_json(text)


def test_plan_of_another_format_is_refused_with_both_formats() -> None:
    with pytest.raises(PlanError, match=r"^it is of format 2, but must be of 1$"):
        LocalClusterPlan.from_json('{"format": 2}')


@pytest.mark.parametrize("counts", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_shape_without_processes_is_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(PlanError, match="at least one"):
        Shape(*counts)


def test_planned_settings_are_valid(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text(yaml.safe_dump(storage_settings(PLAN, LAYOUT, 1, 4000)))
    storage = read_settings(StorageConfig, file)
    assert (storage.port, storage.admin_port) == (PLAN.storages[1].port, PLAN.storages[1].admin)
    assert storage.directory == Path("/somewhere/storage/1")
    assert storage.tls.enabled
    file.write_text(yaml.safe_dump(server_settings(PLAN, LAYOUT, 1, 4000)))
    server = read_settings(ServerConfig, file)
    assert (server.port, server.advertised_host) == (PLAN.servers[1].port, "127.0.0.1")
    assert server.session_timeout_ms == 4000
    assert server.tls.enabled


def test_description_names_every_process() -> None:
    described = cluster_description(PLAN, LAYOUT, {"storage/1": 17}, None)
    assert list(described["processes"]) == list(PLAN.names)
    assert described["processes"]["storage/1"]["pid"] == 17
    assert described["processes"]["storage/0"]["pid"] is None


def test_existing_directory_keeps_its_shape(tmp_path: Path) -> None:
    assert wanted_shape(tmp_path, {"storages": 1}) == Shape(storages=1)
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    assert wanted_shape(tmp_path, {}) == SHAPE
    assert wanted_shape(tmp_path, {"tls": False}) == Shape(5, 3, 2, tls=False)
    (tmp_path / "plan.json").write_text("?")
    with pytest.raises(PlanError, match="is not the plan of a local cluster"):
        wanted_shape(tmp_path, {})


def test_plan_at_a_host_advertises_and_binds_it() -> None:
    plan = LocalClusterPlan.of(Shape(host="10.0.0.5"), count(20_000))
    assert LocalClusterPlan.from_json(plan.to_json()) == plan
    assert plan.zookeeper == "10.0.0.5:20000"
    assert plan.storages[0].address == "10.0.0.5:20001"
    storage, server = (
        storage_settings(plan, LAYOUT, 0, 4000),
        server_settings(plan, LAYOUT, 0, 4000),
    )
    assert storage["storage.bind.host"] == "10.0.0.5"
    assert (server["server.bind.host"], server["server.advertised.host"]) == ("10.0.0.5",) * 2
    assert str(plan.shape) == "4 partitions, 3 storages, 2 servers, plaintext, at 10.0.0.5"


def test_plan_without_a_host_is_one_on_the_loopback_address() -> None:
    fields = json.loads(PLAN.to_json())
    for part in (fields["shape"], *fields["storages"], *fields["servers"]):
        del part["host"]
    assert LocalClusterPlan.from_json(json.dumps(fields)) == PLAN


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_host_that_no_process_can_dial_is_refused(host: str) -> None:
    with pytest.raises(PlanError, match="choose one address of this machine with --host"):
        Shape(host=host)


@pytest.mark.parametrize("host", ["::1", "[::1]", "fe80::1%eth0", "127.0.0.1:2181"])
def test_host_that_is_an_ipv6_address_is_refused(host: str) -> None:
    with pytest.raises(PlanError, match="choose an IPv4 address of this machine, or its name"):
        Shape(host=host)


def test_host_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(NoFreePorts, match=r"cannot listen on 203\.0\.113\.1 .*--host"):
        choose_ports(1, host="203.0.113.1")


def test_ports_differ_and_are_free() -> None:
    ports = list(choose_ports(30))
    assert len(set(ports)) == 30
    for port in ports[:3]:
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has abstract names")
def test_reserved_ports_are_not_chosen_before_their_release() -> None:
    # Numbers of this process alone: reservations are seen by the whole machine.
    a, b, c, d, e = range(1_000_000 + 10 * os.getpid(), 1_000_005 + 10 * os.getpid())

    def reservations(*drawn: list[int]) -> PortReservations:
        draws = cycle(drawn)
        return PortReservations(lambda _: iter(next(draws)))

    first, second = reservations([a, b]), reservations([c, a], [c, d])
    assert list(first.choose(2)) == [a, b]
    assert list(second.choose(2)) == [c, d]
    with pytest.raises(NoFreePorts, match="reserved"):
        reservations([e, d]).choose(2)
    second.release()
    third = reservations([e, d])
    assert list(third.choose(2)) == [e, d]
    third.release()
    first.release()


def test_end_of_a_process_keeps_its_time_until_the_process_runs_again() -> None:
    ended = end_times({}, {"a": None, "b": 7}, 10.0)
    assert ended == {"a": 10.0}
    ended = end_times(ended, {"a": None, "b": None}, 20.0)
    assert ended == {"a": 10.0, "b": 20.0}
    assert end_times(ended, {"a": 8, "b": None}, 30.0) == {"b": 20.0}
