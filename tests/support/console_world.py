"""Samples of a small cluster for tests of the console: two partitions, three storages, one server.

Each storage is in a group of its own and holds both partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from waltz.admin import HeldPartition
from waltz.admin.core.health import MIN_DISK_FREE
from waltz.admin.core.sample import Sample, ServerSample, StorageSample
from waltz.admin.core.storage_figures import StorageFigures
from waltz.console.core.history import History
from waltz.console.core.view import ClusterView, Names, view_cluster
from waltz.metadata.core.formats import (
    UNRESOLVED,
    OwnedPartition,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaState,
    ServerDescriptor,
)
from waltz.metadata.core.membership_steps import Member, Membership
from waltz.metadata.core.storage_maps import assign_everything
from waltz.protocol.damaged_ranges import DamagedRange

STORAGES = ("a:1", "b:1", "c:1")
MAPS = assign_everything(
    {name: group for group, name in enumerate(STORAGES)},
    dict.fromkeys(STORAGES, 11),
    2,
)
ASSIGNMENT = PartitionAssignment(1, 2, {3: (OwnedPartition(0, 7), OwnedPartition(1, 5))})
MEMBERS = Membership(ASSIGNMENT, 1, 1, (Member("s_0", 1, ServerDescriptor(3, "host", 99)),))
NAMES = Names("test", "/waltz", "zk:2181")
SILENT = StorageSample(problem="connection refused")
NO_SERVER = replace(MEMBERS, assignment=PartitionAssignment(1, 2, {}))


def held(partition: int, last_id: int | None = 100, *, on: bool = True) -> HeldPartition:
    return HeldPartition(partition, 4, 0, 0, last_id, 1_000_000, readable=on, writable=on)


def storage(
    *replicas: HeldPartition,
    damaged: tuple[DamagedRange, ...] = (),
    figures: StorageFigures | None = None,
) -> StorageSample:
    """Return the report of a storage; by default it holds both partitions."""
    found = replicas or (held(0), held(1))
    figures = figures or StorageFigures(800, 1000, 0.5, 2)
    return StorageSample({each.partition: each for each in found}, damaged=damaged, figures=figures)


def metadata(
    partition: int, session: int = 4, *, without: tuple[str, ...] = ()
) -> PartitionMetadata:
    """Return the metadata of a partition of which all replicas take part, except some."""
    states = {
        name: ReplicaState(session - 1, 50)
        if name in without
        else ReplicaState(session, UNRESOLVED)
        for name in STORAGES
    }
    return PartitionMetadata(7 if partition == 0 else 5, session, states)


def sample(
    at: float = 10.0,
    *,
    marks: Mapping[int, int | None] | None = None,
    storages: Mapping[str, StorageSample] | None = None,
    sessions: Mapping[int, PartitionMetadata] | None = None,
    server: ServerSample | None = None,
    membership: Membership = MEMBERS,
) -> Sample:
    """Return a sample; by default everything is healthy."""
    health = {0: True, 1: True}
    report = server or ServerSample({0: 100, 1: 100} if marks is None else marks, health=health)
    return Sample(
        at,
        2,
        membership,
        MAPS,
        {0: metadata(0), 1: metadata(1), **(sessions or {})},
        {3: report},
        {**{name: storage() for name in STORAGES}, **(storages or {})},
    )


def view(
    now: Sample,
    before: Sample | None = None,
    history: History | None = None,
    min_disk_free: float = MIN_DISK_FREE,
) -> ClusterView:
    """Return the view of a sample."""
    return view_cluster(
        NAMES,
        before,
        now,
        1000.0,
        reached={},
        history=history or History(),
        min_disk_free=min_disk_free,
    )
