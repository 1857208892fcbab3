"""Read data, ranges and high-water marks on separate connections to servers. Touches the network.

These connections never mount a partition. So reads and feeds do not delay each other.
`waltz.client.core.requests` decides when a request is sent again, and interprets the answers.
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
    ErrorFactory,
    PermissionDenied,
    ServerTooOld,
)
from waltz.client.core.mount import AHEAD_CONFIRMATIONS, NOT_READY_BACKOFF_SECONDS, RequestIds
from waltz.client.core.read_values import (
    Answer,
    AnswerKind,
    ReadData,
    ReadHeaders,
    ReadMark,
    ReadRecords,
    ReadRequest,
)
from waltz.client.core.requests import CHECKSUM_ATTEMPTS, PartitionRequests
from waltz.client.link import ServerLink
from waltz.client.links import Links
from waltz.client.ticker import Ticker
from waltz.net import Dialer, decode_received
from waltz.protocol.records import NO_TRANSACTION

OnAnswer = Callable[[Answer | None], None]
"""Called once: with the answer, or with None if the client ends before the answer.

It is not called if the request is cancelled.
"""


class RequestClient:
    """Sends the read requests of one client, and passes each answer to its request's caller.

    Implements `waltz.client.links.LinkUser`.
    """

    def __init__(self, client_id: int, directory: Directory, dialer: Dialer) -> None:
        self._client_id = client_id
        self._links = Links(directory, dialer, self)
        self._ticker = Ticker(self._tick)
        self._partitions: dict[int, PartitionRequests] = {}
        self._link_of: dict[int, ServerLink] = {}
        """The link of each partition that is attached."""
        self._known_marks: dict[int, int] = {}
        """See `known_mark`."""
        self._end_error: ErrorFactory | None = None
        """The argument of `end`; None before."""

    @property
    def ended(self) -> bool:
        """Whether `end` was called: every later request fails."""
        return self._end_error is not None

    def problems(self) -> str:
        """Return which servers are not connected, and why; see `Links.problems`."""
        return self._links.problems()

    @property
    def wrong_stored_ranges(self) -> int:
        """How many ranges arrived with wrong records, and were requested again."""
        return sum(requests.wrong_stored_ranges for requests in self._partitions.values())

    def note_mark(self, partition: int, transaction_id: int) -> None:
        """Record that the partition's log reaches ``transaction_id``."""
        if transaction_id > self._known_marks.get(partition, NO_TRANSACTION):
            self._known_marks[partition] = transaction_id

    def known_mark(self, partition: int) -> int:
        """Return the largest transaction id known to be in the partition's log."""
        return self._known_marks.get(partition, NO_TRANSACTION)

    async def read_mark(self, partition: int) -> int:
        """Request the partition's high-water mark from its server, record and return it.

        Raises PermissionDenied.
        """
        answer = await self._answer(partition, ReadMark())
        self.note_mark(partition, answer.mark)
        return answer.mark

    async def check_mark(self, partition: int, mark: int | None) -> None:
        """Raise ClientAhead if the partition's log ends before ``mark`` (None: do nothing).

        With a mark beyond the end of the log, no lock would ever refuse an append: the server
        compares the mark with the transactions that took the locks, and all of them are before the
        mark. A server of a version before `client_numbers.APPEND_ANSWERS_SINCE` does not compare
        the mark of an append with the end of the log, so the client does.
        """
        confirmations = 0
        while mark is not None and mark > self.known_mark(partition):
            log_mark = await self.read_mark(partition)
            if log_mark >= mark:
                return
            # One answer is not enough: a server that has just lost the partition answers with an
            # old end of the log.
            confirmations += 1
            if confirmations == AHEAD_CONFIRMATIONS:
                raise ClientAhead(partition, mark, log_mark)
            await asyncio.sleep(NOT_READY_BACKOFF_SECONDS)

    async def read_data(self, partition: int, transaction_id: int) -> bytes:
        """Return the data of a transaction in the log. Raises DataCorrupt, PermissionDenied."""
        answer = await self._answer(partition, ReadData(transaction_id))
        if answer.kind is AnswerKind.CORRUPT:
            raise DataCorrupt(partition, transaction_id, CHECKSUM_ATTEMPTS)
        return answer.data

    async def read_range(self, partition: int, request: ReadRecords | ReadHeaders) -> Answer:
        """Return the answer with a range, which may be empty.

        Raises ClientAhead, DataCorrupt, PermissionDenied or ServerTooOld.
        """
        answer = await self._answer(partition, request)
        match answer.kind:
            case AnswerKind.CORRUPT:
                raise DataCorrupt(partition, answer.corrupt_id, CHECKSUM_ATTEMPTS)
            case AnswerKind.AHEAD:
                raise ClientAhead(partition, request.first_id - 1, answer.mark)
            case AnswerKind.UNSUPPORTED:
                raise ServerTooOld(partition, answer.version, "request for ranges")
        self.note_mark(partition, answer.mark)
        return answer

    def send(self, partition: int, request: ReadRequest, on_answer: OnAnswer) -> None:
        """Send a request; `OnAnswer` tells when ``on_answer`` is called.

        A stream uses this method for thousands of requests, because this method creates no future.
        Raises ClientClosed or ClientFailed after `end`.
        """
        if self._end_error is not None:
            raise self._end_error()
        self._requests_of(partition).add(on_answer, request)
        self._perform(partition)

    def cancel(self, partition: int, on_answer: OnAnswer) -> None:
        """Drop the request that was sent with ``on_answer``, and do not call ``on_answer``."""
        self._requests_of(partition).cancel(on_answer)

    def end(self, why: ErrorFactory) -> None:
        """Make all present and later requests fail with the error that ``why`` returns.

        The callbacks of requests that were sent by `send` get None instead of the error. Only the
        first call has an effect.
        """
        if self._end_error is not None:
            return
        self._end_error = why
        self._ticker.stop()
        self._links.end()
        self._link_of.clear()
        for requests in self._partitions.values():
            for token in requests.close():
                cast(OnAnswer, token)(None)

    async def close(self) -> None:
        """Make all requests fail with ClientClosed, unless `end` was called. Close the links."""
        self.end(ClientClosed)
        await self._links.close()

    def attached(self, partition: int, link: ServerLink, generation: int) -> None:
        """See LinkUser."""
        self._link_of[partition] = link
        self._requests_of(partition).attach(generation, link.version)
        self._perform(partition)

    def detached(self, partition: int) -> None:
        """See LinkUser."""
        self._link_of.pop(partition, None)
        self._requests_of(partition).detach()

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        """See LinkUser."""
        touched = set()
        for message in decode_received(parse, bodies, link.version):
            # No feed arrives here, because no partition is mounted; but `parse` can return one.
            if not isinstance(message, FeedRun):
                partition = message.req_id.partition
                # An answer on the link of an earlier server is out of date.
                if partition in self._partitions and self._links.is_at(partition, link):
                    self._partitions[partition].received(message)
                    touched.add(partition)
        for partition in touched:
            self._perform(partition)

    def _requests_of(self, partition: int) -> PartitionRequests:
        """Return the requests to a partition. The first call connects to the partition's server."""
        requests = self._partitions.get(partition)
        if requests is None:
            requests = PartitionRequests(RequestIds(self._client_id, partition))
            self._partitions[partition] = requests
            self._links.want(partition)
        return requests

    async def _answer(self, partition: int, request: ReadRequest) -> Answer:
        """Send a request, wait for its answer and return it. Raises PermissionDenied."""
        if self._end_error is not None:
            raise self._end_error()
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Answer | None) -> None:
            if not future.done():
                future.set_result(answer)

        requests = self._requests_of(partition)
        requests.add(on_answer, request)
        self._perform(partition)
        try:
            answer = await future
        except asyncio.CancelledError:
            requests.cancel(on_answer)
            raise
        if answer is None:
            assert self._end_error is not None
            raise self._end_error()
        if answer.kind is AnswerKind.DENIED:
            raise PermissionDenied(partition, answer.denial)
        return answer

    def _perform(self, partition: int) -> None:
        """Send the messages that a partition's requests have produced, and pass on the answers.

        Each answer has the callback of its request as its token.
        """
        requests = self._partitions[partition]
        messages = requests.effects.take_messages()
        link = self._link_of.get(partition)
        # Without a link, drop the messages: `attach` produces again those that are still needed.
        if messages and link is not None:
            link.send(messages)
        for answer in requests.effects.take_results():
            # The callback gets the answer without its token. If it keeps an answer that refers to
            # the callback, this cycle of references keeps megabytes of records until the garbage
            # collector runs.
            cast(OnAnswer, answer.token)(answer._replace(token=None))
        if not requests.idle:
            self._ticker.start()

    def _tick(self, now: float) -> bool:
        """Let requests notice timeouts; return whether any request is open."""
        busy = False
        for partition, requests in self._partitions.items():
            if not requests.idle:
                busy = True
                requests.tick(now)
                self._perform(partition)
        return busy
