"""Plan the access of clients outside of the Kubernetes cluster: slots and addresses. Pure.

Each storage and each slot of servers has a Service (`outside_addresses`). A *slot* is a number that
one pod of a server has at a time (`core.slots`). This module creates, repairs and deletes the
Services, gives slots to the pods of servers, and writes the addresses of the Services into
ZooKeeper, where clients read them. These steps come last in a plan, and nothing waits for them: the
cluster is repaired also while they fail.

If the spec does not want the access, what exists of it is removed in this order: the addresses in
ZooKeeper, the Services, the labels of pods. In a cluster without this part of the spec, an
administrator may have written outside addresses. So the operator deletes addresses only while a
Service or a label shows that the operator has written them. While the addresses are not deleted,
for example because ZooKeeper does not answer, one Service and the labels stay as this sign. If
possible it is the Service of the last slot, because usually no server has this slot.

`core.adoption` defines adopted clusters, *foreign* processes, which the operator does not run, and
storages that run *elsewhere*: in another Kubernetes cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from waltz_operator.core import names
from waltz_operator.core.adoption import foreign_outside_addresses, storages_elsewhere
from waltz_operator.core.desired import DesiredCluster, own_metadata
from waltz_operator.core.names import POOL_LABEL, SLOT_LABEL
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterAbsent, ClusterPresent, LiveObject, ObservedCluster
from waltz_operator.core.outside_steps import (
    DeleteOutsideAddresses,
    SetSlot,
    WriteOutsideAddresses,
)
from waltz_operator.core.planning.outside_addresses import (
    listed,
    outside_addresses,
    own_services,
    pending_services,
    server_pods,
    slots_of_servers,
    wanted_services,
)
from waltz_operator.core.planning.workloads import plan_objects
from waltz_operator.core.slots import num_slots, server_pod, slot_changes
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, DeleteObject, Step, problem, wait


def plan_outside(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the next steps for the access from outside, and the reasons why others must wait."""
    if desired.cluster.spec.access.outside is None:
        return ClusterPlan(tuple(_removal_steps(desired, observed)))
    services = plan_objects(desired, observed, wanted_services(desired, observed))
    return (
        services
        + _plan_slots(desired, observed)
        + _plan_addresses(desired, observed)
        + _plan_unwanted(desired, observed)
    )


def plan_addresses_removal(
    desired: DesiredCluster, observed: ObservedCluster
) -> ClusterPlan | None:
    """Plan to delete the outside addresses of a deleted cluster; None if nothing is to be deleted.

    The addresses are deleted even if the znodes are kept, because they lead to Services that are
    deleted. They are deleted before the Services, because the Services show that the operator has
    written them. The addresses of an adopted cluster are kept, because some may be those of foreign
    processes.
    """
    present = own_metadata(desired, observed)
    if present is None or present.outside is None or desired.cluster.spec.adopt is not None:
        return None
    if not any(own_services(desired, observed)):
        return None
    return ClusterPlan((DeleteOutsideAddresses(),))


