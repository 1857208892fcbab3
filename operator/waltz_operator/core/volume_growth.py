"""The volumes that are smaller than their pool specifies, and how far their growth is. Pure.

A volume grows after the request of its claim was raised. Kubernetes first enlarges the volume (the
condition Resizing of the claim), then the file system, on the node (FileSystemResizePending). Last,
it raises the capacity in the claim's status. Most drivers resize the file system of a volume that
is in use. The other drivers resize it when the pod starts again. Nothing here depends on what the
operator did before: each growth is read from the claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from typing import Any

from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.foreign_claims import is_foreign, label_command
from waltz_operator.core.names import storage_set
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.objects.manifest import amount
from waltz_operator.core.observed import LiveObject, ObservedCluster
from waltz_operator.core.resources import StoragePool, VolumeSizes

RESTART_SECONDS = 300.0
"""How long a file system may wait for its resize while its pod runs, before the pod is restarted.

A driver that resizes file systems in use needs a minute at most.
"""

UNCHECKED = "the API server could not check it"
"""The reason of a growth whose dry run has failed, so that it is not known if it is refused."""

_FAILURES = ("ControllerResizeError", "NodeResizeError")
"""The conditions of a claim whose resize fails; Kubernetes retries it."""


class GrowthState(Enum):
    """How far the growth of a volume is."""

    FOREIGN = auto()
    """The claim requests too little and lacks the cluster's labels, so it is not changed."""

    NOT_BOUND = auto()
    """The claim requests too little. Its request can be raised only after it has a volume."""

    NOT_REQUESTED = auto()
    """The claim does not request the size yet."""

    REQUESTED = auto()
    """The claim requests the size, and Kubernetes has not begun to resize the volume."""

    RESIZING = auto()
    """Kubernetes resizes the volume."""

    FILE_SYSTEM_PENDING = auto()
    """The volume has its size, its file system does not."""

    FAILING = auto()
    """The resize has failed, and Kubernetes retries it."""


_TEXTS = {
    GrowthState.FOREIGN: (
        "is not enlarged, because its claim lacks labels of this cluster; if it belongs to the "
        "cluster, run"
    ),
    GrowthState.NOT_BOUND: "is enlarged as soon as it is bound",
    GrowthState.NOT_REQUESTED: "the larger size is not requested yet",
    GrowthState.REQUESTED: "waits for its resize to begin",
    GrowthState.RESIZING: "is being resized",
    GrowthState.FILE_SYSTEM_PENDING: "waits for the file system to be resized",
    GrowthState.FAILING: "the resize fails, Kubernetes retries it",
}


@dataclass(frozen=True, slots=True)
class VolumeGrowth:
    """A volume that is smaller than its pool specifies.

    ``claim`` is the name of its claim and ``version`` the claim's version as observed. ``kind`` is
    ``data``, ``meta`` or ``wal``. Three sizes are quantities, as Kubernetes writes them, such as
    ``10Gi``. ``wanted`` is the size that the pool specifies, ``requested`` the size that the claim
    requests. ``size`` is the present size of the volume; while there is no volume, it is equal to
    ``requested``. ``message`` is that of Kubernetes if the resize fails, the command
    that labels the claim if it is FOREIGN, otherwise empty.
    ``pending_since`` is when the file system began to wait for its resize, in UTC; it is None if
    the file system does not wait.
    """

    pool: str
    kind: str
    pod: str
    claim: str
    version: str
    size: str
    requested: str
    wanted: str
    state: GrowthState
    message: str = ""
    pending_since: str | None = None

    def __str__(self) -> str:
        reason = f": {self.message}" if self.message else ""
        return f"volume {self.claim}: {self.size} of {self.wanted}, {_TEXTS[self.state]}{reason}"


def is_smaller(size: str, other: str) -> bool:
    """Whether a quantity is less than another one; False if one of the two is malformed."""
    first, second = amount(size), amount(other)
    return isinstance(first, Decimal) and isinstance(second, Decimal) and first < second


