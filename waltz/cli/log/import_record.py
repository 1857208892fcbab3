"""Record an import, so that a repeated run finds its progress in the log. Touches one file.

Each run of an import records its client id before its first append. The first run also records
where each partition's log ends. A transaction after this end was imported if it has one of the
recorded client ids. So a run after a crash knows which transactions are in the log already, and
imports none of them a second time.
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

    ``end_before`` is the id of the last transaction before the first run, -1 if the log was empty.
    ``client_ids`` are the ids of the clients of all runs. In the file, the keys of these fields are
    ``base`` and ``clients``.
    """

    end_before: int
    client_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ImportRecord:
    """The record of an import into the cluster whose cluster key is ``key``.

    ``partitions`` has the imports by the partition that is appended to.
    """

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

        The caller appends only after this. Otherwise the record of appends could be lost in a power
        failure, and the next run would append the same transactions again.
        """
        partitions = {
            str(partition): {"base": recorded.end_before, "clients": recorded.client_ids}
            for partition, recorded in self.partitions.items()
        }
        value = {"key": str(self.key), "partitions": partitions}
        with written_durably(path, f"{path.name}.new") as partial:
            partial.write_text(json.dumps(value, indent=2))
