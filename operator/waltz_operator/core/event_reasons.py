"""The reason of the event by which users see each kind of step. Pure."""

from __future__ import annotations

from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    DropReplicas,
    RegisterStorage,
    SwitchOff,
    SwitchOn,
    UnregisterStorage,
)
from waltz_operator.core.outside_steps import (
    DeleteOutsideAddresses,
    SetSlot,
    WriteOutsideAddresses,
)
from waltz_operator.core.rebalance import BeginRebalance, EndRebalance
from waltz_operator.core.steps import (
    AddFinalizer,
    ApplyObject,
    ClaimPool,
    CompareReplica,
    CreateMetadata,
    DeleteMetadata,
    DeleteObject,
    EmptyVolume,
    GrowVolume,
    IssueCertificates,
    OrphanPods,
    RecordReplacement,
    ReleasePool,
    RemoveFinalizer,
    ReplacePod,
    RotateAuthority,
)

EVENT_REASONS: dict[type, str] = {
    ClaimPool: "ClaimPool",
    ReleasePool: "ReleasePool",
    AddFinalizer: "AddFinalizer",
    RemoveFinalizer: "RemoveFinalizer",
    ApplyObject: "ApplyObject",
    DeleteObject: "DeleteObject",
    GrowVolume: "GrowVolume",
    OrphanPods: "OrphanPods",
    ReplacePod: "ReplacePod",
    IssueCertificates: "IssueCertificates",
    RotateAuthority: "RotateAuthority",
    SetSlot: "SetSlot",
    WriteOutsideAddresses: "WriteOutsideAddresses",
    DeleteOutsideAddresses: "DeleteOutsideAddresses",
    CreateMetadata: "CreateMetadata",
    DeleteMetadata: "DeleteMetadata",
    RegisterStorage: "RegisterStorage",
    UnregisterStorage: "UnregisterStorage",
    CreateReplicas: "CreateReplicas",
    SwitchOn: "SwitchOn",
    SwitchOff: "SwitchOff",
    CopyReplica: "CopyReplica",
    DropReplicas: "DropReplicas",
    ChangeAssignment: "ChangeAssignment",
    RecordReplacement: "ReplaceVolume",
    CompareReplica: "CompareReplica",
    EmptyVolume: "EmptyVolume",
    BeginRebalance: "BeginRebalance",
    EndRebalance: "EndRebalance",
}
"""The event's reason for each kind of step that a plan may contain.

Users select events by their reason, so a reason never changes, even if its step gets another name.
"""
