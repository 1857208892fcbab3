"""A network in memory: hosts, their listeners, connections, and faults.

Touches event loops and threads.

`MemoryNetwork.host` returns the network as one host sees it, which implements `waltz.net.Network`.
A connection has a real `FrameConnection` at each end, over a `MemoryTransport` and without TLS.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from waltz.net import (
    AcceptedConnections,
    DialFailed,
    DialRefused,
    FrameConnection,
    FrameHandler,
    ListenFailed,
    TlsConfig,
)
from waltz.net.network import ListeningPort, NewHandler
from waltz.protocol import ProtocolSpec
from waltz.testing.frames import FrameRule, FrameRules
from waltz.testing.interceptors import (
    DialedConnection,
    Interceptor,
    NewInterceptor,
    Unchanged,
)
from waltz.testing.transport import MemoryTransport

_DIAL_SECONDS = 10.0  # How long a host dials another one from which it is separated.
_DIAL_POLL_SECONDS = 0.05  # The time between two checks whether they still are separated.
_FIRST_FREE_PORT = 40_000  # The first port for listeners that do not choose one.
_NO_DELAY = (0.0, 0.0)
_ALL_BYTES = 1 << 62
"""More bytes than a connection ever has in transit."""


class MemoryNetwork:
    """The hosts of one cluster and of its clients.

    ``delay_seconds`` are the shortest and the longest delay of a chunk, the bytes of one write.
    ``host_delay_seconds`` has the bounds of an additional delay on all connections of one host.
    Delays between these bounds are drawn at random from ``seed``. ``torn`` is the share of the
    chunks that arrive in two parts, the second part later by ``torn_seconds``: then an interceptor
    gets parts of frames. ``frame_rules`` has the rules that decide about single frames, by sending
    and receiving host (see `waltz.testing.frames`). The methods may be called on any thread.
    """

    def __init__(self, seed: int = 0) -> None:
        self.delay_seconds = (0.0, 0.0)
        self.host_delay_seconds: dict[str, tuple[float, float]] = {}
        self._frames = FrameRules()
        self.frame_rules: dict[tuple[str, str], FrameRule] = self._frames.by_hosts
        self.torn = 0.0
        self.torn_seconds = 0.0
        self._random = random.Random(f"{seed}/network")
        self._lock = threading.RLock()
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._interceptors: dict[tuple[str, int], NewInterceptor] = {}
        self._connections: dict[_Connection, None] = {}
        self._down: set[str] = set()  # The hosts between `take_down` and `bring_up`.
        self._separated: set[frozenset[str]] = set()  # The pairs between `partition` and `heal`.
        self._next_port = _FIRST_FREE_PORT

    def host(self, name: str) -> MemoryHost:
        """Return the network as the host ``name`` sees it."""
        return MemoryHost(self, name)

    def intercept(self, host: str, port: int, new_interceptor: NewInterceptor) -> None:
        """Pass the chunks of later connections to ``host:port`` through an interceptor."""
        self._interceptors[host, port] = new_interceptor

    def take_down(self, host: str) -> None:
        """Cut all connections of a host and refuse new ones, as if the host had died."""
        with self._lock:
            self._down.add(host)
            for address in list(self._listeners):
                listening_host, _ = address
                if listening_host == host:
                    del self._listeners[address]
        self.cut(host)

    def bring_up(self, host: str) -> None:
        """Let the host dial and listen again."""
        self._down.discard(host)

    def cut(self, host: str, other: str | None = None, *, bytes_arriving: int = 0) -> int:
        """Cut the connections of ``host``, or only those with ``other``; return their number.

        In each direction, at most ``bytes_arriving`` of the bytes that are in transit still arrive.
        """
        with self._lock:
            affected = [c for c in self._connections if c.between(host, other)]
        for connection in affected:
            connection.cut(bytes_arriving)
        return len(affected)

    def connections(self, host: str, other: str | None = None) -> int:
        """Return how many connections ``host`` has, in all or only with ``other``."""
        with self._lock:
            return sum(c.between(host, other) for c in self._connections)

    def release_frames(self, count: int | None = None) -> int:
        """Let the oldest ``count`` frames arrive that rules hold (None: all); return how many do.

        A `FrameRule` holds a frame by `FrameFault.HOLD`.
        """
        return self._frames.release(count)

    def partition(self, host: str, other: str) -> None:
        """Separate two hosts: deliver nothing between them until `heal`. Connections stay open."""
        with self._lock:
            self._separated.add(frozenset((host, other)))

    def heal(self, host: str | None = None, other: str | None = None) -> None:
        """End all separations, or only that of two hosts; what was written meanwhile arrives."""
        with self._lock:
            if host is None or other is None:
                self._separated.clear()
            else:
                self._separated.discard(frozenset((host, other)))
            connections = list(self._connections)
        for connection in connections:
            connection.proceed()

    # ---- for hosts

    def blocked(self, hosts: frozenset[str]) -> bool:
        """Return whether nothing is delivered between ``hosts``."""
        return hosts in self._separated

    def draw_delay(self, hosts: frozenset[str]) -> float:
        """Draw the delay in seconds of the next chunk between ``hosts``."""
        seconds = 0.0
        with self._lock:
            if self.delay_seconds != _NO_DELAY:
                seconds += self._random.uniform(*self.delay_seconds)
            for host, bounds in list(self.host_delay_seconds.items()):
                if host in hosts and bounds != _NO_DELAY:
                    seconds += self._random.uniform(*bounds)
        return seconds

    def draw_tear(self, size: int) -> int:
        """Draw how many bytes of a chunk of ``size`` bytes arrive first, 0 for the whole chunk."""
        if not self.torn:
            return 0
        with self._lock:
            return self._random.randrange(size) if self._random.random() < self.torn else 0

    def add_listener(self, listener: MemoryListener, host: str, port: int) -> int:
        """Register a listener; return its port. Raises ListenFailed."""
        with self._lock:
            if port == 0:
                port = self._next_port
                self._next_port += 1
            if host in self._down or (host, port) in self._listeners:
                raise ListenFailed(f"{host}:{port} is down or in use")
            self._listeners[host, port] = listener
            return port

    def remove_listener(self, listener: MemoryListener) -> None:
        """Refuse connections to a listener from now on."""
        with self._lock:
            for address, registered in list(self._listeners.items()):
                if registered is listener:
                    del self._listeners[address]

    def connect(self, dialer: str, address: tuple[str, int], dialing: FrameConnection) -> bool:
        """Connect ``dialing`` to ``address``, on the running event loop.

        Return False, and do nothing, if ``dialer`` is down or nothing listens at the address.
        """
        with self._lock:
            listener = None if dialer in self._down else self._listeners.get(address)
            if listener is None:
                return False
            loop = asyncio.get_running_loop()
            connection = _Connection(self, dialer, address, loops=(loop, listener.loop))
            self._connections[connection] = None
        listener.accept(connection.far)
        connection.near.connect(dialing)
        return True

    def forget(self, connection: _Connection) -> None:
        """Remove a connection one end of which is lost."""
        with self._lock:
            self._connections.pop(connection, None)

    def make_interceptor(self, dialed: DialedConnection, address: tuple[str, int]) -> Interceptor:
        """Make the interceptor of a new connection to ``address``."""
        new_interceptor = self._interceptors.get(address)
        return Unchanged() if new_interceptor is None else new_interceptor(dialed)

    @property
    def lock(self) -> threading.RLock:
        """The lock of all connections."""
        return self._lock

    @property
    def frames(self) -> FrameRules:
        """The rules of single frames, and the frames that they hold."""
        return self._frames


class MemoryHost:
    """The network as one host sees it; implements `waltz.net.Network`. TLS settings are ignored."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self._network = network

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        """See Network."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DIAL_SECONDS
        # The first packet of a connection has a delay, too, as each later chunk has.
        hosts = frozenset((self.name, host))
        await asyncio.sleep(self._network.draw_delay(hosts))
        while self._network.blocked(hosts):
            if loop.time() > deadline:
                raise DialFailed(
                    f"cannot reach {host}:{port}: no answer within {_DIAL_SECONDS:g} s"
                )
            await asyncio.sleep(_DIAL_POLL_SECONDS)
        connection = FrameConnection(spec, handler, dialer=True)
        if not self._network.connect(self.name, (host, port), connection):
            raise DialRefused(f"cannot reach {host}:{port}: Connection refused")
        return connection

    def listener(
        self,
        spec: ProtocolSpec,
        new_handler: NewHandler,
        tls: TlsConfig,
        accepted: AcceptedConnections | None = None,
    ) -> ListeningPort:
        """See Network."""
        return MemoryListener(
            self._network, self.name, spec, new_handler, accepted or AcceptedConnections()
        )


class MemoryListener:
    """A port of a host; implements `waltz.net.ListeningPort`."""

    def __init__(
        self,
        network: MemoryNetwork,
        host: str,
        spec: ProtocolSpec,
        new_handler: NewHandler,
        accepted: AcceptedConnections,
    ) -> None:
        self.port = 0
        self.loop = asyncio.get_running_loop()
        self._network = network
        self._host = host
        self._spec = spec
        self._new_handler = new_handler
        self._accepted = accepted
        # A dict keeps the order of the connections, so that `close` is the same in every run.
        self._connections: dict[FrameConnection, None] = {}

    def start(self, host: str | None, port: int) -> None:
        """See ListeningPort. ``host`` is ignored: the port is that of the listener's own host."""
        self.loop = asyncio.get_running_loop()
        self.port = self._network.add_listener(self, self._host, port)

    async def close(self) -> None:
        """See ListeningPort."""
        self._network.remove_listener(self)
        for connection in list(self._connections):
            connection.close("shutting down")

    def accept(self, transport: MemoryTransport) -> None:
        """Accept a connection in a later iteration of the event loop; callable on any thread."""
        transport.soon(self._enter, transport)

    def _enter(self, transport: MemoryTransport) -> None:
        """Accept a connection now, unless it was lost or the limit of connections is reached."""
        if transport.is_closing():
            return
        if not self._accepted.enter(self._spec.name, peer="?"):
            transport.abort()
            return
        connection = FrameConnection(
            self._spec,
            self._new_handler(),
            dialer=False,
            on_end=self._ended,
            accepted=self._accepted,
        )
        self._connections[connection] = None
        transport.connect(connection)

    def _ended(self, connection: FrameConnection) -> None:
        self._connections.pop(connection, None)
        self._accepted.leave()


