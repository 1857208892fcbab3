"""The volume claims that pods of a pool use and that do not have the cluster's labels. Pure.

The pod of a StatefulSet uses any claim of the right name, and Kubernetes adds no labels to it. An
example is a claim that a user has restored from a VolumeSnapshot. The operator neither deletes nor
enlarges a claim without its labels, because the claim may belong to another owner. A user who wants
that gives it the labels.
"""

from __future__ import annotations

from waltz_operator.core.names import CLUSTER_LABEL, Component, labels
from waltz_operator.core.objects import is_ours
from waltz_operator.core.observed import LiveObject
from waltz_operator.core.resources import StoragePool


def is_foreign(claim: LiveObject, pool: StoragePool) -> bool:
    """Whether a claim lacks the labels of the cluster that has claimed ``pool``."""
    return not is_ours(claim, pool.metadata.labels[CLUSTER_LABEL])


def label_command(claim: LiveObject, pool: StoragePool) -> str:
    """Return the command that gives a claim the labels of the pool's other claims."""
    name, existing = claim["metadata"]["name"], claim["metadata"].get("labels") or {}
    wanted = labels(pool.metadata.labels[CLUSTER_LABEL], Component.STORAGE, pool.metadata.name)
    missing = (f"{key}={wanted[key]}" for key in wanted if existing.get(key) != wanted[key])
    return (
        f"kubectl label persistentvolumeclaim {name} --namespace {pool.metadata.namespace} "
        f"--overwrite {' '.join(missing)}"
    )
