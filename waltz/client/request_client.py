"""Reads data, ranges and marks from servers, on separate connections. Network.

These connections never mount a partition. So feeds do not delay reads, and reads do not disturb
feeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from waltz.client.core.codec import FeedRun, parse
from waltz.client.core.directory import Directory
from waltz.client.core.errors import (
    ClientAhead,
    ClientClosed,
    DataCorrupt,
    Ending,
    ServerTooOld,
)
from waltz.client.core.mount import RequestIds
from waltz.client.core.requests import (
    CHECKSUM_ATTEMPTS,
    Answer,
    AnswerKind,
    PartitionRequests,
    ReadData,
    ReadHeaders,
    ReadMark,
    ReadRecords,
    ReadRequest,
)
from waltz.client.link import ServerLink
from waltz.client.links import Links
from waltz.client.ticker import Ticker
from waltz.net import Dialer
from waltz.protocol.records import NO_TRANSACTION

OnAnswer = Callable[[Answer | None], None]
"""Called once with the answer, or with None if the client ends before."""


class RequestClient:
    """The open read requests of one client, by partition."""

    def __init__(self, client_id: int, directory: Directory, dialer: Dialer) -> None:
        self._client_id = client_id
        self._links = Links(directory, dialer, self)
        self._ticker = Ticker(self._tick)
        self._partitions: dict[int, PartitionRequests] = {}
        self._link_of: dict[int, ServerLink] = {}
        self._known_marks: dict[int, int] = {}
        self._ended: Ending | None = None

    def note_mark(self, partition: int, transaction_id: int) -> None:
        """Record that the partition's log reaches ``transaction_id``."""
        if transaction_id > self._known_marks.get(partition, NO_TRANSACTION):
            self._known_marks[partition] = transaction_id

    def known_mark(self, partition: int) -> int:
        """Return the largest transaction id known to be in the partition's log."""
        return self._known_marks.get(partition, NO_TRANSACTION)

    async def read_mark(self, partition: int) -> int:
        """Return the partition's high-water mark as its server answers it."""
        answer = await self._answer(partition, ReadMark())
        self.note_mark(partition, answer.mark)
        return answer.mark

    async def read_data(self, partition: int, transaction_id: int) -> bytes:
        """Return the data of a transaction that is in the log. Raises DataCorrupt."""
        answer = await self._answer(partition, ReadData(transaction_id))
        if answer.kind is AnswerKind.CORRUPT:
            raise DataCorrupt(partition, transaction_id, CHECKSUM_ATTEMPTS)
        return answer.data

    async def read_range(self, partition: int, request: ReadRecords | ReadHeaders) -> Answer:
        """Return a range, possibly empty. Raises ClientAhead, DataCorrupt, ServerTooOld."""
        answer = await self._answer(partition, request)
        match answer.kind:
            case AnswerKind.CORRUPT:
                raise DataCorrupt(partition, answer.mark, CHECKSUM_ATTEMPTS)
            case AnswerKind.AHEAD:
                raise ClientAhead(partition, request.first_id - 1, answer.mark)
            case AnswerKind.UNSUPPORTED:
                raise ServerTooOld(partition, answer.mark, "request for ranges")
        self.note_mark(partition, answer.mark)
        return answer

    def send(self, partition: int, request: ReadRequest, on_answer: OnAnswer) -> None:
        """Send a request and have ``on_answer`` called. It needs no future for each request."""
        if self._ended is not None:
            raise self._ended()
        self._of(partition).add(on_answer, request)
        self._perform(partition)

    def cancel(self, partition: int, on_answer: OnAnswer) -> None:
        """Drop a request of `send`; ``on_answer`` is not called any more."""
        self._of(partition).cancel(on_answer)

    def end(self, why: Ending) -> None:
        """End all requests, present and future, with the error ``why``.

        Only the first call has an effect.
        """
        if self._ended is not None:
            return
        self._ended = why
        self._ticker.stop()
        self._links.end()
        self._link_of.clear()
        for requests in self._partitions.values():
            for token in requests.close():
                cast(OnAnswer, token)(None)

    async def close(self) -> None:
        """End with ClientClosed unless it has ended before, and close the connections."""
        self.end(ClientClosed)
        await self._links.close()

    def attached(self, partition: int, link: ServerLink, generation: int) -> None:
        """See LinkUser."""
        self._link_of[partition] = link
        self._of(partition).attach(generation, link.version)
        self._perform(partition)

    def detached(self, partition: int) -> None:
        """See LinkUser."""
        self._link_of.pop(partition, None)
        self._of(partition).detach()

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        """See LinkUser."""
        touched = set()
        for message in parse(bodies, link.version):
            if not isinstance(message, FeedRun):
                partition = message.req_id.partition
                if partition in self._partitions and self._links.is_at(partition, link):
                    self._partitions[partition].received(message)
                    touched.add(partition)
        for partition in touched:
            self._perform(partition)

    def _of(self, partition: int) -> PartitionRequests:
        requests = self._partitions.get(partition)
        if requests is None:
            requests = PartitionRequests(RequestIds(self._client_id, partition))
            self._partitions[partition] = requests
            self._links.want(partition)
        return requests

    async def _answer(self, partition: int, request: ReadRequest) -> Answer:
        if self._ended is not None:
            raise self._ended()
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Answer | None) -> None:
            if not future.done():
                # Without its token: the token is this function, which refers to the future, and the
                # reference cycle would keep megabytes of records until the garbage collector runs.
                future.set_result(answer and answer._replace(token=None))

        requests = self._of(partition)
        requests.add(on_answer, request)
        self._perform(partition)
        try:
            answer = await future
        except asyncio.CancelledError:
            requests.cancel(on_answer)
            raise
        if answer is None:
            assert self._ended is not None
            raise self._ended()
        return answer

    def _perform(self, partition: int) -> None:
        """Perform the effects of a partition: send its messages and return its answers."""
        requests = self._partitions[partition]
        messages = requests.effects.take_messages()
        link = self._link_of.get(partition)
        if messages and link is not None:
            link.send(messages)
        for answer in requests.effects.take_results():
            cast(OnAnswer, answer.token)(answer)
        if requests:
            self._ticker.start()

    def _tick(self, now: float) -> bool:
        busy = False
        for partition, requests in self._partitions.items():
            if requests:
                busy = True
                requests.tick(now)
                self._perform(partition)
        return busy