def _plan_slots(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the steps that give slots to pods, and a wait for each pod that can get none yet."""
    pods = [server_pod(pod) for pod in server_pods(desired, observed).values()]
    changes = slot_changes(pods, num_slots(desired.cluster.spec.servers.replicas))
    # A slot is taken from a pod before another pod gets it. So the removals come first.
    removals = [SetSlot(pod, None) for pod, slot in sorted(changes.items()) if slot is None]
    additions = [SetSlot(pod, slot) for pod, slot in sorted(changes.items()) if slot is not None]
    result = ClusterPlan((*removals, *additions))
    slots = slots_of_servers(desired, observed)
    for pod in pods:
        if slots[pod.name] is None and not (pod.stops or pod.has_ended):
            result += wait(
                f"clients outside cannot reach pod {pod.name} until an earlier server has stopped"
            )
    return result


def _plan_addresses(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the step that writes changed addresses, and a wait for Services without an address.

    The addresses of foreign storages and servers stay. Nothing is written before the operator has
    created a Service, and nothing while storages run elsewhere: in both cases the addresses in
    ZooKeeper may be those of an administrator or of another operator.
    """
    result, present = EMPTY_PLAN, own_metadata(desired, observed)
    addresses = outside_addresses(desired, observed)
    if present is not None and present.outside_problem:
        # Addresses that cannot be read are not replaced: a newer version may have written them.
        result += problem(present.outside_problem)
    elif present is not None and not storages_elsewhere(desired, observed, present.maps):
        foreign = foreign_outside_addresses(desired, observed, present)
        wanted = foreign | _addresses_of_unseen(desired, present) | addresses
        if any(own_services(desired, observed)) and wanted != (present.outside or {}):
            result += ClusterPlan((_write(wanted, present),))
    if pending := pending_services(desired, observed):
        result += wait(f"Services for clients outside have no address yet: {listed(pending)}")
    return result


def _plan_unwanted(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the deletion of Services that the spec no longer wants."""
    wanted = {manifest.key.name for manifest in wanted_services(desired, observed)}
    unseen = _unseen_pools(desired)
    return ClusterPlan(
        tuple(
            _delete(
                live
                for live in own_services(desired, observed)
                if live["metadata"]["name"] not in wanted
                and live["metadata"]["labels"].get(POOL_LABEL) not in unseen
            )
        )
    )


def _unseen_pools(desired: DesiredCluster) -> set[str]:
    """Return the pools that ``spec.pools`` names, but that this cluster has not claimed now.

    Such a StoragePool was deleted, for example, or has lost its label. Its storages may still run,
    so their Services and addresses stay. The result is empty if the spec wants no Services of
    storages.
    """
    access = desired.cluster.spec.access.outside
    if access is None or not access.storages:
        return set()
    return {*desired.cluster.spec.pools} - {pool.metadata.name for pool in desired.own_pools}


def _addresses_of_unseen(desired: DesiredCluster, present: ClusterPresent) -> dict[str, str]:
    """Return the present outside addresses of the storages in `_unseen_pools`."""
    domains = tuple(
        names.storage_domain(pool, desired.namespace) for pool in _unseen_pools(desired)
    )
    return {
        registered: outside
        for registered, outside in (present.outside or {}).items()
        if registered.rpartition(":")[0].endswith(domains)
    }


def _removal_steps(desired: DesiredCluster, observed: ObservedCluster) -> Iterator[Step]:
    """Yield the steps that remove the access from outside; none if it was never given."""
    services = list(own_services(desired, observed))
    labelled = [
        name
        for name, pod in server_pods(desired, observed).items()
        if SLOT_LABEL in pod["metadata"]["labels"]
    ]
    present = own_metadata(desired, observed)
    # Only a Service or a label shows that the operator has written the addresses.
    was_given = bool(services or labelled)
    foreign = {} if present is None else foreign_outside_addresses(desired, observed, present)
    # Whether ZooKeeper has something to delete: addresses of processes that are not foreign,
    # addresses that cannot be read, or an empty map, whose znode is to be deleted, too.
    must_delete = False
    if present is not None and present.outside_problem:
        must_delete = True
    elif present is not None and present.outside is not None:
        has_only_foreign = bool(foreign) and present.outside == foreign
        must_delete = not has_only_foreign
    if was_given and must_delete:
        assert present is not None, "must_delete is computed from it"
        # The addresses of foreign processes stay (`foreign_outside_addresses` says why).
        yield _write(foreign, present) if foreign else DeleteOutsideAddresses()
    # Without the metadata of this cluster, only the absence of the root znode shows that ZooKeeper
    # has nothing to delete: it may not have answered, or its data may not be decodable.
    is_unknown = present is None and not isinstance(observed.metadata, ClusterAbsent)
    must_keep_sign = must_delete or is_unknown
    # The labels alone are no sufficient sign: the pods may be replaced before the addresses are
    # deleted. So one Service stays, too.
    kept = _kept_service(desired, services) if must_keep_sign else None
    yield from _delete(live for live in services if live["metadata"]["name"] != kept)
    if not must_keep_sign:
        yield from (SetSlot(pod, None) for pod in labelled)


def _kept_service(desired: DesiredCluster, services: Iterable[LiveObject]) -> str | None:
    """Return the name of the Service that is to be kept as a sign; None without any Service.

    The Service of the last slot does not exist if ``servers.replicas`` was raised since the
    Services were made. Then another one is kept, if possible that of a server.
    """
    existing = sorted(live["metadata"]["name"] for live in services)
    last_slot = num_slots(desired.cluster.spec.servers.replicas) - 1
    preferred = names.outside_server(desired.name, last_slot)
    if preferred in existing:
        return preferred
    of_servers = [name for name in existing if name.startswith(f"{names.servers(desired.name)}-")]
    return next(reversed(of_servers or existing), None)


def _write(wanted: Mapping[str, str], present: ClusterPresent) -> WriteOutsideAddresses:
    """Return the step that writes the wanted addresses in place of the present ones."""
    before = present.outside or {}
    return WriteOutsideAddresses(tuple(sorted(wanted.items())), tuple(sorted(before.items())))


def _delete(services: Iterable[LiveObject]) -> Iterator[DeleteObject]:
    """Yield the deletion of Services that are not being deleted already."""
    for live in services:
        metadata = live["metadata"]
        if not metadata.get("deletionTimestamp"):
            yield DeleteObject(ObjectKey("Service", metadata["name"]), metadata.get("uid", ""))
