"""The pod template of a workload stays until a user states something else or requests an update.

The rule is compared with a model of it over random histories of two operators, a user and others
who edit objects. A sweep over all fields of the resources checks which of them count as a request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.operator_world import _merge, cluster_resource, pool_resource
from waltz_operator.core.names import (
    MANIFEST_ANNOTATION,
    POD_TEMPLATE_ANNOTATION,
    UPDATE_PODS_ANNOTATION,
    Component,
)
from waltz_operator.core.objects import (
    Manifest,
    matches,
    server_deployment,
    storage_set,
    zookeeper_set,
)
from waltz_operator.core.objects.manifest import with_template
from waltz_operator.core.pod_templates import (
    TEMPLATE_VERSION,
    AppliedTemplate,
    RenderedWorkload,
    is_kept,
    manifest_to_apply,
)
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.shell.crds import structural_schema

Live = dict[str, Any]

COMPONENTS = (Component.ZOOKEEPER, Component.STORAGE, Component.SERVER)
_EXTERNAL = {
    "connectString": "zk:2181",
    "tls": {"secretName": "zk-tls", "serverName": "zk"},
    "authentication": {"secretName": "zk-credentials"},
}


def complete(resource: dict[str, Any]) -> dict[str, Any]:
    """Return a WaltzCluster with the defaults that the API server stores."""
    return {**resource, "spec": WaltzCluster.model_validate(resource).spec.to_json()}


BASES: Mapping[str, dict[str, Any]] = {
    "managed": complete(cluster_resource(zookeeper={"managed": {}})),
    "external": complete(
        cluster_resource(
            zookeeper={"external": _EXTERNAL},
            tls={"mode": "Secret", "secretName": "own"},
            clusterKey="00000000-0000-0000-0000-00000000000a",
        )
    ),
}


def workload(
    resource: Mapping[str, Any],
    version: str,
    component: Component = Component.STORAGE,
    pool: Mapping[str, Any] | None = None,
) -> RenderedWorkload:
    """Return a workload as an operator of ``version`` renders it."""
    cluster = WaltzCluster.model_validate(resource)
    of_pool = None
    match component:
        case Component.STORAGE:
            of_pool = StoragePool.model_validate(pool or pool_resource("a"))
            manifest = storage_set(cluster, of_pool, 1)
        case Component.ZOOKEEPER:
            assert cluster.spec.zookeeper.managed is not None
            manifest = zookeeper_set(cluster, cluster.spec.zookeeper.managed)
        case _:
            manifest = server_deployment(cluster)
    template = deepcopy(manifest.body["spec"]["template"])
    template["spec"]["containers"][0]["env"].append({"name": "BY", "value": version})
    rendered = with_template(manifest, template, "")
    del rendered.body["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]
    return RenderedWorkload(cluster, rendered, of_pool)


def version_of(applied: Mapping[str, Any]) -> str:
    """Return the version whose rendering a manifest or a live object has."""
    (container,) = applied["spec"]["template"]["spec"]["containers"]
    (version,) = (each["value"] for each in container["env"] if each["name"] == "BY")
    return str(version)


def applied(live: Live | None, manifest: Manifest) -> Live:
    """Return the object after an apply of ``manifest``, with the defaults of the API server."""
    result = deepcopy(live) if live is not None else {"metadata": {}}
    _merge(result, manifest.body)
    result["spec"]["template"]["spec"].setdefault("dnsPolicy", "ClusterFirst")
    return result


def created(resource: Mapping[str, Any], version: str, **of: Any) -> Live:
    return applied(None, manifest_to_apply(workload(resource, version, **of), None))


# ---- histories


@dataclass
class History:
    """A user, others and operators of several versions; a model says what must be applied."""

    component: Component

    def __post_init__(self) -> None:
        self.resource = deepcopy(BASES["managed"])
        self.resource["metadata"]["annotations"] = {}
        self.operator = "one"
        self.live: Live | None = None
        self.expected: tuple[str, str] | None = None
        """The version and the pull policy of the template that must be applied."""
        self.answered = ""

    @property
    def policy(self) -> str:
        return str(self.resource["spec"]["images"]["pullPolicy"])

    @property
    def request(self) -> str:
        return str(self.resource["metadata"]["annotations"].get(UPDATE_PODS_ANNOTATION, ""))

    def happen(self, event: str, value: str) -> None:
        spec = self.resource["spec"]
        match event:
            case "operator":
                self.operator = value
            case "state":
                spec["images"]["pullPolicy"] = "Always" if value == "one" else "Never"
            case "state no pod":
                spec["paused"] = value == "one"
            case "request":
                self.resource["metadata"]["annotations"] = {UPDATE_PODS_ANNOTATION: value}
            case "withdraw":
                self.resource["metadata"]["annotations"] = {}
            case "edit" if self.live is not None:
                self.live["spec"]["template"]["spec"]["containers"][0]["env"] = [
                    {"name": "BY", "value": "a person"}
                ]
            case "delete":
                self.live = self.expected = None
            case "reconcile":
                self.reconcile()

    def reconcile(self) -> None:
        """Let the operator apply what differs; check what it has applied."""
        asked = self.request not in ("", self.answered)
        if self.expected is None or asked or self.expected[1] != self.policy:
            self.expected, self.answered = (self.operator, self.policy), self.request
        rendered = workload(self.resource, self.operator, self.component)
        to_apply = manifest_to_apply(rendered, self.live)
        if self.live is None or not matches(to_apply, self.live):
            self.live = applied(self.live, to_apply)
        (container,) = self.live["spec"]["template"]["spec"]["containers"]
        assert (version_of(self.live), container["imagePullPolicy"]) == self.expected
        assert matches(manifest_to_apply(rendered, self.live), self.live), (
            "a second apply has nothing to do"
        )
        assert is_kept(rendered, self.live) is (self.expected[0] != self.operator)


_VALUES = st.sampled_from(["one", "two", "three"])
_EVENTS = st.sampled_from(
    ["operator", "state", "state no pod", "request", "withdraw", "edit", "delete", "reconcile"]
)


@given(st.sampled_from(COMPONENTS), st.lists(st.tuples(_EVENTS, _VALUES), min_size=3, max_size=25))
def test_template_changes_only_if_a_user_asks_and_edits_are_repaired(
    component: Component, events: list[tuple[str, str]]
) -> None:
    history = History(component)
    history.reconcile()
    for event, value in events:
        history.happen(event, value)
    history.reconcile()


# ---- what counts as a request


_CHANGES: Mapping[str, Any] = {
    "partitions": 5,
    "pools": ["a", "b", "c", "d", "e"],
    "allowFewerCopies": True,
    "zookeeper.managed.members": 1,
    "zookeeper.managed.volume.size": "6Gi",
    "zookeeper.managed.volume.storageClassName": "fast",
    "zookeeper.managed.heap": "300Mi",
    "zookeeper.managed.onDeletion": "Delete",
    "zookeeper.external.connectString": "other:2181",
    "zookeeper.external.tls.secretName": "other",
    "zookeeper.external.tls.clientCertificate": False,
    "zookeeper.external.tls.serverName": "other",
    "zookeeper.external.authentication.secretName": "other",
    "zookeeper.external.authentication.certificate": True,
    "zookeeper.root": "/other",
    "zookeeper.sessionTimeoutSeconds": 20,
    "servers.replicas": 5,
    "servers.port": 7100,
    "servers.httpPort": 7101,
    "servers.caches.feedBytes": 2 << 20,
    "servers.caches.dataBytes": 2 << 20,
    "servers.quotas.appendBytesPerSecond": 1000,
    "servers.quotas.connections": 10,
    "servers.accessRequired": True,
    "images.server": "other",
    "images.storage": "other",
    "images.zookeeper": "other",
    "images.pullPolicy": "Always",
    "images.pullSecrets": ["other"],
    "tls.mode": "None",
    "tls.issuerRef.name": "other",
    "tls.issuerRef.kind": "ClusterIssuer",
    "tls.secretName": "other",
    "tls.rotationStepSeconds": 20,
    "clusterKey": "11111111-2222-3333-4444-555555555555",
    "paused": True,
    "restartedAt": "2026-01-31T12:00:00Z",
    "networkPolicies": False,
    "storages": 3,
    "port": 7000,
    "adminPort": 7001,
    "httpPort": 7002,
    "volumes.data.size": "2Gi",
    "volumes.data.storageClassName": "fast",
    "volumes.meta.size": "2Gi",
    "volumes.meta.storageClassName": "fast",
    "volumes.wal.size": "2Gi",
    "volumes.wal.storageClassName": "fast",
    "volumes.onScaleDown": "Delete",
    "volumes.onLoss": "Replace",
    "volumes.lossDelaySeconds": 20,
    "volumes.onDeletion": "Delete",
    "segmentBytes": 2 << 20,
    "engine": "Files",
    "walBytes": 2 << 20,
    "requests": {"cpu": "1"},
    "limits": {"memory": "4Gi"},
    "zone": "west",
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "access.outside.type": "NodePort",
    "access.outside.host": "node.example",
    "access.outside.annotations": {"a": "b"},
    "access.outside.sourceRanges": ["10.0.0.0/8"],
    "access.outside.externalTrafficPolicy": "Local",
    "access.outside.storages": False,
    "access.outside.adminPorts": True,
    "access.outside.openZooKeeper": True,
    "adopt.clusterName": "elsewhere",
    "adopt.foreignGroups": "Retire",
}
"""Another value for each field: by its path, or by its name for the parts of several fields."""

_REQUIRED = {
    "issuerRef": {"name": "x"},
    "outside": {"type": "LoadBalancer"},
    "adopt": {"clusterName": "x"},
}
"""What a field that has further fields needs, besides the one that is changed."""

_BASE_OF = {"adopt": "external"}
"""The only base that a field fits."""

_POOL = pool_resource(
    "a",
    engine="WAL",
    volumes={"data": {"size": "1Gi"}, "meta": {"size": "1Gi"}, "wal": {"size": "1Gi"}},
)


def leaves(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all fields of a schema that have no further fields."""
    if "properties" not in schema:
        yield path
    for name, each in schema.get("properties", {}).items():
        yield from leaves(each, (*path, name))


