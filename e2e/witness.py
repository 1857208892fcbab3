"""Append to every partition and read every partition until the file ``stop`` exists.

    python3 witness.py FOLDER

The program runs, usually in a pod, while a test changes the cluster. It reports every committed
transaction that is lost, reordered or duplicated. Touches the log and FOLDER: a test creates the
file ``stop`` there. The program writes its counters to the file ``progress``, and creates the file
``started`` when it has read a transaction of every partition.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import waltz
from waltz.cli.bench.continuous import ContinuousAppends
from waltz.net import TlsConfig

_PAUSE_S = 0.1
"""The pause between two appends to a partition.

On a small machine, more appends would delay the change that is tested.
"""
_LAST_CHECK_S = 120.0
"""The time limit of the last check, which reads everything again."""


@dataclass
class Partition:
    """The transactions that this run has appended to one partition and read from it.

    The appends of this run are counted from 0: ``count`` is the number of an append.
    """

    first: int
    """The first transaction id that this run may write or read."""

    appended: int = 0
    """The number of acknowledged appends."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    """The acknowledged transaction ids by ``count``."""

    read: list[tuple[int, bytes]] = field(default_factory=list)
    """The id and data of every transaction that was read, also of other clients' transactions."""

    ids_read: dict[int, int] = field(default_factory=dict)
    """The ids of this run's transactions that were read, by ``count``."""


class Witness:
    """One run of the program; ``violations`` has a sentence about every broken guarantee."""

    def __init__(self, folder: Path) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.folder = folder
        self.partitions: dict[int, Partition] = {}
        self.violations: list[str] = []
        self.started = 0.0

    async def work(self) -> None:
        """Append and read until the file ``stop`` exists, then read everything again."""
        async with connect() as writer, connect() as reader:
            for number in range(writer.num_partitions):
                mark = await writer.high_water_mark(number)
                self.partitions[number] = Partition(first=mark + 1)
            reading = asyncio.create_task(self._read(reader))
            self.started = time.monotonic()
            appends = ContinuousAppends(
                [writer],
                self.partitions,
                lambda _partition, _producer, count: f"{self.run} {count}".encode(),
                pause_seconds=_PAUSE_S,
                on_acknowledged=self._check_acknowledged,
            )
            async with appends:
                while not (self.folder / "stop").exists():
                    appends.check_running()
                    if reading.done():
                        # This raises the error that has ended the reading.
                        reading.result()
                    self._write_progress(appends)
                    await asyncio.sleep(0.2)
        async with asyncio.timeout(_LAST_CHECK_S):
            await self._read_again()
        reading.cancel()
        self._write_progress(appends)

    def _check_acknowledged(self, number: int, count: int, transaction_id: int) -> None:
        """Note the acknowledged id of an append; check the id if the append was read before."""
        partition = self.partitions[number]
        partition.acknowledged[count] = transaction_id
        partition.appended = count + 1
        read_id = partition.ids_read.get(count)
        if read_id is not None and read_id != transaction_id:
            self._report_violation(
                number,
                f"append {count} was acknowledged with id {transaction_id}, but read with "
                f"id {read_id}",
            )

    async def _read(self, client: waltz.Client) -> None:
        """Read and check the transactions of all partitions until the task is cancelled."""
        after = {number: each.first - 1 for number, each in self.partitions.items()}
        async for transaction in client.stream(after, data=True):
            self._check_read(transaction.partition, transaction.id, transaction.data)

    def _check_read(self, number: int, transaction_id: int, data: bytes) -> None:
        """Note a transaction that was read; check its id, and the order of this run's appends."""
        partition = self.partitions[number]
        expected = partition.first + len(partition.read)
        if transaction_id != expected:
            self._report_violation(
                number, f"id {transaction_id} was read where id {expected} is next"
            )
        partition.read.append((transaction_id, data))
        run, _, count = data.decode().partition(" ")
        if run != self.run:
            # Another client has appended it, so its data are not known here.
            return
        if int(count) != len(partition.ids_read):
            self._report_violation(
                number, f"append {count} was read after {len(partition.ids_read)} others"
            )
        partition.ids_read[int(count)] = transaction_id
        if partition.acknowledged.get(int(count), transaction_id) != transaction_id:
            self._report_violation(
                number,
                f"append {count} was read with id {transaction_id}, acknowledged with another",
            )

    async def _read_again(self) -> None:
        """Read everything again with a new client, and compare it with the first reading."""
        async with connect() as client:
            for number, partition in self.partitions.items():
                mark = await client.high_water_mark(number)
                stream = client.stream(number, after=partition.first - 1, until=mark, data=True)
                records = [(each.id, each.data) async for each in stream]
                if records[: len(partition.read)] != partition.read:
                    self._report_violation(number, "a transaction that was read has changed")
                by_id = dict(records)
                for count, transaction_id in partition.acknowledged.items():
                    if by_id.get(transaction_id) != f"{self.run} {count}".encode():
                        self._report_violation(
                            number,
                            f"append {count}, acknowledged with id {transaction_id}, is lost",
                        )

    def _report_violation(self, number: int, sentence: str) -> None:
        self.violations.append(f"partition {number}: {sentence}")

    def _write_progress(self, appends: ContinuousAppends) -> None:
        """Write the file ``progress``; create ``started`` if every partition was read."""
        partitions = self.partitions.values()
        pauses = [appends.longest_pause(number, self.started) for number in self.partitions]
        progress = {
            "appended": [each.appended for each in partitions],
            "read": [len(each.read) for each in partitions],
            "longest_pauses": [round(pause, 2) for pause in pauses],
            "violations": self.violations[:10],
        }
        # Written elsewhere and renamed, so that a reader never sees half of the file.
        part = self.folder / "progress.part"
        part.write_text(json.dumps(progress))
        part.rename(self.folder / "progress")
        if all(each.read for each in partitions):
            (self.folder / "started").touch()


def connect() -> waltz.client.opening.Opening[waltz.Client]:
    """Return a client of the cluster that environment variables name.

    ZOOKEEPER and ROOT are the address. If TLS_NAME is set, even to an empty text, the folder TLS
    has the certificates. ACCESS is ``outside`` for a client outside of Kubernetes.
    """
    tls = waltz.PLAINTEXT
    name = os.environ.get("TLS_NAME")
    if name is not None:
        files = Path(os.environ["TLS"])
        tls = TlsConfig(
            certificate=files / "tls.crt",
            key=files / "tls.key",
            ca=files / "ca.crt",
            # With an empty name, the host of each connection is verified.
            server_name=name or None,
        )
    # On a busy machine, pods that were killed all at once take longer than the default timeout.
    return waltz.connect(
        os.environ["ZOOKEEPER"],
        root=os.environ["ROOT"],
        tls=tls,
        append_timeout=240.0,
        access="outside" if os.environ.get("ACCESS") == "outside" else "inside",
    )


def main() -> None:
    """Run the witness; end with status 1 if there is a violation."""
    folder = Path(sys.argv[1])
    witness = Witness(folder)
    asyncio.run(witness.work())
    print((folder / "progress").read_text())
    sys.exit(1 if witness.violations else 0)


if __name__ == "__main__":
    main()
