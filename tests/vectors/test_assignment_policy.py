"""The partition assignment policy gives the results of the vectors.

Where 0.13.2 fails with an incomplete assignment, the result here is complete.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment
from waltz.metadata.core.policy import PolicyError, assign


def compute(case: dict[str, Any]) -> PartitionAssignment:
    old = PartitionAssignment(
        case["old"]["cversion"],
        case["old"]["numPartitions"],
        {
            server["serverId"]: tuple(OwnedPartition(*o) for o in server["partitionId_generation"])
            for server in case["old"]["servers"]
        },
    )
    members = {server["serverId"]: tuple(server["preferred"]) for server in case["servers"]}
    return assign(old, case["cversion"], case["numPartitions"], members, lambda held: None)


def check_result(case: dict[str, Any]) -> None:
    new = compute(case)
    found = [
        {
            "serverId": server,
            "partitionId_generation_sorted": [list(o) for o in sorted(owned)],
        }
        for server, owned in sorted(new.servers.items())
    ]
    assert found == sorted(case["result"], key=lambda s: int(s["serverId"])), case["case"]
    assert (new.cversion, new.num_partitions) == (case["cversion"], case["numPartitions"])


def check_complete(case: dict[str, Any]) -> None:
    """Check that each partition has a server, one that prefers it if there is any."""
    new = compute(case)
    owners = {o.partition: server for server, owned in new.servers.items() for o in owned}
    assert sorted(owners) == list(range(case["numPartitions"])), case["case"]
    assert sum(map(len, new.servers.values())) == case["numPartitions"], case["case"]
    for partition, owner in owners.items():
        wanted_by = {s["serverId"] for s in case["servers"] if partition in s["preferred"]}
        assert not wanted_by or owner in wanted_by, case["case"]


def test_assignment_of_each_case_is_that_of_the_vectors(vectors: Path) -> None:
    for case in json.loads((vectors / "assignment-policy.json").read_text()):
        if "result" in case:
            check_result(case)
        elif "incomplete" in case["error"]:
            check_complete(case)
        else:
            with pytest.raises(PolicyError, match="cannot shrink"):
                compute(case)
