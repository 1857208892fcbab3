"""Damage the files of a storage as a case of the vectors describes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONTROL = "waltz-storage.ctl"


def damaged_files(files: Mapping[str, bytes], case: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the control file and the files of the case's partition, damaged as it says."""
    kept = f"{case['onlyPartitionDirKept']}/"
    found = {n: bytearray(raw) for n, raw in files.items() if n == CONTROL or n.startswith(kept)}
    for op in case["ops"]:
        raw = found[op["file"]]
        match op["op"]:
            case "delete":
                del found[op["file"]]
            case "truncate":
                del raw[op["newSize"] :]
            case "xor":
                raw[op["position"]] ^= op["with"]
            case "overwrite":
                new = bytes.fromhex(op["bytes_hex"])
                raw[op["position"] : op["position"] + len(new)] = new
            case "append":
                raw += bytes.fromhex(op["bytes_hex"])
            case other:
                raise AssertionError(f"unknown damage {other}")
    return {name: bytes(raw) for name, raw in found.items()}
