"""What all clients in the simulation share: being connected to the partition's owner."""

from __future__ import annotations

from collections.abc import Mapping

from tests.sim.checker import Checker
from tests.sim.clock import Clock
from tests.sim.handshake import decoder_of
from tests.sim.metadata import Metadata
from tests.sim.network import Channel
from tests.sim.promises import Promise, Violation
from tests.sim.server_node import ServerNode
from tests.sim.story import Story
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.codec import FeedRecord, FeedRun, parse
from waltz.client.core.feed import PartitionFeed
from waltz.protocol import client_server as cs
from waltz.protocol.client_server import Message

RECONNECT_SECONDS = 0.02
TICK_SECONDS = 0.1

Surroundings = tuple[Clock, Mapping[str, ServerNode], Metadata, Checker, Story]
"""Whom and what a client meets."""


class Connected:
    """A client that speaks the protocol up to ``newest``, a server permitting."""

    def __init__(self, name: str, newest: int, surroundings: Surroundings) -> None:
        self.name = name
        self.clock, self._servers, metadata, self._checker, self._story = surroundings
        self._newest = newest
        self._version = newest
        """What the connection speaks."""
        self._channel: Channel | None = None
        self._decoder = decoder_of(newest)
        self._connection_seq = 0
        self._owner, self._generation = metadata.owner, metadata.generation
        metadata.watch_owner(name, self._owner_changed)
        self.clock.after(0.0, self._connect)
        self.clock.after(TICK_SECONDS, self._tick)

    def received(self, channel: Channel, message: bytes) -> None:
        if channel is not self._channel:
            return
        for item in parse(self._decoder.feed(message), self._version):
            if isinstance(item, FeedRun):
                self._story.detail(
                    self.name, "is fed {} to {}", item.records[0][4], item.records[-1][4]
                )
                self.take(item.records)
            else:
                self._story.detail(self.name, "gets {}", item)
                self.told(item)
        self.settle()

    def lost(self, channel: Channel) -> None:
        if channel is self._channel:
            self._story.detail(self.name, "lost its connection")
            self._channel = None
            self.detach()
            self.clock.after(RECONNECT_SECONDS, self._connect)

    def take(self, records: list[FeedRecord]) -> None:
        """Take what was fed."""
        raise AssertionError(f"{self.name} is fed {records}")

    def told(self, message: Message) -> None:
        """Take any other message."""
        raise NotImplementedError

    def attach(self) -> None:
        """There is a connection, or a new generation."""
        raise NotImplementedError

    def detach(self) -> None:
        """The connection is gone."""
        raise NotImplementedError

    def tick(self) -> None:
        """A little time has passed."""
        raise NotImplementedError

    def outgoing(self) -> list[Message]:
        """Take what is to be sent."""
        raise NotImplementedError

    def settle(self) -> None:
        """Send what the cores want sent, in one chunk."""
        messages = self.outgoing()
        if messages and self._channel is not None:
            for message in messages:
                self._story.detail(self.name, "sends {}", message)
            self._channel.send(self, b"".join(cs.encode(m, self._version) for m in messages))

    def _owner_changed(self, owner: str, generation: int) -> None:
        if generation <= self._generation:
            return
        moved = owner != self._owner
        self._owner, self._generation = owner, generation
        if self._channel is not None and moved:
            self._channel.drop(self)
            self._channel = None
            self.detach()
            self._connect()
        elif self._channel is not None:
            self.attach()
            self.settle()

    def _connect(self) -> None:
        if self._channel is not None:
            return
        server = self._servers.get(self._owner)
        self._channel = server.accept(self, self._newest) if server is not None else None
        if server is None or self._channel is None:
            self.clock.after(RECONNECT_SECONDS, self._connect)
            return
        self._story.detail(self.name, "connects to {}", self._owner)
        self._version = min(self._newest, server.version)
        self._decoder = decoder_of(self._version)
        self._connection_seq += 1
        self.attach()
        self.settle()

    def _tick(self) -> None:
        self.tick()
        self.settle()
        self.clock.after(TICK_SECONDS, self._tick)


class Mounted(Connected):
    """A client that is fed: the real core of appending, or of streaming."""

    core: PartitionAppends | PartitionFeed

    def told(self, message: Message) -> None:
        match message:
            case cs.MountResponse(state=cs.MountState.CLIENT_AHEAD):
                raise Violation(
                    Promise.DURABLE,
                    f"{self.name} has seen {self.core.mount.mark}, and {self._owner} takes that "
                    "for more than the log holds",
                )
            case cs.FlushResponse(transaction_id=mark) if mark < self.core.mount.mark:
                raise Violation(
                    Promise.DURABLE,
                    f"{self.name} has seen {self.core.mount.mark}, and {self._owner} says after a "
                    f"flush that the log ends at {mark}",
                )
        self.core.received(message)

    def attach(self) -> None:
        self.core.attach(self._generation, self._connection_seq, self._version)

    def detach(self) -> None:
        self.core.detach()

    def tick(self) -> None:
        self.core.tick(self.clock.now)

    def outgoing(self) -> list[Message]:
        return self.core.effects.take_messages()