class _Connection:
    """A connection: ``near`` is the end at the dialing host, ``far`` that at the listening host."""

    def __init__(
        self,
        network: MemoryNetwork,
        dialer: str,
        address: tuple[str, int],
        loops: tuple[asyncio.AbstractEventLoop, asyncio.AbstractEventLoop],
    ) -> None:
        self._network = network
        listening_host, _ = address
        near_loop, far_loop = loops
        self._to_far_hosts = (dialer, listening_host)
        self._to_near_hosts = (listening_host, dialer)
        self._hosts = frozenset((dialer, listening_host))
        dialed = DialedConnection(
            dialer,
            # ``near`` is made below; the interceptor calls these functions only after that.
            inject=lambda data: self.near.inject(data),
            is_closed=lambda: self.near.is_closing(),
        )
        interceptor = network.make_interceptor(dialed, address)

        # The interceptor works at the dialing end, on what is written and on what arrives there.
        def written_by_dialer(data: bytes) -> bytes:
            return self._to_far(interceptor.to_listener(data))

        # The wire of a transport is the direction that arrives at it: ``near`` gets ``to_near``.
        to_far = _Wire(network, self._hosts, written=written_by_dialer, arrived=_unchanged)
        to_near = _Wire(network, self._hosts, written=self._to_near, arrived=interceptor.to_dialer)
        self.near = MemoryTransport(near_loop, address, to_near, network.lock)
        self.far = MemoryTransport(far_loop, (dialer, 0), to_far, network.lock)
        self.near.peer, self.far.peer = self.far, self.near
        self.near.on_lost = self.far.on_lost = lambda: network.forget(self)

    def between(self, host: str, other: str | None) -> bool:
        """Return whether one end is ``host``, and the other is ``other`` unless that is None."""
        return host in self._hosts and (other is None or other in self._hosts)

    def _to_far(self, data: bytes) -> bytes:
        """Apply the rule for frames to the listening host; return what is sent to it."""
        return self._apply_rule(self._to_far_hosts, data, self.far)

    def _to_near(self, data: bytes) -> bytes:
        """Apply the rule for frames to the dialing host; return what is sent to it."""
        return self._apply_rule(self._to_near_hosts, data, self.near)

    def _apply_rule(self, hosts: tuple[str, str], data: bytes, receiver: MemoryTransport) -> bytes:
        """Return what is sent, by the rule for the sending and the receiving host in ``hosts``."""
        arriving, is_cut = self._network.frames.apply(hosts, data, receiver.inject)
        if not is_cut:
            return arriving
        # The rule cuts the connection: the bytes in transit still arrive, and then ``arriving``.
        if arriving:
            receiver.inject(arriving)
        self.cut(_ALL_BYTES)
        return b""

    def cut(self, bytes_arriving: int) -> None:
        """Cut both directions."""
        self.far.cut(bytes_arriving)
        self.near.cut(bytes_arriving)

    def proceed(self) -> None:
        """Deliver what was held up."""
        self.near.proceed()
        self.far.proceed()


@dataclass(frozen=True, slots=True)
class _Wire:
    """Implements `transport.Wire`: one direction of a connection between ``hosts``."""

    network: MemoryNetwork
    hosts: frozenset[str]
    written: Callable[[bytes], bytes]
    arrived: Callable[[bytes], bytes]

    def blocked(self) -> bool:
        return self.network.blocked(self.hosts)

    def delay(self) -> float:
        return self.network.draw_delay(self.hosts)

    def tear(self, size: int) -> tuple[int, float]:
        return self.network.draw_tear(size), self.network.torn_seconds


def _unchanged(data: bytes) -> bytes:
    return data
