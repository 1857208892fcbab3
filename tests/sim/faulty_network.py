"""Cut, delay and separate the connections of simulated nodes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.sim.client_wire import ClientWire
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from waltz.testing.network import MemoryNetwork

_TORN = 0.1
"""Share of the chunks that arrive in two parts."""

_TORN_SECONDS = 0.003
"""Delay of the second part."""

_DELAY_SECONDS = (0.0002, 0.0008)
"""The shortest and the longest delay of a chunk."""

_SLOW_LINK_SECONDS = (0.01, 0.04)
"""The bounds of the additional delay of a chunk on a slow link."""

_COUNT_AFTER_SECONDS = 0.02
"""How long after a cut the connections that ended are counted: the bytes in transit have arrived
by then."""

_CUT_TRIES = 5


class FaultyNetwork:
    """The network between the hosts of one cluster and of its clients."""

    def __init__(
        self, memory: MemoryNetwork, clock: LoopClock, random: Random, history: History
    ) -> None:
        self.memory = memory
        self.client_wires: list[ClientWire] = []
        """The open connections of clients, and those that ended a moment ago."""
        self._clock = clock
        self._random = random
        self._history = history
        self._servers: Sequence[str] = ()
        self._others: Sequence[str] = ()
        memory.torn, memory.torn_seconds = _TORN, _TORN_SECONDS
        self.delay_factor = 1.0

    @property
    def delay_factor(self) -> float:
        """The factor of all delays."""
        return self._delay_factor

    @delay_factor.setter
    def delay_factor(self, factor: float) -> None:
        self._delay_factor = factor
        shortest, longest = _DELAY_SECONDS
        self.memory.delay_seconds = (shortest * factor, longest * factor)

    def set_nodes(self, servers: Sequence[str], others: Sequence[str]) -> None:
        """Name the nodes between which `cut_one` chooses: each connection has one server."""
        self._servers, self._others = servers, others

    def cut_node(self, node: str) -> None:
        """Cut every connection of a node."""
        self.memory.cut(_host(node))
        self._count_soon()

    def cut_one(self) -> None:
        """Cut the connections between a server and another node that are connected."""
        for _ in range(_CUT_TRIES):
            if self.cut(self._random.choice(self._servers), self._random.choice(self._others)):
                return

    def cut(self, server: str, other: str) -> bool:
        """Cut the connections of two nodes, perhaps within a frame; return whether they had one."""
        pair = _host(server), _host(other)
        arriving = self._random.choice((0, 0, self._random.randrange(200)))
        if not self.memory.cut(*pair, bytes_arriving=arriving):
            return False
        self._history.fault("network", "connection cut", f": {' to '.join(pair)}")
        self._count_soon()
        return True

    def separate(self, a: str, b: str, seconds: float) -> None:
        """Deliver nothing between two nodes for ``seconds``."""
        pair = (_host(a), _host(b))
        self._history.fault("network", "network partition", f": {a} and {b} for {seconds:.3f} s")
        self.memory.partition(*pair)
        if self._random.random() < 0.5:
            self.memory.cut(*pair)
        self._clock.after(seconds, self.memory.heal, *pair)

    def slow_links(self, nodes: Sequence[str], seconds: float) -> None:
        """Delay messages from and to ``nodes`` for a while."""
        for node in nodes:
            self.memory.host_delay_seconds[_host(node)] = _SLOW_LINK_SECONDS
            self._clock.after(seconds, self._end_slow_link, node)

    def heal(self) -> None:
        """End all separations and delays."""
        self.memory.heal()
        self.memory.host_delay_seconds.clear()
        self.delay_factor = 1.0

    def _end_slow_link(self, node: str) -> None:
        self.memory.host_delay_seconds.pop(_host(node), None)

    def _count_soon(self) -> None:
        self._clock.after(_COUNT_AFTER_SECONDS, self._count_cut_frames)

    def _count_cut_frames(self) -> None:
        """Count the connections that ended within a frame, and forget all that ended."""
        for wire in self.client_wires:
            if wire.is_closed() and wire.inside_frame:
                self._history.fault("network", "connection cut inside a frame")
        self.client_wires = [wire for wire in self.client_wires if not wire.is_closed()]


def _host(node: str) -> str:
    """Return the host of a storage, whose name is its address, or of a server."""
    return node.partition(":")[0]
