"""What whoever operates a cluster asks of it and does to it.

`verification` decides (pure): which of a cluster's promises do not hold, given what was found.
The others act: `inspection` finds it (ZooKeeper, network), `storage_admin` speaks to storages'
admin ports and makes them hold what ZooKeeper says, `storage_ports` to their other ports,
`offline_copy` fills a replica that is switched off, `server_query` asks servers.
"""

from waltz.operations.inspection import ask_servers, inspect, read_partitions
from waltz.operations.offline_copy import Copied, CopyFailed, check_offline, copy_offline
from waltz.operations.replicas import HeldPartition
from waltz.operations.server_query import ServerQuery, ServerUnreachable
from waltz.operations.storage_admin import StorageAdmin, SyncStep, sync_storage
from waltz.operations.storage_ports import Ports, check_ports, max_transaction_id, storage_address
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
    "Copied",
    "CopyFailed",
    "Finding",
    "Found",
    "HeldPartition",
    "Ports",
    "ServerAnswers",
    "ServerQuery",
    "ServerUnreachable",
    "StorageAdmin",
    "StorageAnswers",
    "SyncStep",
    "ask_servers",
    "check_offline",
    "check_ports",
    "copy_offline",
    "inspect",
    "max_transaction_id",
    "read_partitions",
    "storage_address",
    "sync_storage",
    "verify",
]
