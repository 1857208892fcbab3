"""What an import remembers, to find in the log itself how far it has come. Touches one file.

Before anything is appended, it is written down where each partition's log ended and under which
client id this import appends. What is in the log after that place, from those clients, has been
imported: no crash can have it imported twice.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from waltz.cli.log.archive import BadArchive


@dataclass(slots=True)
class Begun:
    """Where a partition's log ended when its import began, and who has appended for it."""

    base: int
    clients: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ImportRecord:
    """What an import into the cluster with this key remembers, by partition of that cluster."""

    key: uuid.UUID
    partitions: dict[int, Begun] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, key: uuid.UUID) -> ImportRecord:
        """Return what ``path`` says, or a new record if it is not there. Raises BadArchive."""
        try:
            value = json.loads(path.read_text())
            found = uuid.UUID(value["key"])
            partitions = {
                int(partition): Begun(int(begun["base"]), [int(each) for each in begun["clients"]])
                for partition, begun in value["partitions"].items()
            }
        except FileNotFoundError:
            return cls(key)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise BadArchive(f"{path} is not the record of an import: {problem!r}") from None
        if found != key:
            raise BadArchive(f"{path} is the record of an import into another cluster, {found}")
        return cls(key, partitions)

    def write(self, path: Path) -> None:
        """Make ``path`` say this, durable when it returns."""
        partitions = {
            str(partition): {"base": begun.base, "clients": begun.clients}
            for partition, begun in self.partitions.items()
        }
        new = path.with_name(f"{path.name}.new")
        with new.open("w") as file:
            json.dump({"key": str(self.key), "partitions": partitions}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