def paths(model: type[WaltzCluster | StoragePool]) -> list[tuple[str, ...]]:
    return list(leaves(structural_schema(model)["properties"]["spec"]))


def changed(resource: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return a resource with another value of one field."""
    value = _CHANGES.get(".".join(path), _CHANGES.get(path[-1]))
    assert value is not None, f"name another value of {'.'.join(path)}"
    result = deepcopy(dict(resource))
    put(result["spec"], path, value)
    return result


def put(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set one field of a spec to another value."""
    for name in path[:-1]:
        spec = spec.setdefault(name, dict(_REQUIRED.get(name, {})))
    assert spec.get(path[-1]) != value
    spec[path[-1]] = value


def template_of(each: RenderedWorkload) -> str:
    return json.dumps(each.template, sort_keys=True)


def is_request(before: RenderedWorkload, now: RenderedWorkload) -> bool:
    """Whether the template of ``now`` is applied to what was made from ``before``."""
    live = applied(None, manifest_to_apply(before, None))
    return version_of(manifest_to_apply(now, live).body) == version_of(now.manifest.body)


def with_unknown_value(before: RenderedWorkload, kind: str, path: tuple[str, ...]) -> Live:
    """Return a live workload whose record has a value of one field that no operator here knows."""
    live = applied(None, manifest_to_apply(before, None))
    specs = specs_of(live)
    put(specs[kind], path, [["unheard of"]])
    return with_record(live, specs=specs)


_MORE_THAN_NEEDED = {
    (Component.STORAGE, "tls.secretName", "managed"),
    (Component.SERVER, "tls.secretName", "managed"),
}
"""Fields that no pod depends on in these clusters, and count as a request all the same."""


@pytest.mark.parametrize("path", paths(WaltzCluster), ids=".".join)
def test_field_of_a_cluster_counts_as_a_request_if_the_pods_depend_on_it(
    path: tuple[str, ...],
) -> None:
    for base, resource in BASES.items():
        choice = path[1] if path[0] == "zookeeper" else _BASE_OF.get(path[0], base)
        if choice in BASES and choice != base:
            continue
        other = changed(resource, path)
        for component in COMPONENTS:
            if component is Component.ZOOKEEPER and base == "external":
                continue
            before = workload(resource, "one", component)
            same_operator = workload(other, "one", component)
            differs = template_of(before) != template_of(same_operator)
            counts = is_request(before, workload(other, "two", component))
            more = (component, ".".join(path), base) in _MORE_THAN_NEEDED
            assert counts is (differs or more), (component, base)
            unknown = with_unknown_value(before, "cluster", path)
            kept = (
                version_of(manifest_to_apply(workload(resource, "two", component), unknown).body)
                == "one"
            )
            assert kept is not counts, (component, base)


@pytest.mark.parametrize("path", paths(StoragePool), ids=".".join)
def test_field_of_a_pool_counts_as_a_request_if_its_pods_depend_on_it(
    path: tuple[str, ...],
) -> None:
    resource, other = BASES["managed"], changed(_POOL, path)
    before = workload(resource, "one", pool=_POOL)
    differs = template_of(before) != template_of(workload(resource, "one", pool=other))
    assert is_request(before, workload(resource, "two", pool=other)) is differs
    unknown = with_unknown_value(before, "pool", path)
    kept = (
        version_of(manifest_to_apply(workload(resource, "two", pool=_POOL), unknown).body) == "one"
    )
    assert kept is not differs


def test_key_that_is_removed_from_a_free_form_field_counts_as_a_request() -> None:
    scheduled = pool_resource("a", scheduling={"nodeSelector": {"disk": "fast", "cpu": "new"}})
    fewer = pool_resource("a", scheduling={"nodeSelector": {"disk": "fast"}})
    before = workload(BASES["managed"], "one", pool=scheduled)
    assert is_request(before, workload(BASES["managed"], "two", pool=fewer))


# ---- records of other versions


def with_record(live: Live, **changes: Any) -> Live:
    """Return a live object whose record has other fields."""
    result = deepcopy(live)
    annotations = result["metadata"]["annotations"]
    record = json.loads(annotations[POD_TEMPLATE_ANNOTATION]) | changes
    annotations[POD_TEMPLATE_ANNOTATION] = json.dumps(record)
    return result


def specs_of(live: Live) -> dict[str, Any]:
    text = live["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]
    specs: dict[str, Any] = json.loads(text)["specs"]
    return specs


def test_record_of_a_newer_operator_is_kept_with_the_fields_that_only_it_knows() -> None:
    live = created(BASES["managed"], "newer")
    specs = specs_of(live)
    specs["cluster"]["unheardOf"] = specs["pool"]["unheardOf"] = {"a": 1}
    live = with_record(live, specs=specs, moreFields=[1], version=TEMPLATE_VERSION + 3)
    to_apply = manifest_to_apply(workload(BASES["managed"], "older"), live)
    assert version_of(to_apply.body) == "newer"
    annotation = to_apply.body["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]
    assert annotation == live["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]


def test_field_that_the_record_lacks_counts_as_a_request_only_if_it_has_no_default() -> None:
    """The field is newer than the record."""
    live = created(BASES["managed"], "older")
    specs = specs_of(live)
    del specs["cluster"]["zookeeper"]["sessionTimeoutSeconds"], specs["pool"]["engine"]
    live = with_record(live, specs=specs)
    assert version_of(manifest_to_apply(workload(BASES["managed"], "newer"), live).body) == "older"
    wal = workload(BASES["managed"], "newer", pool=pool_resource("a", engine="WAL"))
    assert version_of(manifest_to_apply(wal, live).body) == "newer"


def test_value_of_the_record_that_this_operator_does_not_know_counts_as_a_request() -> None:
    live = created(BASES["managed"], "newer")
    specs = specs_of(live)
    specs["pool"]["engine"] = "Unheard"
    live = with_record(live, specs=specs)
    assert version_of(manifest_to_apply(workload(BASES["managed"], "older"), live).body) == "older"


def test_record_stays_small_however_long_the_annotations_of_outside_services_are() -> None:
    annotations = {f"example.com/{number}": "x" * 4096 for number in range(32)}
    outside = deepcopy(BASES["managed"])
    outside["spec"]["access"] = {"outside": {"type": "NodePort", "annotations": annotations}}
    assert specs_of(created(outside, "one")) == specs_of(created(BASES["managed"], "one"))


def test_template_that_is_older_than_required_is_replaced_unasked() -> None:
    live = with_record(created(BASES["managed"], "older"), version=TEMPLATE_VERSION - 1)
    assert version_of(manifest_to_apply(workload(BASES["managed"], "newer"), live).body) == "newer"


_INFINITE = '{"template": {"spec": {"containers": [{}]}}, "specs": {}, "version": Infinity}'


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"template": {}, "specs": {}}', "null", _INFINITE, "[" * 200_000],
    ids=lambda text: text[:15],
)
def test_malformed_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        AppliedTemplate.from_json(text)


# ---- workloads without a record


def without_record(live: Live) -> Live:
    result = deepcopy(live)
    del result["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]
    return result


def read(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource whose status shows its present generation."""
    generation = resource["metadata"].get("generation", 0)
    return {**resource, "status": {"observedGeneration": generation}}


def test_workload_without_a_record_gets_one_and_keeps_its_template() -> None:
    resource = read(BASES["managed"])
    live = without_record(created(resource, "older"))
    newer = workload(resource, "newer")
    to_apply = manifest_to_apply(newer, live)
    assert version_of(to_apply.body) == "older"
    assert not is_kept(newer, live), "it counts from its first record on"
    recorded = applied(live, to_apply)
    assert recorded["spec"] == live["spec"]
    assert is_kept(newer, recorded)
    assert matches(manifest_to_apply(newer, recorded), recorded)


def test_workload_without_a_record_that_is_rendered_as_before_gets_its_rendered_template() -> None:
    resource = read(BASES["managed"])
    live = without_record(created(resource, "same"))
    to_apply = manifest_to_apply(workload(resource, "same"), live)
    assert to_apply.body["spec"]["template"] == workload(resource, "same").template
    assert not is_kept(workload(resource, "same"), applied(live, to_apply))


@pytest.mark.parametrize("kind", ["cluster", "pool"])
def test_workload_without_a_record_changes_with_resources_that_a_user_has_changed(
    kind: str,
) -> None:
    resource, pool = read(BASES["managed"]), read(pool_resource("a"))
    live = without_record(created(resource, "older", pool=pool))
    resource, pool = deepcopy(resource), deepcopy(pool)
    metadata = (resource if kind == "cluster" else pool)["metadata"]
    metadata["generation"] = metadata.get("generation", 0) + 1
    assert (
        version_of(manifest_to_apply(workload(resource, "newer", pool=pool), live).body) == "newer"
    )


def test_request_that_exists_before_the_record_is_answered_by_it() -> None:
    resource = read(BASES["managed"])
    live = without_record(created(resource, "older"))
    asked = deepcopy(resource)
    asked["metadata"]["annotations"] = {UPDATE_PODS_ANNOTATION: "before"}
    recorded = applied(live, manifest_to_apply(workload(asked, "newer"), live))
    assert version_of(manifest_to_apply(workload(asked, "newer"), recorded).body) == "older"
    asked["metadata"]["annotations"] = {UPDATE_PODS_ANNOTATION: "now"}
    assert version_of(manifest_to_apply(workload(asked, "newer"), recorded).body) == "newer"


def test_object_that_no_operator_has_applied_gets_the_rendered_template() -> None:
    resource = read(BASES["managed"])
    live = without_record(created(resource, "a person"))
    del live["metadata"]["annotations"][MANIFEST_ANNOTATION]
    assert version_of(manifest_to_apply(workload(resource, "newer"), live).body) == "newer"
