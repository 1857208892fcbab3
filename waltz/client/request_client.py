"""Asks servers for data, ranges and marks, on connections of their own. Touches the network.

These connections never mount anything, so that reading is neither held up by feeds nor disturbs
them.
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
    Data,
    Headers,
    HighWaterMark,
    PartitionQuestions,
    Records,
    Verdict,
    What,
)
from waltz.client.link import Link
from waltz.client.links import Links
from waltz.client.ticker import Ticker
from waltz.net import TlsConfig
from waltz.protocol import CLIENT_SERVER, ProtocolSpec
from waltz.protocol.records import NO_TRANSACTION

OnAnswer = Callable[[Answer | None], None]
"""Called once with the answer, or with None if the client ends before."""


class Asker:
    """The open questions of one client, partition by partition."""

    def __init__(
        self,
        client_id: int,
        directory: Directory,
        tls: TlsConfig,
        spec: ProtocolSpec = CLIENT_SERVER,
    ) -> None:
        self._client_id = client_id
        self._links = Links(directory, tls, self, spec)
        self._ticker = Ticker(self._tick)
        self._partitions: dict[int, PartitionQuestions] = {}
        self._link_of: dict[int, Link] = {}
        self._known: dict[int, int] = {}
        self._ended: Ending | None = None

    def saw(self, partition: int, transaction_id: int) -> None:
        """Note that the partition's log reaches ``transaction_id``."""
        if transaction_id > self._known.get(partition, NO_TRANSACTION):
            self._known[partition] = transaction_id

    def known_mark(self, partition: int) -> int:
        """Return the largest transaction id known to be in the partition's log."""
        return self._known.get(partition, NO_TRANSACTION)

    async def mark(self, partition: int) -> int:
        """Return the partition's high-water mark, when its server has told it."""
        answer = await self._answer(partition, HighWaterMark())
        self.saw(partition, answer.mark)
        return answer.mark

    async def data(self, partition: int, transaction_id: int) -> bytes:
        """Return the data of a transaction that is in the log. Raises DataCorrupt."""
        answer = await self._answer(partition, Data(transaction_id))
        if answer.verdict is Verdict.CORRUPT:
            raise DataCorrupt(partition, transaction_id, CHECKSUM_ATTEMPTS)
        return answer.data

    async def range(self, partition: int, what: Records | Headers) -> Answer:
        """Return a range, perhaps empty. Raises ClientAhead, DataCorrupt, ServerTooOld."""
        answer = await self._answer(partition, what)
        match answer.verdict:
            case Verdict.CORRUPT:
                raise DataCorrupt(partition, answer.mark, CHECKSUM_ATTEMPTS)
            case Verdict.AHEAD:
                raise ClientAhead(partition, what.first_id - 1, answer.mark)
            case Verdict.UNSUPPORTED:
                raise ServerTooOld(partition, answer.mark, "reading of ranges")
        self.saw(partition, answer.mark)
        return answer

    def ask(self, partition: int, what: What, answered: OnAnswer) -> None:
        """Ask and have ``answered`` called, without a future for each."""
        if self._ended is not None:
            raise self._ended()
        self._of(partition).ask(answered, what)
        self._settle(partition)

    def withdraw(self, partition: int, answered: OnAnswer) -> None:
        """Forget a question of `ask`: ``answered`` is not called any more."""
        self._of(partition).withdraw(answered)

    def end(self, why: Ending) -> None:
        """Ask no more: all questions, now and later, end as ``why``. Only the first call counts."""
        if self._ended is not None:
            return
        self._ended = why
        self._ticker.stop()
        self._links.end()
        self._link_of.clear()
        for questions in self._partitions.values():
            for token in questions.close():
                cast(OnAnswer, token)(None)

    async def close(self) -> None:
        """End, as ClientClosed if it has not ended yet, and close the connections."""
        self.end(ClientClosed)
        await self._links.close()

    def attached(self, partition: int, link: Link, generation: int) -> None:
        """See LinkUser."""
        self._link_of[partition] = link
        self._of(partition).attach(generation, link.version)
        self._settle(partition)

    def detached(self, partition: int) -> None:
        """See LinkUser."""
        self._link_of.pop(partition, None)
        self._of(partition).detach()

    def received(self, link: Link, bodies: list[bytes]) -> None:
        """See LinkUser."""
        touched = set()
        for message in parse(bodies, link.version):
            if not isinstance(message, FeedRun):
                partition = message.req_id.partition
                if partition in self._partitions and self._links.is_at(partition, link):
                    self._partitions[partition].received(message)
                    touched.add(partition)
        for partition in touched:
            self._settle(partition)

    def _of(self, partition: int) -> PartitionQuestions:
        questions = self._partitions.get(partition)
        if questions is None:
            questions = PartitionQuestions(RequestIds(self._client_id, partition))
            self._partitions[partition] = questions
            self._links.want(partition)
        return questions

    async def _answer(self, partition: int, what: What) -> Answer:
        if self._ended is not None:
            raise self._ended()
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer | None) -> None:
            if not future.done():
                # Without its token, which is this function and so leads back to the future: what
                # is in such a ring, megabytes of records, stays until somebody collects garbage.
                future.set_result(answer and answer._replace(token=None))

        questions = self._of(partition)
        questions.ask(answered, what)
        self._settle(partition)
        try:
            answer = await future
        except asyncio.CancelledError:
            questions.withdraw(answered)
            raise
        if answer is None:
            assert self._ended is not None
            raise self._ended()
        return answer

    def _settle(self, partition: int) -> None:
        """Send what the questions of a partition want sent, and hand out their answers."""
        questions = self._partitions[partition]
        if questions.outgoing:
            outgoing, questions.outgoing = questions.outgoing, []
            link = self._link_of.get(partition)
            if link is not None:
                link.send(outgoing)
        if questions.answers:
            answers, questions.answers = questions.answers, []
            for answer in answers:
                cast(OnAnswer, answer.token)(answer)
        if questions:
            self._ticker.start()

    def _tick(self, now: float) -> bool:
        busy = False
        for partition, questions in self._partitions.items():
            if questions:
                busy = True
                questions.tick(now)
                self._settle(partition)
        return busy
