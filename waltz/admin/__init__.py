"""Observe, verify and change a cluster. The command line, the console and the operator use it.

An `Order` is a goal about replicas or storages, such as the `Move` of a replica; every change of
replicas and storages is made by one. Its method `next_step` decides, from an observation of the
cluster (`ReplicaObservation`), which step comes next. `carry_out` repeats this: it observes, and
an `OrderExecutor` performs the step, until the goal is reached. `forecast` lists the steps without
performing them, for a dry run. The orders are `Assignment`, `GroupAssignment`, `Unassignment`,
`Move`, `ReplicaAddition`, `Retirement`, `ReplicaRecovery`, `RecordRepair`, `OfflineFill`,
`Switching`, `Synchronization`, `Registration` and `Deregistration`.

* `core` decides and is pure; all other modules touch ZooKeeper and the network
* `observation` makes the observations; `order_progress` carries orders out; `execution`,
  `offline_copy` and `peer_repair` perform their steps
* `inspection` collects the facts that `core.verification` checks; `replica_comparison` queries the
  checksums that `core.comparison` compares; `monitoring` samples what ``waltz top`` shows
* `diagnosis` queries a cluster that may be broken, and `core.health` says in words what is wrong;
  `debug_bundle` and `process_versions` collect what explains a fault afterwards
* `rescue` rebuilds the metadata of partitions by the rule in `core.rescue`
* `storage_admin`, `storage_ports`, `server_query` are clients of the ports of storages and servers
"""

from waltz.admin.core.assignment import Assignment, AssignmentSide, GroupAssignment
from waltz.admin.core.comparison import ComparisonResult, Difference
from waltz.admin.core.dry_run import Forecast, forecast
from waltz.admin.core.move import Move
from waltz.admin.core.offline_fill import OfflineFill
from waltz.admin.core.record_repair import RecordRepair
from waltz.admin.core.registration import Deregistration, Registration
from waltz.admin.core.replica_addition import ReplicaAddition
from waltz.admin.core.replica_recovery import ReplicaRecovery
from waltz.admin.core.replicas import HeldPartition, ObservationScope, ReplicaObservation
from waltz.admin.core.rescue import RebuildDecision, ReplicaReport, Verdict
from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import Done, Next, Order, Refuse, Step, Wait
from waltz.admin.core.switching import Switching
from waltz.admin.core.synchronization import Synchronization
from waltz.admin.core.unassignment import Unassignment
from waltz.admin.core.verification import (
    Check,
    ClusterFacts,
    Finding,
    ServerReport,
    StorageReport,
    verify,
)
from waltz.admin.execution import COPY_BATCH, OrderExecutor
from waltz.admin.inspection import inspect, query_servers, read_partitions
from waltz.admin.offline_copy import CopyFailed, MayContinue
from waltz.admin.order_progress import (
    NotPossible,
    OrderRefused,
    Stalled,
    StepPerformer,
    carry_out,
)
from waltz.admin.replica_comparison import NotEqual, UnknownPartition, compare_replicas
from waltz.admin.rescue import (
    FencingFailed,
    PartitionRescue,
    back_up,
    fence_replicas,
    held_assignments,
    leaves_a_partition_closed,
    plan_rescue,
    query_storages,
    restore_cluster,
    restore_outside_addresses,
    write_rescue,
)
from waltz.admin.server_query import ServerQuery, ServerUnreachable
from waltz.admin.storage_admin import StorageAdmin
from waltz.admin.storage_ports import PortProblems, check_ports, max_transaction_id

__all__ = [
    "COPY_BATCH",
    "Assignment",
    "AssignmentSide",
    "Check",
    "ClusterFacts",
    "ComparisonResult",
    "CopyFailed",
    "Deregistration",
    "Difference",
    "Done",
    "FencingFailed",
    "Finding",
    "Forecast",
    "GroupAssignment",
    "HeldPartition",
    "MayContinue",
    "Move",
    "Next",
    "NotEqual",
    "NotPossible",
    "ObservationScope",
    "OfflineFill",
    "Order",
    "OrderExecutor",
    "OrderRefused",
    "PartitionRescue",
    "PortProblems",
    "RebuildDecision",
    "RecordRepair",
    "Refuse",
    "Registration",
    "ReplicaAddition",
    "ReplicaObservation",
    "ReplicaRecovery",
    "ReplicaReport",
    "Retirement",
    "ServerQuery",
    "ServerReport",
    "ServerUnreachable",
    "Stalled",
    "Step",
    "StepPerformer",
    "StorageAdmin",
    "StorageReport",
    "Switching",
    "Synchronization",
    "Unassignment",
    "UnknownPartition",
    "Verdict",
    "Wait",
    "back_up",
    "carry_out",
    "check_ports",
    "compare_replicas",
    "fence_replicas",
    "forecast",
    "held_assignments",
    "inspect",
    "leaves_a_partition_closed",
    "max_transaction_id",
    "plan_rescue",
    "query_servers",
    "query_storages",
    "read_partitions",
    "restore_cluster",
    "restore_outside_addresses",
    "verify",
    "write_rescue",
]
