"""Generate assignment-policy.json: the assignments when servers join and leave."""

from __future__ import annotations

from typing import Any

from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment
from waltz.metadata.core.policy import PolicyError, assign

Owned = dict[int, list[tuple[int, int]]]
Members = dict[int, list[int]]

_THREE: Owned = {1: [(0, 1), (1, 1)], 2: [(2, 1), (3, 1)], 3: [(4, 1)]}

_CASES: tuple[tuple[str, int, Owned, int, Members], ...] = (
    # name, number of partitions, what each server owns, cversion, members with preferences
    ("first server", 3, {}, 1, {1: []}),
    ("three servers at once", 8, {}, 3, {1: [], 2: [], 3: []}),
    ("more servers than partitions", 2, {}, 3, {1: [], 2: [], 3: []}),
    ("nothing changes", 5, _THREE, 4, {1: [], 2: [], 3: []}),
    ("a server leaves", 5, _THREE, 4, {1: [], 3: []}),
    ("a server joins", 5, _THREE, 4, {1: [], 2: [], 3: [], 4: []}),
    ("a server restarts with a new id", 5, _THREE, 5, {1: [], 3: [], 4: []}),
    ("partitions are added", 7, _THREE, 4, {1: [], 2: [], 3: []}),
    ("a server prefers a partition of another one", 5, _THREE, 4, {1: [], 2: [0], 3: []}),
    (
        "a server prefers more than its share",
        4,
        {1: [(0, 4), (1, 4), (2, 4), (3, 4)]},
        2,
        {1: [], 2: [0, 1, 2]},
    ),
    ("two servers prefer one partition", 2, {}, 2, {1: [0], 2: [0]}),
    ("a preference fills a server up to its share", 3, {}, 2, {1: [1], 2: []}),
    ("fewer partitions than before", 3, _THREE, 4, {1: []}),
)


def policy() -> list[dict[str, Any]]:
    """Return assignment-policy.json."""
    return [_case(*case) for case in _CASES]


def _case(
    name: str, partitions: int, owned: Owned, cversion: int, members: Members
) -> dict[str, Any]:
    before = sum(map(len, owned.values()))
    servers = {
        server: tuple(OwnedPartition(*each) for each in held) for server, held in owned.items()
    }
    old = PartitionAssignment(cversion - 1, before, servers)
    case: dict[str, Any] = {
        "case": name,
        "numPartitions": partitions,
        "cversion": cversion,
        "old": {
            "kind": "PartitionAssignment",
            "cversion": old.cversion,
            "numPartitions": before,
            "servers": [
                {"serverId": server, "partitionId_generation": [list(each) for each in held]}
                for server, held in owned.items()
            ],
        },
        "servers": [{"serverId": s, "preferred": preferred} for s, preferred in members.items()],
    }
    wanted = {server: tuple(preferred) for server, preferred in members.items()}
    try:
        new = assign(old, cversion, partitions, wanted, lambda held: None)
    except PolicyError as error:
        return case | {"error": str(error)}
    result = [
        {"serverId": server, "partitionId_generation_sorted": [list(each) for each in sorted(held)]}
        for server, held in sorted(new.servers.items())
    ]
    return case | {"result": result}
