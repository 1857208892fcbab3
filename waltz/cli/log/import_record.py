"""Record an import, so that a repeated run finds its progress in the log. Touches one file.

Before its first append, each run of an import records its client id, and the first run records
where each partition's log ends. The transactions after that end that have one of these client ids
are the imported ones. So a run after a crash imports no transaction a second time.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from waltz.cli.log.archive import BadArchive
from waltz.cli.log.durable_files import written_durably


@dataclass(slots=True)
class PartitionImport:
    """The import into one partition.

    ``end_before`` is the id of the last transaction before the first run, -1 if there was none.
    ``client_ids`` are those of all runs. In the file, the keys are ``base`` and ``clients``.
    """

    end_before: int
    client_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ImportRecord:
    """The record of an import into the cluster with the cluster key ``key``, by partition."""

    key: uuid.UUID
    partitions: dict[int, PartitionImport] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, key: uuid.UUID) -> ImportRecord:
        """Return the record in ``path``, an empty one if there is no file. Raises BadArchive."""
        try:
            value = json.loads(path.read_text())
            recorded_key = uuid.UUID(value["key"])
            partitions = {
                int(partition): PartitionImport(
                    int(recorded["base"]), [int(client_id) for client_id in recorded["clients"]]
                )
                for partition, recorded in value["partitions"].items()
            }
        except FileNotFoundError:
            return cls(key)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise BadArchive(
                f"{path} is not the record of an import: {problem!r}; name another file with "
                "--record"
            ) from None
        if recorded_key != key:
            raise BadArchive(
                f"{path} is the record of an import into another cluster, {recorded_key}; name "
                "another file with --record"
            )
        return cls(key, partitions)

    def write(self, path: Path) -> None:
        """Write the record durably to ``path``. Raises Failed.

        Appends must not begin before the record is written: after a power failure, a run without
        the record would append the same transactions again.
        """
        partitions = {
            str(partition): {"base": recorded.end_before, "clients": recorded.client_ids}
            for partition, recorded in self.partitions.items()
        }
        with written_durably(path, f"{path.name}.new") as new:
            new.write_text(json.dumps({"key": str(self.key), "partitions": partitions}, indent=2))
