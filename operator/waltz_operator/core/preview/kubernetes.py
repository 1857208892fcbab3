"""Simulate what Kubernetes does with the objects of a cluster: applies, pods and claims. Pure.

A preview (`core.preview`) uses this to find out what the planner would do next.

Every pod that is created starts, and is ready at once. Pods that existed before stay as they were
observed. A StatefulSet creates the claims of its pods and never deletes a claim. A volume grows at
once. A Deployment has no simulated pods: its status counts all of its replicas as ready and
current.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from waltz_operator.core.names import MANIFEST_ANNOTATION, OUTSIDE_LABEL, SLOT_LABEL
from waltz_operator.core.objects import Manifest, ObjectKey, matches
from waltz_operator.core.objects.manifest import digest
from waltz_operator.core.observed import LiveObject
from waltz_operator.core.pod_templates import is_same_template, recorded_template, without_null
from waltz_operator.core.pods_of_sets import REVISION_LABEL, is_current, is_ready

Objects = Mapping[ObjectKey, LiveObject]
"""The objects of a cluster in Kubernetes, by kind and name."""

_NODE_PORT = 30_000
"""The port of the nodes for each simulated Service; Kubernetes chooses the real port."""

_NEW_HOST = "new-load-balancer"
"""The name of each simulated load balancer."""

_NEW = "new-"
"""The beginning of the uid of a simulated object; Kubernetes gives no such uid."""


def with_applied(objects: Objects, wanted: Manifest) -> dict[ObjectKey, LiveObject]:
    """Return the objects after a server-side apply of ``wanted``.

    The pods of a workload are not changed yet: see `with_pods`.
    """
    key = wanted.key
    live = objects.get(key)
    if live is None:
        metadata = {**wanted.body["metadata"], "uid": f"{_NEW}{key.kind}-{key.name}"}
        revision = _revision_of_pods(objects, key.name) or digest(wanted.body)
        status = {"updateRevision": revision} if key.kind == "StatefulSet" else {}
        return {**objects, key: {**wanted.body, "metadata": metadata, "status": status}}
    merged = _merged(live, wanted.body)
    if key.kind == "StatefulSet" and _changes_template(live, wanted):
        merged["status"] = {**(live.get("status") or {}), "updateRevision": digest(wanted.body)}
    return {**objects, key: merged}


def with_pods(objects: Objects, names: Iterable[str]) -> dict[ObjectKey, LiveObject]:
    """Return the objects after Kubernetes has started and ended pods for some workloads.

    ``names`` are the names of StatefulSets and Deployments.
    """
    result = dict(objects)
    for name in names:
        if (live := result.get(ObjectKey("Deployment", name))) is not None:
            count = live["spec"].get("replicas", 0)
            result[ObjectKey("Deployment", name)] = _with_counts(live, count, count)
        if (live := result.get(ObjectKey("StatefulSet", name))) is not None:
            _run_set(result, name, live)
    return result


def with_claim_size(objects: Objects, claim: str, size: str) -> dict[ObjectKey, LiveObject]:
    """Return the objects after a volume has grown to ``size``, which its claim requests."""
    key = ObjectKey("PersistentVolumeClaim", claim)
    grown = {
        "spec": {"resources": {"requests": {"storage": size}}},
        "status": {"phase": "Bound", "capacity": {"storage": size}, "conditions": []},
    }
    return {**objects, key: _merged(objects[key], grown)}


def with_slot(objects: Objects, pod: str, slot: int | None) -> dict[ObjectKey, LiveObject]:
    """Return the objects after the pod of a server has got a slot; None takes it away."""
    key = ObjectKey("Pod", pod)
    metadata = objects[key]["metadata"]
    labels = {name: each for name, each in metadata["labels"].items() if name != SLOT_LABEL}
    if slot is not None:
        labels[SLOT_LABEL] = str(slot)
    return {**objects, key: {**objects[key], "metadata": {**metadata, "labels": labels}}}


def with_outside_addresses(objects: Objects) -> dict[ObjectKey, LiveObject]:
    """Return the objects after each Service for access from outside has an address."""
    return {
        key: _with_address(live)
        if OUTSIDE_LABEL in (live["metadata"].get("labels") or {})
        else live
        for key, live in objects.items()
    }


def _with_address(live: LiveObject) -> LiveObject:
    """Return a Service with an address; one that has an address keeps it."""
    spec, status = live["spec"], dict(live.get("status") or {})
    ports = [{"nodePort": _NODE_PORT, **port} for port in spec["ports"]]
    if spec["type"] == "LoadBalancer" and not (status.get("loadBalancer") or {}).get("ingress"):
        status["loadBalancer"] = {"ingress": [{"hostname": _NEW_HOST}]}
    return {**live, "spec": {**spec, "ports": ports}, "status": status}


def without_set(objects: Objects, name: str) -> dict[ObjectKey, LiveObject]:
    """Return the objects after the deletion of a StatefulSet: its pods end, its claims stay."""
    gone = {ObjectKey("StatefulSet", name), *(key for key, _ in _pods(objects, name))}
    return {key: live for key, live in objects.items() if key not in gone}


def is_new(live: LiveObject) -> bool:
    """Return whether the simulation has created ``live``; otherwise it was observed."""
    return str(live["metadata"].get("uid", "")).startswith(_NEW)


def set_of_pod(pod: str) -> str:
    """Return the name of the StatefulSet of a pod."""
    return pod.rpartition("-")[0]


def _run_set(objects: dict[ObjectKey, LiveObject], name: str, live: LiveObject) -> None:
    """Create and remove pods of a StatefulSet in ``objects``, and count them in its status."""
    count = live["spec"].get("replicas", 0)
    revision = (live.get("status") or {}).get("updateRevision")
    for key, ordinal in list(_pods(objects, name)):
        if ordinal >= count:
            del objects[key]
    for ordinal in range(count):
        pod = ObjectKey("Pod", f"{name}-{ordinal}")
        if pod not in objects:
            objects[pod] = _started_pod(live, pod.name, revision)
            objects |= _missing_claims(objects, live, pod.name)
    pods = [objects[key] for key, _ in _pods(objects, name)]
    current = sum(is_current(pod, revision) for pod in pods)
    objects[ObjectKey("StatefulSet", name)] = _with_counts(live, sum(map(is_ready, pods)), current)


def _pods(objects: Objects, name: str) -> Iterator[tuple[ObjectKey, int]]:
    """Yield the pods of a StatefulSet, with their ordinals."""
    for key in objects:
        ordinal = key.name.rpartition("-")[2]
        if key.kind == "Pod" and set_of_pod(key.name) == name and ordinal.isdecimal():
            yield key, int(ordinal)


def _revision_of_pods(objects: Objects, name: str) -> str | None:
    """Return the revision of the pods that a StatefulSet left behind, None without such pods.

    To change the claim templates of a StatefulSet, the operator deletes the set without its pods,
    and creates it again. The operator does so only while all pods are current. So the pods have the
    template of the new set, and its revision.
    """
    labels = (objects[pod]["metadata"].get("labels") or {} for pod, _ in _pods(objects, name))
    return next((each[REVISION_LABEL] for each in labels if REVISION_LABEL in each), None)


def _started_pod(live: LiveObject, name: str, revision: str | None) -> dict[str, Any]:
    """Return a ready pod of the StatefulSet ``live``."""
    metadata = live["spec"]["template"]["metadata"]
    labels = dict(metadata.get("labels") or {})
    if revision is not None:
        labels[REVISION_LABEL] = revision
    owner = {"kind": "StatefulSet", "name": live["metadata"]["name"]}
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "uid": f"{_NEW}Pod-{name}-{revision}",
            "ownerReferences": [owner],
        },
        "spec": {},
        "status": {
            "containerStatuses": [{"started": True, "state": {"running": {}}}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _missing_claims(objects: Objects, live: LiveObject, pod: str) -> dict[ObjectKey, LiveObject]:
    """Return the claims that a StatefulSet creates for a new pod, because they do not exist yet."""
    claims: dict[ObjectKey, LiveObject] = {}
    for template in live["spec"].get("volumeClaimTemplates") or ():
        key = ObjectKey("PersistentVolumeClaim", f"{template['metadata']['name']}-{pod}")
        if key not in objects:
            metadata = {**template["metadata"], "name": key.name, "uid": f"{_NEW}{key.name}"}
            capacity = template["spec"]["resources"]["requests"]
            status = {"phase": "Bound", "capacity": capacity}
            claims[key] = {"metadata": metadata, "spec": template["spec"], "status": status}
    return claims


def _with_counts(live: LiveObject, ready: int, current: int) -> dict[str, Any]:
    """Return a workload with the status that its controller writes, which counts the pods.

    The controller has seen the latest spec (``observedGeneration``). ``ready`` pods are ready, and
    ``current`` pods have the current template.
    """
    status = {
        **(live.get("status") or {}),
        "readyReplicas": ready,
        "updatedReplicas": current,
        "observedGeneration": live["metadata"].get("generation", 0),
    }
    return {**live, "status": status}


def _changes_template(live: LiveObject, wanted: Manifest) -> bool:
    """Return whether an apply changes the template of the pods: existing pods are then outdated.

    An apply also removes the fields that only the earlier manifest had. `matches` does not find
    them, because it compares only the fields that ``wanted`` has.
    """
    spec = wanted.body["spec"]
    if not matches(Manifest(wanted.key, {"spec": {"template": spec["template"]}}), live):
        # A wanted field differs.
        return True
    if (recorded := recorded_template(live)) is not None:
        # An annotation of the workload records exactly the template that was applied last.
        return not is_same_template(recorded, spec["template"])
    if is_same_template(without_null(live["spec"]["template"]), spec["template"]):
        # The live template has no field beside the wanted ones, so the apply removes none.
        return False
    # The live template has every wanted field, and others, which may be defaults of Kubernetes. If
    # the live object has every field of the wanted spec, although its digest is that of another
    # manifest, the apply removes a field. It is not known which field. Assume one of the template,
    # so that the preview shows a restart of the pods rather than hides it.
    digest_before = (live["metadata"].get("annotations") or {}).get(MANIFEST_ANNOTATION)
    digest_after = wanted.body["metadata"]["annotations"][MANIFEST_ANNOTATION]
    has_other_digest = digest_before not in (None, digest_after)
    return has_other_digest and matches(Manifest(wanted.key, {"spec": spec}), live)


def _merged(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``live`` with the fields of ``wanted``; a list is replaced as a whole."""
    result = dict(live)
    for key, value in wanted.items():
        old = result.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            result[key] = _merged(old, value)
        else:
            result[key] = value
    return result
