"""Clients of a simulated cluster that read: by a stream, by single reads, and in ranges."""

from __future__ import annotations

import asyncio
from random import Random

from tests.sim.checker import Checker
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.real_clients import UNSUPPORTED_SECONDS, ClientEnvironment, SimClient
from waltz.client import ClientAhead, ServerTooOld
from waltz.client.core.read_values import ReadRecords
from waltz.protocol.client_numbers import STORED_RANGES_SINCE

_RANGE_PAUSE_SECONDS = 0.03
"""The mean pause after a range, before the reader follows the log further."""
_OTHER_PAUSE_SECONDS = 0.05
"""The mean pause between two additional reads of ranges."""
_DATA_INTERVAL_SECONDS = 0.1
"""The time between two reads of the data of one transaction."""
_AT_END_RATE = 0.2
"""How often an additional read begins after the last transaction that was read, not before."""


class Reader(SimClient):
    """Streams the partition from its beginning, and reads the data of some transactions."""

    def __init__(
        self,
        client_id: int,
        partition: int,
        environment: ClientEnvironment,
        checker: Checker,
        random: Random,
    ) -> None:
        version = random.choice((4, 5, 7))
        super().__init__(f"reader-{client_id}", partition, version, environment, checker, random)
        self._position = -1
        self._with_data = random.random() < 0.3

    @property
    def position(self) -> int:
        """The last transaction received."""
        return self._position

    async def work(self) -> None:
        """See SimClient."""
        self._spawn(self._read_data_until_stopped())
        stream = self._client.stream(self._partition, data=self._with_data)
        async for transaction in stream:
            req_id = transaction.req_id
            record = (
                req_id.client_id,
                req_id.generation,
                req_id.partition,
                req_id.seq,
                transaction.id,
                transaction.header,
            )
            self._checker.check_next(self.name, self._position, transaction.id)
            self._checker.check_fed(self.name, [record])
            if transaction.data is not None:
                self._checker.check_data(self.name, transaction.id, transaction.data)
            self._position = transaction.id

    async def _read_data_until_stopped(self) -> None:
        while not self.stopped:
            await asyncio.sleep(_DATA_INTERVAL_SECONDS)
            if self._position >= 0:
                wanted = self._random.randint(0, self._position)
                data = await self._client.read(self._partition, wanted)
                self._counters["client: data read"] += 1
                self._checker.check_data(self.name, wanted, data)


class RangeReader(SimClient):
    """Reads the log from its beginning range by range, and some ranges of it again."""

    def __init__(
        self,
        client_id: int,
        partition: int,
        environment: ClientEnvironment,
        checker: Checker,
        random: Random,
    ) -> None:
        name = f"ranges-{client_id}"
        super().__init__(name, partition, STORED_RANGES_SINCE, environment, checker, random)
        self._position = -1

    @property
    def position(self) -> int:
        """The last transaction read."""
        return self._position

    async def work(self) -> None:
        """See SimClient."""
        self._spawn(self._read_other_ranges())
        while True:
            await self._read_next_range()

    async def _read_next_range(self) -> None:
        wait_seconds = self._random.choice((0, 0.03, 0.3, 2))
        max_bytes = self._random.choice((1, 500, 5_000, 1 << 20))
        max_records = self._random.choice((1, 10, 1000))
        try:
            found = await self._client.bulk.records(
                self._partition,
                self._position + 1,
                max_records=max_records,
                max_bytes=max_bytes,
                wait_seconds=wait_seconds,
            )
        except ServerTooOld:
            self._counters["client: range not supported"] += 1
            await self._pause(UNSUPPORTED_SECONDS)
            return
        except ClientAhead as ahead:
            raise Violation(Guarantee.RANGE, f"{self.name}: {ahead}") from ahead
        count = found.records.count
        self._counters["client: records read" if count else "client: no records"] += 1
        self._position += count
        await self._pause(_RANGE_PAUSE_SECONDS)

    async def _read_other_ranges(self) -> None:
        """Read ranges at random places until stopped; `client_wire` checks the answers."""
        while not self.stopped:
            await self._pause(_OTHER_PAUSE_SECONDS)
            if self._position < 0:
                continue
            at_end = self._random.random() < _AT_END_RATE
            first_id = self._position + 1 if at_end else self._random.randint(0, self._position)
            most = self._random.choice((1, 10, 100))
            try:
                if self._random.random() < 0.5:
                    headers = await self._client.bulk.headers(
                        self._partition, first_id, max_headers=most
                    )
                    found = "headers read" if headers.headers else "no headers"
                    self._counters[f"client: {found}"] += 1
                else:
                    request = ReadRecords(first_id, most, 5_000, stored=True)
                    await self._client._request_client.read_range(self._partition, request)
            except ServerTooOld:
                await self._pause(UNSUPPORTED_SECONDS)
            except ClientAhead as ahead:
                raise Violation(Guarantee.RANGE, f"{self.name}: {ahead}") from ahead