def volume_growths(desired: DesiredCluster, observed: ObservedCluster) -> tuple[VolumeGrowth, ...]:
    """Return the volumes that are smaller than specified, of the pools that the spec names.

    Claims that no pod of the StatefulSet uses are left out, because only the node of a pod resizes
    a file system. So are claims that are being deleted.
    """
    return tuple(
        growth
        for pool in desired.wanted_pools
        for kind, pod, claim in _claims(observed, pool)
        if (growth := _growth(pool, kind, pod, claim)) is not None
    )


def growths_to_ask_about(growths: tuple[VolumeGrowth, ...]) -> tuple[VolumeGrowth, ...]:
    """Return the growths that are to be tried in a dry run, to see if the API server refuses them.

    One volume of each kind of each pool is enough: all volumes of this kind have the same
    StorageClass. A quota may still refuse a later one after the first ones have grown
    (`refusal_text`).
    """
    first: dict[tuple[str, str], VolumeGrowth] = {}
    for growth in growths:
        if growth.state is GrowthState.NOT_REQUESTED:
            first.setdefault((growth.pool, growth.kind), growth)
    return tuple(first.values())


def size_request(size: str) -> dict[str, Any]:
    """Return the change by which a claim requests ``size``, as a part of the claim."""
    return {"spec": {"resources": {"requests": {"storage": size}}}}


def refused_kinds(
    growths: tuple[VolumeGrowth, ...], observed: ObservedCluster, pool: str
) -> dict[str, tuple[VolumeGrowth, str]]:
    """Return the kinds of volumes of ``pool`` that cannot grow, each with a volume and the reason.

    The reason is why the API server refuses to enlarge this volume.
    """
    refused: dict[str, tuple[VolumeGrowth, str]] = {}
    for growth in growths:
        reason = observed.growth_refusals.get(growth.claim)
        if growth.pool == pool and reason is not None:
            refused.setdefault(growth.kind, (growth, reason))
    return refused


def refusal_text(growth: VolumeGrowth, reason: str, sizes: VolumeSizes) -> str:
    """Return the sentence about volumes that cannot grow, with the way to larger ones.

    ``sizes`` are the largest sizes that claims of the pool request (`requested_sizes`). Claims grow
    one after the other, so a quota can be exhausted after some of them have grown. The API server
    then refuses to set the size back.
    """
    if reason == UNCHECKED:
        return (
            f"volume {growth.claim}: {growth.size} of {growth.wanted}, is enlarged as soon as the "
            "API server can check it: the dry run failed, retrying; the operator's log says why"
        )
    pool = growth.pool
    largest: str = getattr(sizes, growth.kind)
    if is_smaller(growth.requested, largest):
        changed = (
            f"other claims of {pool} request {largest} already, so its size cannot be set back. "
            "Remove the cause, for example raise the quota, and the growth continues"
        )
        way_back = ""
    else:
        changed = "nothing was changed"
        way_back = (
            f". To keep the size, set volumes.{growth.kind}.size of {pool} back to "
            f"{growth.requested}"
        )
    return (
        f"volume {growth.claim}: {growth.size} of {growth.wanted}, cannot grow: {reason}; "
        f"{changed}. For larger volumes, replace the copy: add a StoragePool with "
        f"{growth.wanted} to spec.pools, wait until it has its copy, then remove {pool} (the "
        f"number of copies goes up by one and back, as 3, 4, 3){way_back}"
    )


def requested_sizes(
    desired: DesiredCluster, observed: ObservedCluster, pool: StoragePool
) -> VolumeSizes:
    """Return the largest size that an own claim of the pool's pods requests, by kind of volume."""
    sizes: dict[str, str] = {}
    for kind, _, claim in _claims(observed, pool):
        request = _request(claim)
        if not is_ours(claim, desired.name):
            continue
        if kind not in sizes or is_smaller(sizes[kind], request):
            sizes[kind] = request
    return VolumeSizes(**sizes)


def pods_to_restart(desired: DesiredCluster, observed: ObservedCluster) -> frozenset[str]:
    """Return the pods that must start again, so that a file system of theirs is resized.

    They are the pods whose file system has waited at least `RESTART_SECONDS`. The observer computes
    the waiting time from ``pending_since``, because this module has no clock.

    A pod that was created after the file system began to wait is not restarted: its start has not
    resized the file system, so another start would not do it, either.
    """
    return frozenset(
        growth.pod
        for growth in volume_growths(desired, observed)
        if observed.file_system_seconds.get(growth.claim, 0.0) >= RESTART_SECONDS
        and _is_older(observed, growth.pod, growth.pending_since)
    )


