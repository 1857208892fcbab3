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

from waltz.operations.carrying_out import NotPossible, ReplicaOperator, Stalled, carry_out
from waltz.operations.comparing import UnknownPartition, compare_replicas
from waltz.operations.comparison import Compared, Difference
from waltz.operations.inspection import ask_servers, inspect, read_partitions
from waltz.operations.move import Move
from waltz.operations.offline_copy import Copied, CopyFailed, check_offline, copy_offline
from waltz.operations.recovery import ReplicaRecovery
from waltz.operations.replicas import HeldPartition, Observed, Scope
from waltz.operations.retirement import Retirement
from waltz.operations.server_query import ServerQuery, ServerUnreachable
from waltz.operations.steps import Done, Next, Order, Refuse, Step, Wait
from waltz.operations.storage_admin import StorageAdmin, SyncStep, sync_storage
from waltz.operations.storage_ports import Ports, check_ports, max_transaction_id, storage_address
from waltz.operations.unassignment import Told, Unassignment
from waltz.operations.verification import (
    Check,
    Finding,
    Found,
    ServerAnswers,
    StorageAnswers,
    verify,
)

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
