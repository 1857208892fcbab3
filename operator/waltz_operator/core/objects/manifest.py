"""A manifest: one object as the operator wants it, and whether what is there is that. Pure.

The API server adds defaults and others add fields of their own, so what is there *matches* if it
has everything that the manifest says. A field that an earlier version of the operator set, and this
one does not, shows in the digest that every manifest bears.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from waltz_operator.core.names import CLUSTER_LABEL, MANAGER, MANAGER_LABEL, MANIFEST_ANNOTATION
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
"""The version of the API in which each kind is spoken of."""

_AMOUNTS = ("requests", "limits")
_SUFFIXES = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTP", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTP", start=1)},
}


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Which object of the cluster's namespace."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object as it shall be. ``body`` is to be treated as read-only."""

    key: ObjectKey
    body: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash((self.key, digest(self.body)))

    @property
    def namespace(self) -> str:
        """Where it is."""
        return str(self.body["metadata"]["namespace"])


def manifest(
    owner: WaltzCluster | StoragePool,
    kind: str,
    name: str,
    labels: Mapping[str, str],
    content: Mapping[str, Any],
) -> Manifest:
    """Return an object that belongs to ``owner``, with its digest.

    Kubernetes deletes it with its owner, if the operator could not.
    """
    metadata = {
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
    body = {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": metadata, **content}
    metadata["annotations"] = {MANIFEST_ANNOTATION: digest(body)}
    return Manifest(ObjectKey(kind, name), body)


def digest(body: Mapping[str, Any]) -> str:
    """Return what differs when an object shall be different."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def is_ours(live: Mapping[str, Any], cluster: str) -> bool:
    """Whether an object was made by the operator for this cluster."""
    found = live["metadata"].get("labels") or {}
    return found.get(MANAGER_LABEL) == MANAGER and found.get(CLUSTER_LABEL) == cluster


def matches(wanted: Manifest, live: Mapping[str, Any]) -> bool:
    """Whether an object that is there has everything that it shall have."""
    return _contains(live, wanted.body)


def _contains(live: Any, wanted: Any, *, amounts: bool = False) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and _contains(live[key], each, amounts=amounts or key in _AMOUNTS)
            # An empty part may be left out by the API server.
            for key, each in wanted.items()
            if key in live or each not in ({}, [], "")
        )
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(_contains(a, b, amounts=amounts) for a, b in zip(live, wanted, strict=True))
        )
    if amounts:
        return amount(str(live)) == amount(str(wanted))
    return bool(live == wanted)


def amount(text: str) -> Decimal | str:
    """Return how much a quantity is (``500m``, ``2Gi``); the text itself if it is none."""
    number = text.rstrip("kKmMGTPi")
    try:
        return Decimal(number) * _SUFFIXES[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return text
