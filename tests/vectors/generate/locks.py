"""Generate crc.json and locks.json: checksums, hashes and slots of locks, and a scenario."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

from waltz.protocol import Lock, checksum
from waltz_server.core.appends.lock_table import LockTable

_DATA = (b"", b"\0", b"\xff" * 4, b"waltz", b"123456789", bytes(range(16)))
_LOCKS = (
    ("", 0),
    ("", 1),
    ("", -1),
    ("account", 0),
    ("account", 7),
    ("account", -7),
    ("account", 2**32),
    ("account", 2**63 - 1),
    ("account", -(2**63)),
    ("Konto ä", 7),
    ("\0", 7),
    ("\U0001d11e", 7),
    ("a name that is longer than one word of the machine", 123456789012345),
)
_HASHES = (0, 1, -1, 112, 2**31 - 1, -(2**31))
_TABLE_SIZES = (30000, 112, 1)

_SCENARIO: tuple[tuple[int, list[int], list[int], list[int]] | int, ...] = (
    # (request, write, read, append) begins a request; a number ends that request, committed.
    (0, [101], [102], []),
    (1, [103], [], [104]),
    (2, [101], [], []),
    (3, [], [103], []),
    (4, [], [102], []),
    0,
    (5, [101], [], []),
    (6, [], [], [101]),
    1,
    (7, [], [104], []),
    (8, [], [], [104]),
    5,
    (9, [101, 103], [102, 104], [105]),
)


def crc() -> dict[str, Any]:
    """Return crc.json."""
    return {
        "algorithm": "CRC-32 (IEEE) as zlib computes it; stored as a signed 32-bit int",
        "vectors": [
            {
                "data_hex": data.hex(),
                "crc32_signed_int": checksum(data),
                "crc32_hex": f"{checksum(data) & 0xFFFF_FFFF:08x}",
            }
            for data in _DATA
        ],
    }


def locks() -> dict[str, Any]:
    """Return locks.json."""
    return {
        "lockIds": [
            {
                "name": name,
                "id": lock_id,
                "nameHash": Lock(name, 0).hash(),
                "idHash": Lock("", lock_id).hash(),
                "lockHash": Lock(name, lock_id).hash(),
            }
            for name, lock_id in _LOCKS
        ],
        "slots": [
            {
                "tableSize": size,
                "numHashFuncs": 3,
                "lockHash": lock,
                "slots": list(*LockTable(size, 0).slots([lock])),
            }
            for size in _TABLE_SIZES
            for lock in _HASHES
        ],
        "scenario": {
            "tableSize": 10_007,
            "numHashFuncs": 3,
            "initialHighWaterMark": 16,
            "steps": _scenario(LockTable(10_007, 16), 16),
        },
    }


def _scenario(table: LockTable, mark: int) -> list[dict[str, Any]]:
    """Run the scenario; granted means that no slot of any lock is in use (0.13.2's rule)."""
    steps: list[dict[str, Any]] = []
    held: Counter[int] = Counter()
    active: dict[int, Any] = {}
    for each in _SCENARIO:
        if isinstance(each, int):
            mark += 1
            taken = active.pop(each)
            table.release(taken, mark)
            held.subtract(chain(*taken))
            steps.append({"op": "commit+end", "request": each, "transactionId": mark})
        else:
            request, write, read, append = each
            checked, taken = table.slots(write + read), table.slots(write + append)
            granted = not any(held[slot] for slot in chain(*checked, *taken))
            estimate = table.last_taken(checked)
            if granted:
                table.hold(taken)
                held.update(chain(*taken))
                active[request] = taken
            wanted = {"write": write, "read": read, "append": append}
            marks = {"granted": granted, "lockHighWaterMark": estimate}
            steps.append({"op": "begin", "request": request, **wanted, **marks})
        steps[-1]["active"] = len(active)
    return steps
