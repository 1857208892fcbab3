"""Manifests of whole clusters, compared with golden files; the comparison with live objects.

After an intended change: WRITE_GOLDEN=1 pytest tests/unit/operator/test_operator_objects.py
"""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.operator_world import cluster_resource, pool_resource
from waltz.runtime.configuration import DEFAULT, Settings, settings_report
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.objects import (
    Manifest,
    ObjectKey,
    budgets,
    certificate_requests,
    is_ours,
    matches,
    network_policies,
    server_deployment,
    server_objects,
    storage_objects,
    storage_set,
    zookeeper_objects,
    zookeeper_set,
    zookeeper_switch,
)
from waltz_operator.core.observed import ObservedCluster, ZooKeeperUnreachable
from waltz_operator.core.planning.outside_addresses import wanted_services
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.core.resources.zookeeper import ManagedZooKeeper
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig

_GOLDEN = Path(__file__).parent / "golden"

_SMALL = (
    cluster_resource(
        pools=["only"],
        zookeeper={"external": {"connectString": "zk-0:2181,zk-1:2181"}, "root": "/logs/x"},
        servers={"replicas": 1},
        tls={"mode": "None"},
        networkPolicies=False,
    ),
    [pool_resource("only")],
)

_LARGE = (
    cluster_resource(
        zookeeper={"managed": {"members": 3, "volume": {"size": "2Gi", "storageClassName": "ssd"}}},
        servers={
            "replicas": 3,
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
            "scheduling": {"priorityClassName": "important"},
        },
        images={"server": "reg/waltz-server:2", "pullPolicy": "Always", "pullSecrets": ["reg"]},
        tls={"mode": "CertManager", "issuerRef": {"name": "ca", "kind": "ClusterIssuer"}},
    ),
    [
        pool_resource(
            name,
            storages=2,
            scheduling={"zone": f"zone-{name}", "tolerations": [{"key": "disk"}]},
            resources={"requests": {"memory": "1Gi"}},
            volumes={
                "data": {"size": "1Gi"},
                "meta": {"size": "10Mi", "storageClassName": "mirrored"},
                "wal": {"size": "1Gi", "storageClassName": "fast"},
            },
            engine="WAL",
            walBytes=1 << 29,
        )
        for name in "abc"
    ],
)

_OUTSIDE = (
    cluster_resource(
        pools=["only"],
        zookeeper={"managed": {"members": 1}},
        servers={"replicas": 1},
        tls={"mode": "CertManager", "issuerRef": {"name": "ca"}},
        access={
            "outside": {
                "type": "LoadBalancer",
                "annotations": {"cloud.example/internal": "true"},
                "sourceRanges": ["10.0.0.0/8", "2001:db8::/32"],
                "externalTrafficPolicy": "Local",
                "adminPorts": True,
                "openZooKeeper": True,
            }
        },
    ),
    [pool_resource("only")],
)

_CLUSTERS = {"small": _SMALL, "large": _LARGE, "outside": _OUTSIDE}


def desired(case: str) -> DesiredCluster:
    cluster, pools = deepcopy(_CLUSTERS[case])
    for pool in pools:
        pool["metadata"]["labels"] = {"waltz.dev/cluster": "log"}
    return DesiredCluster(
        WaltzCluster.model_validate(cluster), tuple(StoragePool.model_validate(p) for p in pools)
    )


def manifests(case: str) -> list[Manifest]:
    wanted = desired(case)
    cluster = wanted.cluster
    found = [
        *server_objects(cluster),
        server_deployment(cluster),
        *budgets(cluster, 1, has_several_copies=len(cluster.spec.pools) > 1),
    ]
    found += network_policies(cluster, wanted.own_pools, "waltz-system")
    found += certificate_requests(cluster)
    for pool in wanted.own_pools:
        found += [*storage_objects(cluster, pool), storage_set(cluster, pool, pool.spec.storages)]
    found += wanted_services(wanted, ObservedCluster({}, ZooKeeperUnreachable("not needed")))
    managed = cluster.spec.zookeeper.managed
    if managed is not None:
        found += [*zookeeper_objects(cluster), zookeeper_set(cluster, managed)]
        found.append(zookeeper_switch(cluster, may_initialize=True))
    return found


