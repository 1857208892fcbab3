"""Assign slots to the pods of servers, so that a Service can lead to one server. Pure.

Servers are pods of a Deployment: their names and addresses change with every update. A *slot* is a
number that the operator gives to a pod by a label, and the Service of the slot selects the pod by
this label. There is one slot more than servers, because an update starts a new server before it
stops an old one.

A pod keeps its slot until the pod has ended. There is one exception: if fewer servers are wanted,
the highest slots no longer exist, and pods lose them at once. A slot is given to another pod only
when no pod that runs or stops has it: a Service that selects two pods would lead clients to the
wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from waltz_operator.core.names import SLOT_LABEL
from waltz_operator.core.objects.server import MAX_SURGE
from waltz_operator.core.observed import LiveObject


@dataclass(frozen=True, slots=True)
class ServerPod:
    """A pod of a server.

    ``created`` is the time of its creation in UTC, as a text. ``label`` is the value of its label
    `SLOT_LABEL`, None without this label. ``stops`` is true if the pod is being deleted.
    ``has_ended`` is true if its processes have ended for good, although the pod still exists.
    """

    created: str
    name: str
    label: str | None = None
    stops: bool = False
    has_ended: bool = False


def num_slots(replicas: int) -> int:
    """Return the number of slots of a cluster with ``replicas`` servers."""
    return replicas + MAX_SURGE


def server_pod(live: LiveObject) -> ServerPod:
    """Return the `ServerPod` of a pod as the API server returns it."""
    metadata, status = live["metadata"], live.get("status") or {}
    return ServerPod(
        metadata.get("creationTimestamp") or "",
        metadata["name"],
        (metadata.get("labels") or {}).get(SLOT_LABEL),
        stops=bool(metadata.get("deletionTimestamp")),
        has_ended=status.get("phase") in ("Succeeded", "Failed"),
    )


def assign_slots(pods: Iterable[ServerPod], count: int) -> Mapping[str, int | None]:
    """Return the slot of each pod by its name, None for a pod without one.

    The slots are from 0 to ``count`` - 1, and no two pods have the same slot. These rules decide
    (tests/unit/operator/test_operator_slots.py):

    * A pod that has ended has no slot.
    * Any other pod whose label is a slot keeps this slot, unless an older pod has it.
    * The remaining pods that do not stop get the lowest free slots, in the order of their creation.
      A pod gets no slot if none is free.
    """
    slots: dict[str, int | None] = {}
    free = set(range(count))
    in_order = sorted(pods, key=lambda pod: (pod.created, pod.name))
    for pod in in_order:
        slot = None if pod.has_ended else _slot_of(pod.label, count)
        slots[pod.name] = slot if slot in free else None
        free -= {slot}
    for pod in in_order:
        may_get_slot = not (pod.stops or pod.has_ended)
        if slots[pod.name] is None and may_get_slot and free:
            slot = min(free)
            slots[pod.name] = slot
            free.remove(slot)
    return slots


def slot_changes(pods: Iterable[ServerPod], count: int) -> Mapping[str, int | None]:
    """Return the pods whose label must change, each with its slot; None removes the label."""
    listed = tuple(pods)
    slots = assign_slots(listed, count)
    return {pod.name: slots[pod.name] for pod in listed if pod.label != _label_of(slots[pod.name])}


def _slot_of(label: str | None, count: int) -> int | None:
    """Return the slot that a label names; None without a label, or if the label names no slot.

    A label that names no slot was edited by hand, or is one of a slot that does not exist any more.
    """
    slot_of_label = {str(slot): slot for slot in range(count)}
    return None if label is None else slot_of_label.get(label)


def _label_of(slot: int | None) -> str | None:
    """Return the label that a pod with this slot must have, None if it must have no label."""
    return None if slot is None else str(slot)
