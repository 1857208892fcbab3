"""A program that appends to every partition and reads all of them, until it is told to stop.

It runs in a pod, beside whatever is done to the cluster, and finds fault with anything that is
committed and then lost, reordered or doubled. Touches the log, and its folder: ``progress`` is what
was seen so far, ``going`` is there once every partition was appended to, ``stop`` ends it.
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
from waltz.net import TlsConfig

_PAUSE_S = 0.02
_LAST_CHECK_S = 120.0


@dataclass
class Partition:
    """What was appended to one partition, and what was read of it."""

    first: int
    appended: int = 0
    longest_pause: float = 0.0
    acknowledged: dict[int, int] = field(default_factory=dict)
    read: list[tuple[int, bytes]] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)


class Witness:
    """One run; ``faults`` are sentences about promises that were broken."""

    def __init__(self, folder: Path) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.folder = folder
        self.partitions: dict[int, Partition] = {}
        self.faults: list[str] = []

    async def work(self) -> None:
        """Append and read until the file ``stop`` is there, then look at everything again."""
        async with connect() as writer, connect() as reader:
            for number in range(writer.num_partitions):
                mark = await writer.high_water_mark(number)
                self.partitions[number] = Partition(first=mark + 1)
            writing = [asyncio.create_task(self._append(writer, p)) for p in self.partitions]
            reading = asyncio.create_task(self._read(reader))
            while not (self.folder / "stop").exists():
                for task in (*writing, reading):
                    if task.done():
                        task.result()
                self._report()
                await asyncio.sleep(0.2)
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
        async with asyncio.timeout(_LAST_CHECK_S):
            await self._read_again()
        reading.cancel()
        self._report()

    async def _append(self, client: waltz.Client, number: int) -> None:
        partition, count = self.partitions[number], 0
        last = time.monotonic()
        while True:
            place = await client.append(number, f"{self.run} {count}".encode())
            now = time.monotonic()
            partition.longest_pause, last = max(partition.longest_pause, now - last), now
            partition.acknowledged[count] = place
            seen = partition.places.get(count)
            if seen is not None and seen != place:
                self._blame(number, f"append {count} was acknowledged as {place}, read at {seen}")
            count += 1
            partition.appended = count
            await asyncio.sleep(_PAUSE_S)

    async def _read(self, client: waltz.Client) -> None:
        after = {number: each.first - 1 for number, each in self.partitions.items()}
        async for transaction in client.stream(after, data=True):
            number, data = transaction.partition, transaction.data
            self._seen(number, transaction.id, data)

    def _seen(self, number: int, place: int, data: bytes) -> None:
        partition = self.partitions[number]
        expected = partition.first + len(partition.read)
        if place != expected:
            self._blame(number, f"{place} was read where {expected} comes next")
        partition.read.append((place, data))
        run, _, count = data.decode().partition(" ")
        if run != self.run:
            return
        if int(count) != len(partition.places):
            self._blame(number, f"append {count} is read after {len(partition.places)} others")
        partition.places[int(count)] = place
        if partition.acknowledged.get(int(count), place) != place:
            self._blame(number, f"append {count} is read at {place}, not where it was acknowledged")

    async def _read_again(self) -> None:
        """Read everything with a client that knows nothing, and compare."""
        async with connect() as client:
            for number, partition in self.partitions.items():
                end = await client.high_water_mark(number)
                stream = client.stream(number, after=partition.first - 1, until=end, data=True)
                now = [(each.id, each.data) async for each in stream]
                if now[: len(partition.read)] != partition.read:
                    self._blame(number, "what was read once is read otherwise now")
                there = dict(now)
                for count, place in partition.acknowledged.items():
                    if there.get(place) != f"{self.run} {count}".encode():
                        self._blame(number, f"append {count}, acknowledged as {place}, is lost")

    def _blame(self, number: int, what: str) -> None:
        self.faults.append(f"partition {number}: {what}")

    def _report(self) -> None:
        every = self.partitions.values()
        told = {
            "appended": [each.appended for each in every],
            "read": [len(each.read) for each in every],
            "longest_pauses": [round(each.longest_pause, 2) for each in every],
            "faults": self.faults[:10],
        }
        part = self.folder / "progress.part"
        part.write_text(json.dumps(told))
        part.rename(self.folder / "progress")
        if all(each.read for each in every):
            (self.folder / "going").touch()


def connect() -> waltz.client.opening.Opening[waltz.Client]:
    """Return a client of the cluster that the environment names."""
    tls = waltz.PLAINTEXT
    if (name := os.environ.get("TLS_NAME")) is not None:
        files = (Path(os.environ["TLS"]) / part for part in ("tls.crt", "tls.key", "ca.crt"))
        certificate, key, ca = files
        tls = TlsConfig(certificate=certificate, key=key, ca=ca, server_name=name)
    return waltz.connect(os.environ["ZOOKEEPER"], root=os.environ["ROOT"], tls=tls)


def main() -> None:
    """Work in the folder that the command line names; ends with status 1 if there are faults."""
    folder = Path(sys.argv[1])
    witness = Witness(folder)
    asyncio.run(witness.work())
    print((folder / "progress").read_text())
    sys.exit(1 if witness.faults else 0)


if __name__ == "__main__":
    main()