@pytest.mark.parametrize("case", _CLUSTERS)
def test_manifests_equal_the_golden_file(case: str) -> None:
    file = _GOLDEN / f"{case}.yaml"
    bodies = [dict(each.body) for each in manifests(case)]
    text = yaml.safe_dump_all(deepcopy(bodies), sort_keys=False, width=100)
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(text)
    assert list(yaml.safe_load_all(file.read_text())) == bodies, (
        "after an intended change: "
        "WRITE_GOLDEN=1 pytest tests/unit/operator/test_operator_objects.py"
    )


@pytest.mark.parametrize(
    ("heap", "expected"),
    [
        ("256Mi", "256m"),
        ("2Gi", "2g"),
        ("1.5Gi", "1572864k"),
        ("512M", "500000k"),
        ("1Pi", "1099511627776k"),
        ("268435456", "262144k"),
    ],
)
def test_heap_is_the_same_amount_in_the_notation_of_java(heap: str, expected: str) -> None:
    managed = ManagedZooKeeper(heap=heap)
    pod = pod_of(zookeeper_set(desired("small").cluster, managed))
    assert {"name": "HEAP", "value": expected} in pod["containers"][0]["env"]


def pod_of(manifest: Manifest) -> dict[str, Any]:
    spec: dict[str, Any] = manifest.body["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("case", _CLUSTERS)
def test_pods_have_the_least_privileges(case: str) -> None:
    workloads = [each for each in manifests(case) if "template" in each.body.get("spec", {})]
    assert workloads
    for workload in workloads:
        pod = pod_of(workload)
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {"readinessProbe", "livenessProbe"} <= container.keys()


@pytest.mark.parametrize("case", _CLUSTERS)
@pytest.mark.parametrize("model", [ServerConfig, StorageConfig])
def test_manifests_set_only_settings_that_the_process_accepts(
    case: str, model: type[Settings]
) -> None:
    """By the model that the process itself reads its settings with."""
    for workload in manifests(case):
        if "template" not in workload.body.get("spec", {}):
            continue
        (container,) = pod_of(workload)["containers"]
        if container["name"] == model.process:
            environment = {each["name"]: each.get("value", "10.0.0.1") for each in container["env"]}
            resolved = settings_report(model, None, environment)
            assert resolved.problems == ()
            assert resolved.warnings == ()
            given = [setting for setting in resolved.settings if setting.origin != DEFAULT]
            assert len(given) == len(environment), "all are settings"


def test_volumes_of_a_storage_are_mounted_at_its_directories() -> None:
    for case, expected in (("small", {"data"}), ("large", {"data", "meta", "wal"})):
        wanted = desired(case)
        workload = storage_set(wanted.cluster, wanted.own_pools[0], 1)
        claims = {
            each["metadata"]["name"] for each in workload.body["spec"]["volumeClaimTemplates"]
        }
        assert claims == expected
        (container,) = pod_of(workload)["containers"]
        mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        settings = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        assert settings["WALTZ_STORAGE_DIRECTORY"] == mounted["data"]
        assert settings.get("WALTZ_STORAGE_META_DIRECTORY") == mounted.get("meta")
        assert settings.get("WALTZ_STORAGE_WAL_DIRECTORY") == mounted.get("wal")


@pytest.mark.parametrize("volume", [{}, {"wal": {"size": "1Gi"}}])
def test_engine_of_a_pool_is_a_setting_of_its_storages(volume: dict[str, Any]) -> None:
    volumes = {"data": {"size": "2Gi"}, **volume}
    assert storage_settings(volumes=volumes) == ("files", 256 << 20, None)
    found = storage_settings(volumes=volumes, engine="WAL", walBytes=1 << 21)
    assert found == ("wal", 1 << 21, Path("/wal") if volume else None)


def test_default_engine_adds_no_variable_to_the_pods() -> None:
    """So an update of the operator does not restart the storages of older pools."""
    wanted = desired("small")
    (container,) = pod_of(storage_set(wanted.cluster, wanted.own_pools[0], 1))["containers"]
    names = {each["name"] for each in container["env"]}
    assert not {name for name in names if "ENGINE" in name or "WAL_" in name}


def storage_settings(**spec: Any) -> tuple[str, int, Path | None]:
    """Return engine, size and directory of the log, as a storage of the pool reads them."""
    pool = StoragePool.model_validate(pool_resource("a", **spec))
    workload = storage_set(desired("small").cluster, pool, 1)
    (container,) = pod_of(workload)["containers"]
    environment = {each["name"]: each.get("value", "10.0.0.1") for each in container["env"]}
    config = settings_report(StorageConfig, None, environment).config
    assert config is not None
    return config.engine, config.wal_bytes, config.wal_directory


def test_disruption_budgets_leave_quorums() -> None:
    for storages in (0, 1, 2):
        allowed = allowed_evictions(pools=3, storages=storages)
        assert allowed == {"log-storage": storages, "log-server": 1, "log-zookeeper": 1}
    assert allowed_evictions(pools=1, storages=0).keys() == {"log-server", "log-zookeeper"}
    alone = {"servers": {"replicas": 1}, "zookeeper": {"managed": {"members": 1}}}
    assert allowed_evictions(pools=3, storages=1, **alone) == {"log-storage": 1}


def allowed_evictions(pools: int, storages: int, **spec: Any) -> dict[str, int]:
    resource = cluster_resource(pools=[f"p{i}" for i in range(pools)], **spec)
    found = budgets(WaltzCluster.model_validate(resource), storages, has_several_copies=pools > 1)
    return {each.key.name: each.body["spec"]["maxUnavailable"] for each in found}


def test_object_with_added_defaults_and_respelled_quantities_matches() -> None:
    workload = next(each for each in manifests("large") if each.key.kind == "StatefulSet")
    live = deepcopy(dict(workload.body))
    container = pod_of(Manifest(workload.key, live))["containers"][0]
    container["terminationMessagePath"] = "/dev/termination-log"
    container["resources"] = {"requests": {"memory": "1024Mi"}}
    live["status"] = {"replicas": 2}
    assert matches(workload, live)
    container["resources"] = {"requests": {"memory": "1Mi"}}
    assert not matches(workload, live)


@pytest.mark.parametrize(
    ("written", "stored"),
    [("0.5m", "500u"), ("0.0005m", "500n"), ("1024Pi", "1Ei"), ("9000P", "9E")],
)
def test_amount_that_the_api_server_stores_in_other_units_matches(
    written: str, stored: str
) -> None:
    pool = pool_resource("a", resources={"requests": {"cpu": written}})
    spec = StoragePool.model_validate(pool).spec
    wanted = Manifest(ObjectKey("Pod", "x"), {"resources": spec.resources.to_json()})
    assert matches(wanted, {"resources": {"requests": {"cpu": stored}}})
    assert not matches(wanted, {"resources": {"requests": {"cpu": f"1{stored}"}}})


def test_null_in_a_field_of_the_kubernetes_api_is_omitted() -> None:
    """The API server omits it, too: the operator would apply the object again and again."""
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaceSelector": None}}
    scheduling = {
        "affinity": {
            "nodeAffinity": None,
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]},
        },
        "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": None}],
    }
    resource = pool_resource("a", scheduling=scheduling)
    pool = StoragePool.model_validate(resource)
    workload = storage_set(WaltzCluster.model_validate(cluster_resource(pools=["a"])), pool, 1)
    assert "null" not in json.dumps(workload.body)
    assert pod_of(workload)["tolerations"] == [{"key": "a", "operator": "Exists"}]


