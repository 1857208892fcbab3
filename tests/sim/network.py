"""A network of ordered connections that delays, tears, cuts, and loses what was under way then."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from tests.sim.clock import Clock
from tests.sim.story import Story

_TORN = 0.1
"""Share of the chunks of bytes that arrive in two parts."""

_TORN_SECONDS = 0.003
"""How long the second part is behind."""


class End(Protocol):
    """One end of a connection."""

    def received(self, channel: Channel, message: Any) -> None:
        """A message has arrived."""

    def lost(self, channel: Channel) -> None:
        """The connection is gone; it is told once."""


class Channel:
    """A connection between two ends. What is sent arrives in order, or never.

    A message is an object, or a chunk of bytes: of these a part may arrive and the rest later, or,
    if the connection is cut meanwhile, never.
    """

    def __init__(self, network: Network, ends: tuple[End, End], nodes: tuple[str, str]) -> None:
        self.open = True
        self.nodes = nodes
        self._network = network
        self._ends = ends
        self._last = [0.0, 0.0]
        self._told = [False, False]
        self._half = [False, False]

    def send(self, sender: End, message: Any) -> None:
        """Send to the other end; whether it arrives is never told."""
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
        """End it: what is under way is lost, perhaps in the middle of a frame."""
        if self.open:
            self.open = False
            if any(self._half):
                self._network.count("connection cut inside a frame")
            for side in (0, 1):
                self._network.clock.after(self._network.delay(), self._tell, side)

    def drop(self, end: End) -> None:
        """End it from one side, which is not told."""
        self._told[0 if self._ends[0] is end else 1] = True
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
        if not self._told[side]:
            self._told[side] = True
            self._ends[side].lost(self)


class Network:
    """All connections, and which pairs of nodes cannot reach each other now."""

    def __init__(self, clock: Clock, random: Random, story: Story) -> None:
        self.clock = clock
        self.slow = 1.0
        self._random = random
        self._story = story
        self._channels: list[Channel] = []
        self._walls: set[frozenset[str]] = set()
        self._slow_links: dict[frozenset[str], float] = {}

    def delay(self) -> float:
        """Return how long the next message takes."""
        base = 0.0002 + self._random.expovariate(1 / 0.0003)
        return base * self.slow

    def delay_between(self, nodes: tuple[str, str]) -> float:
        """Return how long the next message takes between two nodes."""
        seconds = self.delay()
        if self._slow_links:
            seconds *= self._slow_links.get(frozenset(nodes), 1.0)
        return seconds

    def tear(self, chunk: bytes) -> int:
        """Return how many bytes arrive on their own, 0 for all."""
        if self._random.random() < _TORN:
            return self._random.randrange(len(chunk))
        return 0

    def count(self, fault: str) -> None:
        """Count a fault that a connection met."""
        self._story.fault("network", fault)

    def reachable(self, a: str, b: str) -> bool:
        """Whether a connection between two nodes can be made."""
        return frozenset((a, b)) not in self._walls

    def connect(self, ends: tuple[End, End], nodes: tuple[str, str]) -> Channel | None:
        """Make a connection, None if the nodes are cut off from each other."""
        if not self.reachable(*nodes):
            return None
        channel = Channel(self, ends, nodes)
        self._channels = [c for c in self._channels if c.open]
        self._channels.append(channel)
        return channel

    def cut_node(self, node: str) -> None:
        """Cut every connection of a node, as its end does."""
        for channel in self._channels:
            if node in channel.nodes:
                channel.cut()

    def cut_one(self) -> None:
        """Cut some connection."""
        alive = [c for c in self._channels if c.open]
        if alive:
            channel = self._random.choice(alive)
            self._story.fault("network", "connection cut", f": {' to '.join(channel.nodes)}")
            channel.cut()

    def wall(self, a: str, b: str, seconds: float) -> None:
        """Keep two nodes from reaching each other for a while."""
        self._story.fault("network", "network partition", f": {a} and {b} for {seconds:.3f} s")
        pair = frozenset((a, b))
        self._walls.add(pair)
        for channel in self._channels:
            if frozenset(channel.nodes) == pair:
                channel.cut()
        self.clock.after(seconds, self._walls.discard, pair)

    def slow_link(self, a: str, b: str, factor: float, seconds: float) -> None:
        """Have messages between two nodes take longer for a while."""
        pair = frozenset((a, b))
        self._slow_links[pair] = factor
        self.clock.after(seconds, self._end_slow_link, pair)

    def _end_slow_link(self, pair: frozenset[str]) -> None:
        self._slow_links.pop(pair, None)

    def heal(self) -> None:
        """Let everybody reach everybody."""
        self._walls.clear()
        self._slow_links.clear()
        self.slow = 1.0
