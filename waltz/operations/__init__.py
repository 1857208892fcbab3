"""What whoever operates a cluster asks of it and does to it.

`verification` decides (pure): which of a cluster's promises do not hold, given what was found.
The others act: `inspection` finds it (ZooKeeper, network), `storage_admin` speaks to storages'
admin ports and makes them hold what ZooKeeper says, `server_query` asks servers.
"""

from waltz.operations.inspection import inspect, read_partitions
from waltz.operations.server_query import ServerQuery, ServerUnreachable
from waltz.operations.storage_admin import StorageAdmin, SyncStep, sync_storage
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
    "Finding",
    "Found",
    "ServerAnswers",
    "ServerQuery",
    "ServerUnreachable",
    "StorageAdmin",
    "StorageAnswers",
    "SyncStep",
    "inspect",
    "read_partitions",
    "sync_storage",
    "verify",
]