def test_own_objects_are_recognized_by_their_labels() -> None:
    service = storage_objects(desired("small").cluster, desired("small").pools[0])[0]
    assert is_ours(service.body, "log")
    assert not is_ours(service.body, "other")
    assert not is_ours({"metadata": {"name": "x"}}, "log")


def policies_of(**outside: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the rules of the NetworkPolicies of a cluster with this access from outside."""
    access = {"outside": {"type": "LoadBalancer", "openZooKeeper": True} | outside}
    cluster = WaltzCluster.model_validate(cluster_resource(pools=["a"], access=access))
    pool = StoragePool.model_validate(pool_resource("a"))
    found = network_policies(cluster, [pool], "waltz-system")
    return {each.key.name: each.body["spec"]["ingress"] for each in found}


def ports_from(rules: list[dict[str, Any]], peer: dict[str, Any] | None) -> set[int]:
    """Return the ports to which a peer may connect, None for a peer that no rule names."""
    return {
        port["port"]
        for rule in rules
        if "from" not in rule or peer in rule["from"]
        for port in rule["ports"]
    }


def test_access_from_outside_opens_the_data_port_of_storages_and_no_other() -> None:
    assert ports_from(policies_of()["a-storage"], None) == {6000, 6002}
    assert ports_from(policies_of(adminPorts=True)["a-storage"], None) == {6000, 6001, 6002}
    assert ports_from(policies_of(storages=False)["a-storage"], None) == {6002}
    assert policies_of().keys() == {"a-storage", "log-zookeeper"}


def test_source_ranges_limit_clients_only_where_pods_see_their_addresses() -> None:
    hidden = policies_of(sourceRanges=["10.0.0.0/8"])
    assert ports_from(hidden["a-storage"], None) == {6000, 6002}
    seen = policies_of(sourceRanges=["10.0.0.0/8"], externalTrafficPolicy="Local")
    client = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    assert ports_from(seen["a-storage"], None) == {6002}
    assert ports_from(seen["a-storage"], client) == {6000, 6002}
    for policy, port, open_ports in (("log-server", 6100, {6101}), ("log-zookeeper", 2181, set())):
        assert ports_from(seen[policy], None) == open_ports
        assert ports_from(seen[policy], client) == {port, *open_ports}
        assert ports_from(seen[policy], {"namespaceSelector": {}}) == {port, *open_ports}


_ONLY_PROCESSES = ("log.logs.waltz",)


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        ({"mode": "Operator"}, _ONLY_PROCESSES),
        ({"mode": "CertManager", "issuerRef": {"name": "ca"}}, _ONLY_PROCESSES),
        ({"mode": "Secret", "secretName": "mine"}, None),
        ({"mode": "None"}, None),
    ],
)
def test_storages_admit_only_the_certificate_of_the_processes(
    tls: dict[str, Any], expected: tuple[str, ...] | None
) -> None:
    """The certificates of a user may have other names."""
    cluster = WaltzCluster.model_validate(cluster_resource(tls=tls))
    workload = storage_set(cluster, desired("large").own_pools[0], 1)
    (container,) = pod_of(workload)["containers"]
    environment = {each["name"]: each.get("value", "10.0.0.1") for each in container["env"]}
    config = settings_report(StorageConfig, None, environment).config
    assert config is not None
    assert config.allowed_names == expected
    assert config.admin_allowed_names == expected


def test_limits_of_clients_are_settings_of_the_servers() -> None:
    resource = cluster_resource(
        servers={
            "accessRequired": True,
            "quotas": {"appendBytesPerSecond": 1000000, "connections": 20},
        },
    )
    workload = server_deployment(WaltzCluster.model_validate(resource))
    (container,) = pod_of(workload)["containers"]
    environment = {each["name"]: each.get("value", "10.0.0.1") for each in container["env"]}
    config = settings_report(ServerConfig, None, environment).config
    assert config is not None
    assert config.access_required
    assert config.quota_limits.append_bytes_per_second == 1_000_000
    assert config.quota_limits.connections == 20
