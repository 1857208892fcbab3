"""Pure. Describe the admin requests that change a storage, for the log of the process."""

from __future__ import annotations

from collections.abc import Sequence

from waltz.protocol import admin
from waltz_storage.core.scrub.findings import IdRange


def change_text(request: admin.Message) -> str | None:
    """Return what ``request`` asks the storage to change, None if it changes nothing."""
    match request:
        case admin.PartitionAssignmentRequest(_, partitions, assigned=True):
            return f"assign {_listed(partitions)}"
        case admin.PartitionAssignmentRequest(_, partitions, assigned=False, delete_files=delete):
            files = "delete" if delete else "keep"
            return f"unassign {_listed(partitions)} and {files} their files"
        case admin.PartitionAvailableRequest(_, partitions, on):
            return f"switch {'on' if on else 'off'} reads and writes of {_listed(partitions)}"
        case admin.PartitionSwitchRequest(_, partitions, which, on):
            kind = "reads" if which is admin.Switch.READ else "writes"
            return f"switch {'on' if on else 'off'} {kind} of {_listed(partitions)}"
        case admin.RepairRecordsRequest(_, partition, _, records):
            if not records.count:
                return f"repair no record of partition {partition}"
            first_id = records.first_id()
            repaired = IdRange(first_id, first_id + records.count - 1)
            return f"repair records {repaired} of partition {partition}"
        case admin.PullRecordsRequest(_, partition, _, host, _, first_id, last_id):
            return f"copy records {first_id}-{last_id} of partition {partition} from {host}"
        case _:
            return None


def outcome_text(answer: admin.Response | None) -> str:
    """Return the outcome of a request for a change, as its ``answer`` shows it.

    ``answer`` is None if the storage has refused the request and sends no answer: version 0 of the
    protocol has no answer that says so.
    """
    match answer:
        case None:
            return "refused"
        case admin.AdminFailureResponse(_, failure):
            return f"refused: {failure.message}"
        case _:
            return "done"


def _listed(partitions: Sequence[int]) -> str:
    return f"partitions {', '.join(map(str, partitions))}" if partitions else "no partition"
