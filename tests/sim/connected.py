"""Connect a simulated client of any kind to the owner of the partition."""

from __future__ import annotations

from collections.abc import Mapping

from tests.sim.checker import Checker
from tests.sim.clock import Clock
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.handshake import decoder_of
from tests.sim.history import History
from tests.sim.metadata import Metadata
from tests.sim.network import Channel
from tests.sim.server_node import ServerNode
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.codec import FeedRecord, FeedRun, parse
from waltz.client.core.feed import PartitionFeed
from waltz.protocol import client_server as cs
from waltz.protocol.client_server import Message

RECONNECT_SECONDS = 0.02
TICK_SECONDS = 0.1

Environment = tuple[Clock, Mapping[str, ServerNode], Metadata, Checker, History]
"""The parts of the simulation that a client uses."""


class Connected:
    """A client that supports the protocol up to ``newest``."""

    def __init__(self, name: str, newest: int, environment: Environment) -> None:
        self.name = name
        self.clock, self._servers, metadata, self._checker, self._history = environment
        self._newest = newest
        self._version = newest
        """The protocol version of the connection."""
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
                self._history.detail(
                    self.name,
                    "receives feed records {} to {}",
                    item.records[0][4],
                    item.records[-1][4],
                )
                self.take(item.records)
            else:
                self._history.detail(self.name, "gets {}", item)
                self.handle(item)
        self.settle()

    def lost(self, channel: Channel) -> None:
        if channel is self._channel:
            self._history.detail(self.name, "lost its connection")
            self._channel = None
            self.detach()
            self.clock.after(RECONNECT_SECONDS, self._connect)

    def take(self, records: list[FeedRecord]) -> None:
        """Process feed records."""
        raise AssertionError(f"{self.name} is fed {records}")

    def handle(self, message: Message) -> None:
        """Process any other message."""
        raise NotImplementedError

    def attach(self) -> None:
        """Handle a new connection or generation."""
        raise NotImplementedError

    def detach(self) -> None:
        """Handle the loss of the connection."""
        raise NotImplementedError

    def tick(self) -> None:
        """Handle a timer tick."""
        raise NotImplementedError

    def outgoing(self) -> list[Message]:
        """Queue data to send."""
        raise NotImplementedError

    def settle(self) -> None:
        """Send the queued data in one chunk."""
        messages = self.outgoing()
        if messages and self._channel is not None:
            for message in messages:
                self._history.detail(self.name, "sends {}", message)
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
        self._history.detail(self.name, "connects to {}", self._owner)
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
    """A client with a feed: the real core of appending, or of streaming."""

    core: PartitionAppends | PartitionFeed

    def handle(self, message: Message) -> None:
        match message:
            case cs.MountResponse(state=cs.MountState.CLIENT_AHEAD):
                raise Violation(
                    Guarantee.DURABLE,
                    f"{self.name} has seen {self.core.mount.mark}, and {self._owner} takes that "
                    "for more than the log holds",
                )
            case cs.FlushResponse(transaction_id=mark) if mark < self.core.mount.mark:
                raise Violation(
                    Guarantee.DURABLE,
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