def _is_older(observed: ObservedCluster, pod: str, time: str | None) -> bool:
    """Whether a pod was created before ``time``; False if one of the two is unknown."""
    live = observed.objects.get(ObjectKey("Pod", pod))
    created = None if live is None else live["metadata"].get("creationTimestamp")
    # The API server writes all times in one format, in UTC: their texts sort like the times.
    return created is not None and time is not None and created < time


def _claims(observed: ObservedCluster, pool: StoragePool) -> Iterator[tuple[str, str, LiveObject]]:
    """Yield the claims of a pool that have a size, each with the kind of its volume and its pod."""
    name = storage_set(pool.metadata.name)
    live = observed.objects.get(ObjectKey("StatefulSet", name))
    count = pool.spec.storages if live is None else live["spec"].get("replicas", 0)
    for kind in pool.spec.volumes.by_kind:
        for ordinal in range(count):
            pod = f"{name}-{ordinal}"
            claim = observed.objects.get(ObjectKey("PersistentVolumeClaim", f"{kind}-{pod}"))
            if (
                claim is not None
                and not claim["metadata"].get("deletionTimestamp")
                and _request(claim)
            ):
                yield kind, pod, claim


def _growth(pool: StoragePool, kind: str, pod: str, claim: LiveObject) -> VolumeGrowth | None:
    """Return the growth of one volume, None if it has its size."""
    wanted, request = pool.spec.volumes.by_kind[kind].size, _request(claim)
    status, metadata = claim.get("status") or {}, claim["metadata"]
    capacity = (status.get("capacity") or {}).get("storage", "")
    is_bound = status.get("phase") == "Bound"
    is_requested = not is_smaller(request, wanted)
    # If there is a volume, its capacity decides, because a volume may be larger than its claim
    # requests. Without a volume the request decides: a claim that requests enough gets a volume of
    # that size when its pod starts.
    known_size = capacity if is_bound and capacity else request
    if not is_smaller(known_size, wanted):
        return None
    conditions = {
        each["type"]: each for each in status.get("conditions") or () if each["status"] == "True"
    }
    failure = next((conditions[each] for each in _FAILURES if each in conditions), None)
    # While the claim does not request the specified size yet, a failure on the claim is about an
    # earlier request, and says nothing about this growth.
    message = failure.get("message", "") if failure is not None and is_requested else ""
    state = _state(is_bound, is_requested, conditions)
    if is_foreign(claim, pool) and not is_requested:
        state, message = GrowthState.FOREIGN, label_command(claim, pool)
    pending = conditions.get("FileSystemResizePending")
    return VolumeGrowth(
        pool.metadata.name,
        kind,
        pod,
        metadata["name"],
        metadata.get("resourceVersion", ""),
        # For users. It is ``known_size``, unless an unbound claim still reports a capacity.
        size=capacity or request,
        requested=request,
        wanted=wanted,
        state=state,
        message=message,
        pending_since=None if pending is None else pending.get("lastTransitionTime"),
    )


def _state(is_bound: bool, is_requested: bool, conditions: Mapping[str, LiveObject]) -> GrowthState:
    """Return the state of a growth; ``conditions`` are those of the claim that are true."""
    if not is_bound:
        return GrowthState.NOT_BOUND
    if not is_requested:
        return GrowthState.NOT_REQUESTED
    if any(kind in conditions for kind in _FAILURES):
        return GrowthState.FAILING
    if "FileSystemResizePending" in conditions:
        return GrowthState.FILE_SYSTEM_PENDING
    if "Resizing" in conditions:
        return GrowthState.RESIZING
    return GrowthState.REQUESTED


def _request(claim: LiveObject) -> str:
    """Return the size that a claim requests, an empty text if it names none."""
    resources = (claim.get("spec") or {}).get("resources") or {}
    return str((resources.get("requests") or {}).get("storage", ""))
