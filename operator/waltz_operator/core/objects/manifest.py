"""A manifest: the desired state of one object, and the comparison with the live object. Pure.

The API server adds defaults, and other controllers add fields. So a live object *matches* if it has
every field of the manifest with the same value; it may have more fields. This comparison alone
would not find a field that a newer operator omits. So an annotation holds the digest of the
manifest: if a field is omitted, the digest changes and the live object no longer matches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from waltz_operator.core.names import (
    CLUSTER_LABEL,
    MANAGER,
    MANAGER_LABEL,
    MANIFEST_ANNOTATION,
    POD_TEMPLATE_ANNOTATION,
)
from waltz_operator.core.resources import API_VERSION, StoragePool, WaltzCluster

API_VERSIONS = {
    "Certificate": "cert-manager.io/v1",
    "ConfigMap": "v1",
    "Deployment": "apps/v1",
    "Event": "v1",
    "Lease": "coordination.k8s.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PersistentVolumeClaim": "v1",
    "Pod": "v1",
    "PodDisruptionBudget": "policy/v1",
    "Secret": "v1",
    "Service": "v1",
    "ServiceAccount": "v1",
    "StatefulSet": "apps/v1",
    "StoragePool": API_VERSION,
    "WaltzCluster": API_VERSION,
}
"""The API version of each kind."""

_QUANTITY_FIELDS = ("requests", "limits")
"""The fields of objects that contain quantities, such as ``500m``."""

_SUFFIXES = {
    "": Decimal(1),
    **{suffix: Decimal("0.001") ** power for power, suffix in enumerate("mun", start=1)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
"""The factor of each suffix of a quantity: ``m`` is 0.001, ``k`` is 1000, ``Ki`` is 1024.

A resource of the operator has no ``u``, ``n``, ``E`` and ``Ei``, but the API server writes 0.5m as
500u, and 1024Pi as 1Ei.
"""

_EMPTY: tuple[Any, ...] = ({}, [], "")
"""The values of fields that the API server may omit."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """The kind and name of an object in the cluster's namespace."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The desired state of one object.

    ``body`` is the manifest as the API server reads it, and must not be changed.
    """

    key: ObjectKey
    body: Mapping[str, Any]

    def __hash__(self) -> int:
        # The body is a dictionary, which has no hash.
        return hash((self.key, digest(self.body)))

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return str(self.body["metadata"]["namespace"])


def manifest(
    owner: WaltzCluster | StoragePool,
    kind: str,
    name: str,
    labels: Mapping[str, str],
    content: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a manifest with its digest and an owner reference to ``owner``.

    ``content`` has the fields beside the metadata, such as ``spec``. ``annotations`` are those of
    the object, besides that of the digest. Because of the owner reference, Kubernetes deletes the
    object after its owner if the operator has not deleted it.
    """
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": owner.metadata.namespace,
        "labels": dict(labels),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": type(owner).__name__,
                "name": owner.metadata.name,
                "uid": owner.metadata.uid,
                "controller": True,
            }
        ],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    body = {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": metadata, **content}
    # The digest is calculated before the annotation is set, so it does not depend on itself.
    # `body` contains the same dictionary `metadata`, and so gets the annotation, too.
    metadata["annotations"] = {**(annotations or {}), MANIFEST_ANNOTATION: digest(body)}
    return Manifest(ObjectKey(kind, name), body)


def with_template(rendered: Manifest, template: Mapping[str, Any], record: str) -> Manifest:
    """Return the manifest of a workload with another pod template.

    ``record`` is the value of the annotation about the template (`core.pod_templates`). The digest
    is that of the body without annotations, as `manifest` computes it for a workload. So the digest
    of a live workload can be compared with that of a manifest that has no record yet.
    """
    metadata = dict(rendered.body["metadata"])
    annotations = dict(metadata.pop("annotations"))
    body = {
        **rendered.body,
        "metadata": metadata,
        "spec": {**rendered.body["spec"], "template": template},
    }
    annotations[MANIFEST_ANNOTATION] = digest(body)
    annotations[POD_TEMPLATE_ANNOTATION] = record
    metadata["annotations"] = annotations
    return Manifest(rendered.key, body)


def digest(body: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's body."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def is_ours(live: Mapping[str, Any], cluster: str) -> bool:
    """Whether the labels of an object say that the operator created it for ``cluster``."""
    live_labels = live["metadata"].get("labels") or {}
    return live_labels.get(MANAGER_LABEL) == MANAGER and live_labels.get(CLUSTER_LABEL) == cluster


def matches(wanted: Manifest, live: Mapping[str, Any]) -> bool:
    """Whether a live object has every field of its manifest, with the same value.

    A quantity may be written in another way, and an empty field may be absent.
    """
    return _contains(live, wanted.body)


def _contains(live: Any, wanted: Any, *, amounts: bool = False) -> bool:
    """Whether ``live`` has every field of ``wanted``, with the same value.

    With ``amounts``, the values are quantities: different texts of one amount are the same value.
    """
    if not amounts and live == wanted:
        return True  # The lines below find this, too, but slower. Most parts are equal.
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            _has_field(live, key, value, amounts=amounts) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(
                _contains(live_item, item, amounts=amounts)
                for live_item, item in zip(live, wanted, strict=True)
            )
        )
    if amounts:
        return amount(str(live)) == amount(str(wanted))
    return False


def _has_field(live: Mapping[str, Any], key: str, wanted: Any, *, amounts: bool) -> bool:
    """Whether ``live`` has the value ``wanted`` at ``key``; an empty value may be absent."""
    if key not in live:
        return wanted in _EMPTY
    return _contains(live[key], wanted, amounts=amounts or key in _QUANTITY_FIELDS)


def amount(text: str) -> Decimal | str:
    """Return the value of a quantity such as ``500m``, or ``text`` itself if it is no quantity."""
    number = text.rstrip("numkKMGTPEi")
    try:
        return Decimal(number) * _SUFFIXES[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return text
