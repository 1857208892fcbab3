"""What whoever operates a cluster asks of it and does to it.

`verification` decides (pure): which of a cluster's promises do not hold, given what was found.
The others act: `inspection` finds it (ZooKeeper, network), `storage_admin` speaks to storages'
admin ports and makes them hold what ZooKeeper says, `storage_ports` to their other ports,
`offline_copy` fills a replica that is switched off, `server_query` asks servers.

`move`, `retirement`, `unassignment` and `recovery` are orders about replicas: pure plans that say
the next `steps` by what is known of the `replicas`; `observation` finds that out, `carrying_out`
does the steps.
`comparison` finds where replicas differ (pure), and `comparing` has their storages asked.
"""

from waltz.admin.core.comparison import Compared, Difference
from waltz.admin.core.move import Move
from waltz.admin.core.replica_recovery import ReplicaRecovery
from waltz.admin.core.replicas import HeldPartition, Observed, Scope
from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import Done, Next, Order, Refuse, Step, Wait
from waltz.admin.core.unassignment import Told, Unassignment
from waltz.admin.core.verification import (
    Check,
    Finding,
    Found,
    ServerAnswers,
    StorageAnswers,
    verify,
)
from waltz.admin.execution import NotPossible, ReplicaOperator, Stalled, carry_out
from waltz.admin.inspection import ask_servers, inspect, read_partitions
from waltz.admin.offline_copy import Copied, CopyFailed, check_offline, copy_offline
from waltz.admin.replica_comparison import UnknownPartition, compare_replicas
from waltz.admin.server_query import ServerQuery, ServerUnreachable
from waltz.admin.storage_admin import StorageAdmin, SyncStep, sync_storage
from waltz.admin.storage_ports import Ports, check_ports, max_transaction_id, storage_address

__all__ = [
    "Check",
    "Compared",
    "Copied",
    "CopyFailed",
    "Difference",
    "Done",
    "Finding",
    "Found",
    "HeldPartition",
    "Move",
    "Next",
    "NotPossible",
    "Observed",
    "Order",
    "Ports",
    "Refuse",
    "ReplicaOperator",
    "ReplicaRecovery",
    "Retirement",
    "Scope",
    "ServerAnswers",
    "ServerQuery",
    "ServerUnreachable",
    "Stalled",
    "Step",
    "StorageAdmin",
    "StorageAnswers",
    "SyncStep",
    "Told",
    "Unassignment",
    "UnknownPartition",
    "Wait",
    "ask_servers",
    "carry_out",
    "check_offline",
    "check_ports",
    "compare_replicas",
    "copy_offline",
    "inspect",
    "max_transaction_id",
    "read_partitions",
    "storage_address",
    "sync_storage",
    "verify",
]
