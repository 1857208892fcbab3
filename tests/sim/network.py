"""Simulate a network that delays and splits data; a cut connection loses data in transit."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from tests.sim.clock import Clock
from tests.sim.history import History

_TORN = 0.1
"""Share of the chunks of bytes that arrive in two parts."""

_TORN_SECONDS = 0.003
"""Delay of the second part."""


class End(Protocol):
    """One end of a connection."""

    def received(self, channel: Channel, message: Any) -> None:
        """Handle a message that has arrived."""

    def lost(self, channel: Channel) -> None:
        """Handle the end of the connection; called once."""


class Channel:
    """A connection between two ends. Messages arrive in order, or never.

    A message is an object or a chunk of bytes. Of a chunk, one part may arrive and the rest later,
    or never, if the connection is cut meanwhile.
    """

    def __init__(self, network: Network, ends: tuple[End, End], nodes: tuple[str, str]) -> None:
        self.open = True
        self.nodes = nodes
        self._network = network
        self._ends = ends
        self._last = [0.0, 0.0]
        self._notified = [False, False]
        self._half = [False, False]

    def send(self, sender: End, message: Any) -> None:
        """Send to the other end; the sender never learns whether the message arrives."""
        if not self.open:
            return
        side = 1 if self._ends[0] is sender else 0
        torn = self._network.tear(message) if isinstance(message, bytes) else 0
        if torn:
            self._post(side, message[:torn], half=True)
            self._last[side] += _TORN_SECONDS
            message = message[torn:]
        self._post(side, message, half=False)

    def cut(self) -> None:
        """Cut it: messages in transit are lost, perhaps in the middle of a frame."""
        if self.open:
            self.open = False
            if any(self._half):
                self._network.count("connection cut inside a frame")
            for side in (0, 1):
                self._network.clock.after(self._network.delay(), self._tell, side)

    def drop(self, end: End) -> None:
        """Close it from one end, which is not notified."""
        self._notified[0 if self._ends[0] is end else 1] = True
        self.cut()

    def _post(self, side: int, message: Any, half: bool) -> None:
        clock = self._network.clock
        arrival = max(self._last[side], clock.now + self._network.delay_between(self.nodes))
        self._last[side] = arrival
        clock.after(arrival - clock.now, self._deliver, side, message, half)

    def _deliver(self, side: int, message: Any, half: bool) -> None:
        if self.open:
            self._half[side] = half
            self._ends[side].received(self, message)

    def _tell(self, side: int) -> None:
        if not self._notified[side]:
            self._notified[side] = True
            self._ends[side].lost(self)


class Network:
    """All connections, and the pairs of nodes that cannot reach each other at present."""

    def __init__(self, clock: Clock, random: Random, history: History) -> None:
        self.clock = clock
        self.slow = 1.0
        self._random = random
        self._history = history
        self._channels: list[Channel] = []
        self._walls: set[frozenset[str]] = set()
        self._slow_links: dict[frozenset[str], float] = {}

    def delay(self) -> float:
        """Return the delay of the next message."""
        base = 0.0002 + self._random.expovariate(1 / 0.0003)
        return base * self.slow

    def delay_between(self, nodes: tuple[str, str]) -> float:
        """Return the delay of the next message between two nodes."""
        seconds = self.delay()
        if self._slow_links:
            seconds *= self._slow_links.get(frozenset(nodes), 1.0)
        return seconds

    def tear(self, chunk: bytes) -> int:
        """Return the size of the part that arrives first, 0 for the whole chunk."""
        if self._random.random() < _TORN:
            return self._random.randrange(len(chunk))
        return 0

    def count(self, fault: str) -> None:
        """Count a fault of a connection."""
        self._history.fault("network", fault)

    def reachable(self, a: str, b: str) -> bool:
        """Whether a connection between two nodes can be made."""
        return frozenset((a, b)) not in self._walls

    def connect(self, ends: tuple[End, End], nodes: tuple[str, str]) -> Channel | None:
        """Make a connection; None if the nodes cannot reach each other."""
        if not self.reachable(*nodes):
            return None
        channel = Channel(self, ends, nodes)
        self._channels = [c for c in self._channels if c.open]
        self._channels.append(channel)
        return channel

    def cut_node(self, node: str) -> None:
        """Cut every connection of a node whose process ended."""
        for channel in self._channels:
            if node in channel.nodes:
                channel.cut()

    def cut_one(self) -> None:
        """Cut a random connection."""
        alive = [c for c in self._channels if c.open]
        if alive:
            channel = self._random.choice(alive)
            self._history.fault("network", "connection cut", f": {' to '.join(channel.nodes)}")
            channel.cut()

    def wall(self, a: str, b: str, seconds: float) -> None:
        """Separate two nodes for ``seconds``."""
        self._history.fault("network", "network partition", f": {a} and {b} for {seconds:.3f} s")
        pair = frozenset((a, b))
        self._walls.add(pair)
        for channel in self._channels:
            if frozenset(channel.nodes) == pair:
                channel.cut()
        self.clock.after(seconds, self._walls.discard, pair)

    def slow_link(self, a: str, b: str, factor: float, seconds: float) -> None:
        """Delay messages between two nodes for a while."""
        pair = frozenset((a, b))
        self._slow_links[pair] = factor
        self.clock.after(seconds, self._end_slow_link, pair)

    def _end_slow_link(self, pair: frozenset[str]) -> None:
        self._slow_links.pop(pair, None)

    def heal(self) -> None:
        """End all separations and delays."""
        self._walls.clear()
        self._slow_links.clear()
        self.slow = 1.0
