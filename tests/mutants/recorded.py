"""What earlier hunts have shown: the seed that caught a bug, and how long the hunt took. Files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True, slots=True)
class Record:
    """The last hunt for a bug: its seconds, and the seed that caught the bug, None for tests."""

    seconds: float
    seed: int | None = None


def read_records(file: Path = FILE) -> dict[str, Record]:
    """Return the records by the names of the bugs; none if the file does not exist."""
    if not file.exists():
        return {}
    return {
        name: Record(found["seconds"], found.get("seed"))
        for name, found in json.loads(file.read_text()).items()
    }


def write_records(records: Mapping[str, Record], file: Path = FILE) -> None:
    """Write the records of all bugs, sorted by name."""
    content = {
        name: {"seconds": round(record.seconds, 1)}
        | ({} if record.seed is None else {"seed": record.seed})
        for name, record in sorted(records.items())
    }
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
