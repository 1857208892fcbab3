"""Test that the API server refuses invalid resources with a message that says what to write.

The tests need a kubeconfig and the definitions of the resources. They do not need the operator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import resources
from e2e.kubectl import CommandFailed, Kubectl, run

_REFUSED = Kubectl("refused")
_DEFINITIONS = Path(__file__).parents[1] / "crds"
_KEY = "0" * 8 + "-0000-0000-0000-" + "0" * 12

Body = dict[str, Any]


@pytest.fixture(scope="module")
def refused() -> Iterator[Kubectl]:
    """A namespace; the definitions of the resources are installed if they do not exist."""
    installed = run(
        "kubectl", "get", "crd", "waltzclusters.waltz.dev", "--ignore-not-found"
    ).strip()
    if not installed:
        run("kubectl", "apply", "-f", str(_DEFINITIONS))
        for name in ("waltzclusters.waltz.dev", "storagepools.waltz.dev"):
            run("kubectl", "wait", f"crd/{name}", "--for=condition=Established", "--timeout=30s")
    _REFUSED.create_namespace()
    yield _REFUSED
    _REFUSED.delete_namespace()
    if not installed:
        run("kubectl", "delete", "-f", str(_DEFINITIONS))


def cluster(**spec: Any) -> Body:
    body = resources.cluster("log", ["a", "b", "c"])
    return body | {"spec": body["spec"] | spec}


def pool(**spec: Any) -> Body:
    return resources.pool("a", **spec)


def named(body: Body, name: str) -> Body:
    return body | {"metadata": {"name": name}}


def sized(size: str) -> Body:
    return pool(volumes={"data": {"size": size}})


def limited(requests: str, limits: str) -> Body:
    return {"requests": {"memory": requests}, "limits": {"memory": limits}}


def external(address: str, **more: Any) -> Body:
    """Return a part of a spec: an external ZooKeeper, and ``more`` fields of `zookeeper`."""
    return {"external": {"connectString": address}} | more


def outside(**fields: Any) -> Body:
    """Return a part of a spec: access by ports of nodes, changed by ``fields``."""
    access = {"type": "NodePort", "host": "node.example", "openZooKeeper": True}
    return {"outside": access | fields}


def external_with(**fields: Any) -> Body:
    """Return a part of a spec: an external ZooKeeper, with ``fields`` of `zookeeper.external`."""
    return {"external": {"connectString": "zk:2181"} | fields}


def adopting(**spec: Any) -> Body:
    """Return a cluster that takes another one over; ``spec`` overrides fields of its spec."""
    adoption = {"clusterKey": _KEY, "adopt": {"clusterName": "old"}}
    return cluster(**{"zookeeper": external("zk:2181")} | adoption | spec)


# By case: an invalid resource, and a part of the message that refuses it.
INVALID: dict[str, tuple[Body, str]] = {
    "no partitions": (
        cluster(partitions=0),
        "spec.partitions in body should be greater than or equal to 1",
    ),
    "a misspelled field": (cluster(partitons=4), 'unknown field "spec.partitons"'),
    "no section zookeeper": (cluster(zookeeper=None), "spec.zookeeper: Required value"),
    "two pools": (
        cluster(pools=["a", "b"]),
        "the number of pools of a new cluster must be odd: for example, 4 pools survive no more",
    ),
    "no pools": (
        cluster(pools=[]),
        "pools is empty: name at least one StoragePool, which holds one copy of the partitions",
    ),
    "an adopted cluster without a key": (
        adopting(clusterKey=None),
        "adopt needs clusterKey, the key of the cluster that is taken over",
    ),
    "an adopted cluster with a ZooKeeper of its own": (
        adopting(zookeeper={"managed": {}}),
        "adopt needs zookeeper.external, the ZooKeeper of the cluster that is taken over",
    ),
    "old groups that leave fewer than three copies": (
        adopting(pools=["a", "b"], adopt={"clusterName": "old", "foreignGroups": "Retire"}),
        "with adopt.foreignGroups Retire, 3 copies must remain: name at least 3 pools",
    ),
    "a pool twice": (
        cluster(pools=["a", "b", "a"]),
        "pools contains a name twice: each pool holds one copy of the partitions, so name",
    ),
    "a pool with an invalid name": (
        cluster(pools=["Pool_A"]),
        "the name of an object has lower-case letters, digits and hyphens only",
    ),
    "neither kind of ZooKeeper": (
        cluster(zookeeper={}),
        "set exactly one of zookeeper.managed and zookeeper.external",
    ),
    "both kinds of ZooKeeper": (
        cluster(zookeeper=external("zk:2181", managed={})),
        "set exactly one of zookeeper.managed and zookeeper.external",
    ),
    "two members": (
        cluster(zookeeper={"managed": {"members": 2}}),
        "a managed ZooKeeper has 1 or 3 members",
    ),
    "a path behind the address": (
        cluster(zookeeper=external("zk-0:2181,zk-1:2181/waltz")),
        "a path goes into zookeeper.root",
    ),
    "no port in the address": (
        cluster(zookeeper=external("zk.default.svc")),
        "zookeeper.external.connectString is host:port of each member",
    ),
    "a root that is not a path": (
        cluster(zookeeper=external("zk:2181", root="waltz")),
        "zookeeper.root is a path that begins with a slash: /waltz/orders",
    ),
    "a root among ZooKeeper's own znodes": (
        cluster(zookeeper=external("zk:2181", root="/zookeeper/waltz")),
        "zookeeper.root uses a name that ZooKeeper reserves",
    ),
    "a root with two dots": (
        cluster(zookeeper=external("zk:2181", root="/waltz/../orders")),
        "zookeeper.root uses a name that ZooKeeper reserves",
    ),
    "a heap as large as the container": (
        cluster(zookeeper={"managed": {"heap": "1Gi", "resources": limited("1Gi", "1Gi")}}),
        "zookeeper.managed.heap must be less than resources.limits.memory: raise the limit, or",
    ),
    "a heap of half a byte": (
        cluster(zookeeper={"managed": {"heap": "500m"}}),
        "zookeeper.managed.heap must be at least 16Mi, such as 256Mi",
    ),
    "servers with one port twice": (
        cluster(servers={"port": 6100, "httpPort": 6100}),
        "servers.port and servers.httpPort must differ",
    ),
    "a privileged port": (
        cluster(servers={"httpPort": 80}),
        "a port is from 1024 to 65535: lower ports need rights that the pods do not have",
    ),
    "caches larger than the memory": (
        cluster(servers={"resources": limited("64Mi", "128Mi")}),
        "servers.resources.limits.memory is less than the caches need: raise the limit, or lower",
    ),
    "requests above limits": (
        cluster(servers={"resources": limited("2Gi", "1Gi")}),
        "resources.requests must not exceed resources.limits: raise the limit or lower the request",
    ),
    "required access rules without TLS": (
        cluster(servers={"accessRequired": True}, tls={"mode": "None"}),
        "servers.accessRequired needs TLS, by which servers know their clients: choose another",
    ),
    "access from outside by ports of unknown nodes": (
        cluster(access=outside(host="")),
        "access.outside.host is required with type NodePort, and allowed only with it: name",
    ),
    "a host with a port for access from outside": (
        cluster(access=outside(host="node.example:30000")),
        "access.outside.host is a name or an IP address without a port",
    ),
    "access from outside without TLS": (
        cluster(access=outside(), tls={"mode": "None"}),
        "access.outside needs TLS, without which servers and storages obey every client",
    ),
    "storages that obey every certificate, open to clients outside": (
        cluster(access=outside(), tls={"mode": "Secret", "secretName": "mine"}),
        "with tls.mode Secret, storages obey every client with a certificate of the authority",
    ),
    "a ZooKeeper without protection, open to clients outside": (
        cluster(access=outside(openZooKeeper=False)),
        "access.outside: a managed ZooKeeper has neither TLS nor authentication: set openZooKeeper",
    ),
    "an external ZooKeeper that the operator opens": (
        cluster(access=outside(), zookeeper=external("zk:2181")),
        "access.outside: a managed ZooKeeper has neither TLS nor authentication: set openZooKeeper",
    ),
    "source ranges that pods cannot check": (
        cluster(access=outside(sourceRanges=["10.0.0.0/8"])),
        "access.outside.sourceRanges with type NodePort needs externalTrafficPolicy Local",
    ),
    "a source range without a prefix length": (
        cluster(access=outside(sourceRanges=["10.0.0.1"], externalTrafficPolicy="Local")),
        "a source range is an address and a prefix length, such as 10.0.0.0/8",
    ),
    "a source range with too long a prefix": (
        cluster(access=outside(sourceRanges=["10.0.0.0/99"], externalTrafficPolicy="Local")),
        "a source range is an address and a prefix length, such as 10.0.0.0/8",
    ),
    "a source range that is no address": (
        cluster(access=outside(sourceRanges=[":::/8"], externalTrafficPolicy="Local")),
        "a source range is an address and a prefix length, such as 10.0.0.0/8",
    ),
    "source ranges that nothing checks": (
        cluster(
            access=outside(sourceRanges=["10.0.0.0/8"], externalTrafficPolicy="Local"),
            networkPolicies=False,
        ),
        "access.outside.sourceRanges needs networkPolicies: with type NodePort or a managed",
    ),
    "source ranges that do not protect ZooKeeper": (
        cluster(access=outside(type="LoadBalancer", host="", sourceRanges=["10.0.0.0/8"])),
        "access.outside.sourceRanges with openZooKeeper needs externalTrafficPolicy Local",
    ),
    "an annotation with an invalid name": (
        cluster(access=outside(annotations={"a/b/c": "x"})),
        "a name in access.outside.annotations has an optional domain with a slash, and up to 63",
    ),
    "ports for administration without Services": (
        cluster(access=outside(adminPorts=True, storages=False)),
        "access.outside.adminPorts needs storages: set access.outside.storages to true",
    ),
    "credentials for a ZooKeeper without TLS": (
        cluster(zookeeper=external_with(authentication={"secretName": "user"})),
        "zookeeper.external.authentication needs zookeeper.external.tls: without TLS, the password",
    ),
    "two identities in ZooKeeper": (
        cluster(
            zookeeper=external_with(
                tls={"secretName": "tls"},
                authentication={"secretName": "user", "certificate": True},
            )
        ),
        "set exactly one of zookeeper.external.authentication.secretName and .certificate",
    ),
    "a certificate in ZooKeeper that no secret has": (
        cluster(
            zookeeper=external_with(
                tls={"secretName": "tls", "clientCertificate": False},
                authentication={"certificate": True},
            )
        ),
        "zookeeper.external.authentication.certificate needs a certificate: set",
    ),
    "a secret without mode Secret": (
        cluster(tls={"secretName": "mine"}),
        "tls.secretName is required with tls.mode Secret, and allowed only with it: name a secret",
    ),
    "an issuer without a name": (
        cluster(tls={"mode": "CertManager"}),
        "tls.issuerRef is required with tls.mode CertManager, and allowed only with it: name",
    ),
    "an unknown mode of TLS": (
        cluster(tls={"mode": "Maybe"}),
        'supported values: "Operator", "CertManager", "Secret", "None"',
    ),
    "an unknown pull policy": (
        cluster(images={"pullPolicy": "Sometimes"}),
        'supported values: "Always", "IfNotPresent", "Never"',
    ),
    "a key that is not a UUID": (
        cluster(clusterKey="my cluster"),
        "clusterKey is a UUID in lower case, as status.clusterKey of the earlier cluster shows",
    ),
    "a name too long for host names": (
        named(cluster(), "l" * 41),
        "the cluster's name becomes part of its pods' names: at most 40 characters",
    ),
    "a name with a dot": (
        named(cluster(), "log.v2"),
        "the cluster's name becomes part of its pods' host names: lower-case letters, digits and",
    ),
    "a size in words": (
        sized("10 GB"),
        "an amount is a number and a unit, without a space, such as 500m or 2Gi",
    ),
    "an empty volume": (
        sized("0"),
        "the size of a volume must be greater than 0, such as 10Gi",
    ),
    "a volume smaller than a segment": (
        sized("100Mi"),
        "volumes.data.size is less than one segment of the log: raise the size, or lower",
    ),
    "a volume smaller than a segment and the log": (
        pool(engine="WAL", walBytes=1 << 30),
        "volumes.data.size is less than one segment and the write-ahead log: raise the size",
    ),
    "a volume that is no larger than its write-ahead log": (
        pool(engine="WAL", volumes={"data": {"size": "1Gi"}, "wal": {"size": "256Mi"}}),
        "volumes.wal.size must be at least 1.25 times walBytes, because the file system takes",
    ),
    "an unknown engine": (
        pool(engine="wal"),
        'supported values: "Files", "WAL"',
    ),
    "no storages": (
        pool(storages=0),
        "spec.storages in body should be greater than or equal to 1",
    ),
    "a storage with one port twice": (
        pool(port=7000, adminPort=7000),
        "port, adminPort and httpPort must all differ",
    ),
    "a zone among the labels": (
        pool(scheduling={"nodeSelector": {"topology.kubernetes.io/zone": "a"}}),
        "write scheduling.zone instead of a nodeSelector for topology.kubernetes.io/zone",
    ),
    "a pool's name too long": (
        named(pool(), "p" * 41),
        "the pool's name becomes part of its pods' host names: at most 40 characters",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_resource_is_refused_with_a_remedy(refused: Kubectl, case: str) -> None:
    body, sentence = INVALID[case]
    with pytest.raises(CommandFailed) as refusal:
        refused.apply(body)
    assert sentence in " ".join(str(refusal.value).split())
    assert "rule evaluation error" not in str(refusal.value)
    assert refused.find(body["kind"].lower()) == []


# By case: a resource, a forbidden change of its spec, and a part of the message that refuses it.
CHANGES: dict[str, tuple[Body, Body, str]] = {
    "the number of partitions": (
        cluster(),
        {"partitions": 2},
        "partitions cannot change, because clients select a partition by the number of partitions",
    ),
    "fewer than three pools": (
        cluster(),
        {"pools": ["a", "b"]},
        "pools would have fewer than 3 copies: set allowFewerCopies to true to allow that",
    ),
    "a single pool of three": (
        cluster(allowFewerCopies=True),
        {"pools": ["a"]},
        "a cluster of several copies cannot be reduced to one, because one copy is no quorum of",
    ),
    "two pools from one": (
        cluster(pools=["a"]),
        {"pools": ["a", "b"]},
        "a single copy cannot become two, because one copy is no quorum of two: name 3 pools",
    ),
    "the only pool": (
        cluster(pools=["a"]),
        {"pools": ["b"]},
        "the only pool cannot be replaced, because its copy would be lost: add two pools first",
    ),
    "an even number of pools before the first start": (
        cluster(),
        {"pools": ["a", "b", "c", "d"]},
        "the number of pools of a new cluster must be odd",
    ),
    "the root": (
        cluster(),
        {"zookeeper": {"root": "/elsewhere"}},
        "zookeeper.root cannot change: it holds the cluster's metadata",
    ),
    "more members": (
        cluster(zookeeper={"managed": {"members": 1}}),
        {"zookeeper": {"managed": {"members": 3}}},
        "zookeeper.managed.members cannot change: an ensemble that grows or shrinks may lose data",
    ),
    "an external ZooKeeper": (
        cluster(),
        {"zookeeper": external("zk:2181", managed=None)},
        "a cluster cannot change from a managed ZooKeeper to an external one, or back",
    ),
    "the address of a running cluster's ZooKeeper": (
        cluster(zookeeper=external("zk:2181")),
        {"paused": False, "zookeeper": external("other:2181")},
        "zookeeper.external.connectString can change only while spec.paused is true",
    ),
    "TLS": (
        cluster(),
        {"tls": {"mode": "None"}},
        "tls.mode cannot change: processes with the old and the new mode could not connect to",
    ),
    "the key": (
        cluster(clusterKey=_KEY),
        {"clusterKey": None},
        "clusterKey cannot be removed: volumes belong to one cluster",
    ),
    "an adoption": (
        adopting(),
        {"adopt": None},
        "adopt cannot be removed: the cluster keeps its name in ZooKeeper",
    ),
    "the name of an adopted cluster": (
        adopting(),
        {"adopt": {"clusterName": "other"}},
        "adopt.clusterName cannot change: create this WaltzCluster again with the name",
    ),
    "a storage's port": (
        pool(),
        {"port": 7000},
        "port cannot change, because a storage's host:port is its identity: create a new",
    ),
    "a smaller volume": (
        sized("2Gi"),
        {"volumes": {"data": {"size": "1Gi"}}},
        "volumes.data.size cannot be reduced, because a volume never shrinks: create a new",
    ),
    "the size of ZooKeeper's volumes": (
        cluster(),
        {"zookeeper": {"managed": {"volume": {"size": "9Gi"}}}},
        "zookeeper.managed.volume.size cannot change: the operator resizes only the volumes of",
    ),
    "the class of volumes": (
        pool(),
        {"volumes": {"data": {"storageClassName": "fast"}}},
        "the class of existing volumes cannot be changed: create a new StoragePool",
    ),
    "a meta volume later": (
        pool(),
        {"volumes": {"meta": {"size": "1Gi"}}},
        "volumes.meta cannot be added or removed, because a storage's control file stays where",
    ),
    "a volume of the write-ahead log later": (
        pool(),
        {"volumes": {"wal": {"size": "1Gi"}}},
        "volumes.wal cannot be added or removed, because Kubernetes does not change the volumes",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_change_of_an_immutable_field_is_refused(refused: Kubectl, case: str) -> None:
    body, change, sentence = CHANGES[case]
    kind, name = body["kind"].lower(), body["metadata"]["name"]
    if kind == "waltzcluster":
        # The cluster is paused, so that a running operator does not create it.
        body = body | {"spec": body["spec"] | {"paused": True}}
    refused.apply(body)
    try:
        with pytest.raises(CommandFailed) as refusal:
            refused.patch(kind, name, {"spec": change})
        assert sentence in " ".join(str(refusal.value).split())
    finally:
        refused.delete(kind, name)


def test_larger_size_is_accepted_and_taken_back_only_until_a_claim_requests_it(
    refused: Kubectl,
) -> None:
    refused.apply(sized("1Gi"))
    try:
        for size in ("2Gi", "2048Mi", "3Gi"):
            refused.patch("storagepool", "a", {"spec": sized(size)["spec"]})
        with pytest.raises(CommandFailed, match=r"volumes\.data\.size cannot be reduced"):
            refused.patch("storagepool", "a", {"spec": sized("2Gi")["spec"]})
        # The test reports what the claims request instead of the operator, which reconciles no pool
        # without a cluster.
        requested = json.dumps({"status": {"requestedSizes": {"data": "2Gi"}}})
        refused(
            "patch", "storagepool", "a", "--subresource=status", "--type=merge", "-p", requested
        )
        refused.patch("storagepool", "a", {"spec": sized("2Gi")["spec"]})
        with pytest.raises(CommandFailed, match=r"volumes\.data\.size cannot be reduced"):
            refused.patch("storagepool", "a", {"spec": sized("1Gi")["spec"]})
    finally:
        refused.delete("storagepool", "a")


def test_adoption_is_added_only_to_a_cluster_that_does_not_exist_yet(refused: Kubectl) -> None:
    without = {"clusterKey": _KEY, "zookeeper": external("zk:2181"), "paused": True}
    adopt = {"spec": {"adopt": {"clusterName": "old"}}}
    for key in ("", _KEY):
        refused.apply(cluster(**without))
        try:
            # The test reports the key of an existing cluster instead of the operator, which does
            # not act while the cluster is paused.
            reported = json.dumps({"status": {"clusterKey": key}})
            status = ("--subresource=status", "--type=merge", "-p", reported)
            refused("patch", "waltzcluster", "log", *status)
            if key:
                with pytest.raises(CommandFailed, match="adopt cannot be added to a cluster that"):
                    refused.patch("waltzcluster", "log", adopt)
            else:
                refused.patch("waltzcluster", "log", adopt)
        finally:
            refused.delete("waltzcluster", "log")


def test_valid_resource_is_accepted(refused: Kubectl) -> None:
    dry_run = ("apply", "--dry-run=server", "-f")
    printed = refused(*dry_run, str(resources.EXAMPLE))
    assert printed.count("created") == 4, "a cluster and three pools"
    for body in (
        cluster(zookeeper=external("zk-0.zk:2181,zk-1.zk:2181", root="/waltz/orders")),
        cluster(tls={"mode": "CertManager", "issuerRef": {"name": "x", "kind": "ClusterIssuer"}}),
        cluster(
            zookeeper=external_with(
                tls={"secretName": "zk-tls"}, authentication={"secretName": "zk-user"}
            )
        ),
        cluster(servers={"accessRequired": True, "quotas": {"connections": 50}}),
        cluster(servers={"resources": limited("1Gi", "1Gi")}),
        cluster(access=outside()),
        cluster(access=outside(host="2001:db8::7", adminPorts=True)),
        cluster(access=outside(storages=False), tls={"mode": "Secret", "secretName": "mine"}),
        cluster(
            access=outside(
                type="LoadBalancer",
                host="",
                sourceRanges=["2001:db8::/32", "::/0", "192.0.2.255/32"],
                externalTrafficPolicy="Local",
                annotations={"service.example.com/internal_only": "true", "Mine": ""},
            ),
        ),
        cluster(
            access=outside(
                type="LoadBalancer", host="", sourceRanges=["10.0.0.0/8"], openZooKeeper=False
            ),
            networkPolicies=False,
            zookeeper=external("zk:2181"),
        ),
        cluster(access=outside(openZooKeeper=False), zookeeper=external("zk:2181")),
        sized("1.5Ti"),
    ):
        assert "created" in refused(*dry_run, "-", given=json.dumps(body))
