"""A network of ordered connections that delays, cuts, and loses what was under way when it cut."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, Protocol

from tests.sim.clock import Clock


class End(Protocol):
    """One end of a connection."""

    def received(self, channel: Channel, message: Any) -> None:
        """A message has arrived."""

    def lost(self, channel: Channel) -> None:
        """The connection is gone; it is told once."""


class Channel:
    """A connection between two ends. A message is delivered whole and in order, or never."""

    def __init__(self, network: Network, ends: tuple[End, End], nodes: tuple[str, str]) -> None:
        self.open = True
        self.nodes = nodes
        self._network = network
        self._ends = ends
        self._last = [0.0, 0.0]
        self._told = [False, False]

    def send(self, sender: End, message: Any) -> None:
        """Send to the other end; whether it arrives is never told."""
        if not self.open:
            return
        side = 1 if self._ends[0] is sender else 0
        network = self._network
        arrival = max(self._last[side], network.clock.now + network.delay())
        self._last[side] = arrival
        network.clock.after(arrival - network.clock.now, self._deliver, side, message)

    def cut(self) -> None:
        """End it: what is under way is lost, perhaps in the middle of a frame."""
        if self.open:
            self.open = False
            for side in (0, 1):
                self._network.clock.after(self._network.delay(), self._tell, side)

    def drop(self, end: End) -> None:
        """End it from one side, which is not told."""
        self._told[0 if self._ends[0] is end else 1] = True
        self.cut()

    def _deliver(self, side: int, message: Any) -> None:
        if self.open:
            self._ends[side].received(self, message)

    def _tell(self, side: int) -> None:
        if not self._told[side]:
            self._told[side] = True
            self._ends[side].lost(self)


class Network:
    """All connections, and which pairs of nodes cannot reach each other now."""

    def __init__(self, clock: Clock, random: Random, counters: Counter[str]) -> None:
        self.clock = clock
        self.slow = 1.0
        self._random = random
        self._counters = counters
        self._channels: list[Channel] = []
        self._walls: set[frozenset[str]] = set()

    def delay(self) -> float:
        """Return how long the next message takes."""
        base = 0.0002 + self._random.expovariate(1 / 0.0003)
        return base * self.slow

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
            self._counters["fault: connection cut"] += 1
            self._random.choice(alive).cut()

    def wall(self, a: str, b: str, seconds: float) -> None:
        """Keep two nodes from reaching each other for a while."""
        self._counters["fault: network partition"] += 1
        pair = frozenset((a, b))
        self._walls.add(pair)
        for channel in self._channels:
            if frozenset(channel.nodes) == pair:
                channel.cut()
        self.clock.after(seconds, self._walls.discard, pair)

    def heal(self) -> None:
        """Let everybody reach everybody."""
        self._walls.clear()
        self.slow = 1.0
