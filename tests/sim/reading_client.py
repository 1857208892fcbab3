"""Simulate clients that read one by one, with the real cores of streams and requests."""

from __future__ import annotations

from random import Random

from tests.sim.connected import Environment, Mounted
from waltz.client.core.codec import FeedRecord
from waltz.client.core.feed import PartitionFeed
from waltz.client.core.mount import RequestIds
from waltz.client.core.requests import PartitionRequests, ReadData
from waltz.protocol.client_server import Message

QUESTION_SECONDS = 0.02


class Reader(Mounted):
    """Streams the partition from its beginning, and reads the data of some transactions."""

    def __init__(
        self, client_id: int, partition: int, random: Random, environment: Environment
    ) -> None:
        self._random = random
        ids = RequestIds(client_id, partition)
        self.core: PartitionFeed = PartitionFeed(ids, -1)
        self.requests = PartitionRequests(ids)
        super().__init__(f"reader{client_id}", random.choice((4, 5)), environment)
        self.clock.after(QUESTION_SECONDS, self._ask)

    @property
    def position(self) -> int:
        """The last transaction received."""
        return self.core.position

    def take(self, records: list[FeedRecord]) -> None:
        position = self.core.position
        self.core.fed(records)
        new = self.core.effects.take_results()
        self._checker.streamed(self.name, position, new)
        self._checker.fed(self.name, new)

    def handle(self, message: Message) -> None:
        super().handle(message)
        self.requests.received(message)

    def attach(self) -> None:
        super().attach()
        self.requests.attach(self._generation, self._version)

    def detach(self) -> None:
        super().detach()
        self.requests.detach()

    def outgoing(self) -> list[Message]:
        messages = self.requests.effects.take_messages()
        return super().outgoing() + messages

    def settle(self) -> None:
        answers = self.requests.effects.take_results()
        for answer in answers:
            assert isinstance(answer.token, int)
            self._history.counters["client: data read"] += 1
            self._checker.data_read(self.name, answer.token, answer.data)
        super().settle()

    def _ask(self) -> None:
        self.requests.tick(self.clock.now)
        if self.position >= 0 and len(self.requests) < 3:
            wanted = self._random.randint(0, self.position)
            self.requests.add(wanted, ReadData(wanted))
        self.settle()
        self.clock.after(QUESTION_SECONDS, self._ask)
