"""The transport of a connection in memory: what asyncio's socket transport does, without a socket.

A connection has two ends, each a `MemoryTransport`. Each end belongs to one event loop, and the two
may belong to different ones. A *chunk* is the bytes of one call of `write`. It arrives in a later
iteration of the receiver's event loop, never in the call that wrote it. Touches event loops and
threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

_SOCKET_BYTES = 1 << 18
"""The size of the socket buffers that a real connection would have in the operating system.

Here the inbox of the receiving end has all bytes in transit. Only those that exceed this size count
as the write buffer of the sending end.
"""

_HIGH_WATER_BYTES = 64 << 10
"""The default size of the write buffer above which the protocol is paused, as in asyncio."""

_LOW_WATER_DIVISOR = 4
"""The protocol is resumed at the high-water size divided by this number, as in asyncio."""


class Wire(Protocol):
    """What the network does with one direction of a connection."""

    @property
    def written(self) -> Callable[[bytes], bytes]:
        """The function that transforms a written chunk into the sent chunk; b"" drops it.

        It is called on the sender's event loop.
        """

    @property
    def arrived(self) -> Callable[[bytes], bytes]:
        """The function that transforms a sent chunk into the chunk that arrives; b"" drops it.

        It is called on the receiver's event loop.
        """

    def blocked(self) -> bool:
        """Return whether nothing arrives at present.

        When that ends, the network must call `MemoryTransport.proceed`.
        """

    def delay(self) -> float:
        """Return how many seconds the chunk that is sent now takes to arrive."""

    def tear(self, size: int) -> tuple[int, float]:
        """Return how many bytes of a chunk arrive first, and how many seconds later the others do.

        0 bytes stand for the whole chunk.
        """


class MemoryTransport(asyncio.Transport):
    """One end of a connection. ``wire`` is the direction from the peer to this end.

    The *peer* is the other end: what is written at one end gets into the inbox of the other end.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer_address: tuple[str, int],
        wire: Wire,
        lock: threading.RLock,
    ) -> None:
        super().__init__({"peername": peer_address})
        self.loop = loop
        self.wire = wire
        self.peer: MemoryTransport
        self.on_lost: Callable[[], None] = lambda: None
        """Called when the connection is lost, before the protocol is informed."""
        self._protocol: asyncio.Protocol | asyncio.BufferedProtocol | None = None
        self._lock = lock
        self._inbox: deque[tuple[float, bytes]] = deque()
        """The chunks that the peer has sent and `_deliver` has not taken, each with its due time.

        A chunk may be delivered when the time of ``loop`` has reached its due time.
        """
        self._inbox_bytes = 0
        """The bytes of the chunks in ``_inbox``."""
        self._last_due = 0.0
        """The due time of the last chunk that was received. No later chunk is due earlier."""
        self._reading = True
        """Whether the protocol takes chunks: false between `pause_reading` and `resume_reading`."""
        self._delivering = False
        """Whether a call of `_deliver` is scheduled."""
        self._paused_writing = False
        """Whether the protocol was asked to stop writing, because the write buffer is full."""
        self._closing = False
        """Whether `close`, `abort` or `reset` was called: this end sends and takes nothing more."""
        self._cut = False
        """Whether `cut` was called: `_deliver_last` delivers the last bytes that arrive here."""
        self._lost = False
        """Whether the protocol was informed of the end of the connection."""
        self._peer_ended = False
        """Whether the peer has closed its end."""
        self._high = _HIGH_WATER_BYTES
        self._low = self._high // _LOW_WATER_DIVISOR
        """The sizes of the write buffer at which the protocol is paused, and resumed."""

    # ---- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send a chunk. Do nothing after `close`, `abort` or `reset`."""
        peer = self.peer
        if self._closing:
            return
        # The wire of an end is the direction that arrives there, so this chunk uses the peer's.
        sent = peer.wire.written(bytes(data))
        if not sent:
            return
        peer._receive(sent)
        with self._lock:
            must_pause = not self._paused_writing and self.get_write_buffer_size() > self._high
            if must_pause:
                self._paused_writing = True
        if must_pause:
            self._connected().pause_writing()

    def pause_reading(self) -> None:
        """Stop delivering; the peer's write buffer then grows."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver again."""
        self._reading = True
        self.proceed()

    def is_reading(self) -> bool:
        """Return whether chunks are delivered."""
        return self._reading and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the sizes at which the protocol is paused and resumed."""
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else low * _LOW_WATER_DIVISOR
        if low is None:
            low = high // _LOW_WATER_DIVISOR
        if not 0 <= low <= high:
            raise ValueError(
                f"low is {low} and high is {high}: high must be at least low, and low at least 0"
            )
        self._high, self._low = high, low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the sizes at which the protocol is resumed and paused."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Return how many bytes in transit the socket buffers of a system would not hold."""
        return max(0, self.peer._inbox_bytes - _SOCKET_BYTES)

    def can_write_eof(self) -> bool:
        """Return False: no protocol of Waltz closes one direction only."""
        return False

    def is_closing(self) -> bool:
        """Return whether the end is closed or about to be."""
        return self._closing

    def close(self) -> None:
        """Send what was written, then close.

        The protocol is informed when the write buffer is empty.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._inbox.clear()
            self._inbox_bytes = 0
        # The bytes in transit to this end were discarded, so the peer's write buffer is empty. The
        # peer may be waiting for that. (A real socket would be reset instead.)
        self.peer._note_write_buffer_shrank()
        self.peer._note_peer_ended()
        if self.get_write_buffer_size() == 0:
            self.soon(self._lose, None)

    def abort(self) -> None:
        """Close at once: the peer may not get what was written."""
        self.reset(None)
        self.peer.reset(ConnectionResetError("connection reset by the peer"))

    # ---- for the peer and the network

    def connect(self, protocol: asyncio.Protocol) -> None:
        """Begin to deliver to ``protocol``; on the event loop of this end."""
        self._protocol = protocol
        protocol.connection_made(self)
        self.proceed()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver to ``protocol`` from now on."""
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        self._protocol = protocol

    def reset(self, error: Exception | None) -> None:
        """Lose the connection with ``error``; callable on any thread."""
        with self._lock:
            self._closing = True
            self._inbox.clear()
            self._inbox_bytes = 0
        self.soon(self._lose, error)

    def cut(self, bytes_arriving: int) -> None:
        """Lose the connection after at most ``bytes_arriving`` of the bytes that are in transit.

        So the received bytes can end within a frame. What is written after this call does not
        arrive.
        """
        with self._lock:
            self._cut = True
            arriving = b"".join(data for _, data in self._inbox)[:bytes_arriving]
            self._inbox.clear()
            self._inbox_bytes = 0
        self.soon(self._deliver_last, arriving)

    def proceed(self) -> None:
        """Deliver what has arrived, in a later iteration of the event loop or when it is due.

        Callable on any thread.
        """
        with self._lock:
            if self._delivering or self._lost or self._protocol is None:
                return
            if not self._inbox and not self._peer_ended:
                return
            self._delivering = True
            seconds_until_due = self._inbox[0][0] - self.loop.time() if self._inbox else 0.0
        if seconds_until_due > 0 and self.loop is _running_loop():
            self.loop.call_later(seconds_until_due, self._deliver)
        else:
            # `call_later` is not thread-safe, so another thread schedules `_deliver` immediately.
            # If no chunk is due yet, `_deliver` calls `proceed` again, now on this end's event
            # loop, and that call uses `call_later`.
            self.soon(self._deliver)

    def inject(self, data: bytes) -> None:
        """Let ``data`` arrive, after the bytes in transit, as if the peer had written it."""
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        """Put a chunk into the inbox, with its delay. Runs on any thread."""
        with self._lock:
            if self._closing or self._cut:
                return
            delay = self.wire.delay()
            # Chunks stay in order: none is due before the previous one. Without a delay, a chunk is
            # due together with the previous one.
            due = max(self._last_due, self.loop.time() + delay) if delay else self._last_due
            first_bytes, seconds_later = self.wire.tear(len(data))
            if first_bytes:
                self._inbox.append((due, data[:first_bytes]))
                due = max(due, self.loop.time()) + seconds_later
            self._last_due = due
            self._inbox.append((due, data[first_bytes:]))
            self._inbox_bytes += len(data)
        self.proceed()

    def _note_peer_ended(self) -> None:
        """Record that the peer has closed its end. Runs on any thread."""
        self._peer_ended = True
        self.proceed()

    def _deliver(self) -> None:
        """Give the protocol the chunks that are due; schedule the next call for the others.

        If the peer has closed its end, close this end after the last chunk.
        """
        with self._lock:
            self._delivering = False
            if not self._reading or self._closing or self._cut or self.wire.blocked():
                # `resume_reading`, or the network when the wire is free again, calls `proceed`.
                return
            chunk = self._take()
            has_more = bool(self._inbox)
            is_last = self._peer_ended and not has_more
        if has_more:
            self.proceed()
        if chunk:
            self._hand_over(chunk)
        self.peer._note_write_buffer_shrank()
        if is_last and not self._closing:
            self._connected().eof_received()
            self.close()

    def _take(self) -> bytes:
        """Take the chunks that are due out of the inbox; return them as one chunk."""
        now, parts = self.loop.time(), []
        while self._inbox and self._inbox[0][0] <= now:
            parts.append(self._inbox.popleft()[1])
        chunk = b"".join(parts)
        self._inbox_bytes -= len(chunk)
        return chunk

    def _hand_over(self, chunk: bytes) -> None:
        """Give a chunk to the protocol. If the protocol raises an error, abort the connection."""
        arrived = self.wire.arrived(chunk)
        if not arrived:
            return
        try:
            rest = memoryview(arrived)
            while rest:
                protocol = self._connected()
                if isinstance(protocol, asyncio.Protocol):
                    protocol.data_received(bytes(rest))
                    return
                # A BufferedProtocol, whose buffer may be smaller than the rest.
                buffer = memoryview(protocol.get_buffer(len(rest)))
                count = min(len(buffer), len(rest))
                buffer[:count] = rest[:count]
                protocol.buffer_updated(count)
                rest = rest[count:]
        except Exception as error:
            message = "Fatal error: protocol.data_received() call failed."
            self.loop.call_exception_handler(
                {"message": message, "exception": error, "transport": self}
            )
            self.abort()

    def _deliver_last(self, data: bytes) -> None:
        """Deliver ``data``, then lose the connection."""
        if data and not self._closing:
            self._hand_over(data)
        self.reset(ConnectionResetError("connection reset by the peer"))

    def _note_write_buffer_shrank(self) -> None:
        """Resume writing, or complete `close`, if the write buffer is now small enough.

        The peer calls this method on its own event loop, after it has taken or discarded bytes.
        """
        with self._lock:
            size = self.get_write_buffer_size()
            must_resume = self._paused_writing and size <= self._low
            if must_resume:
                self._paused_writing = False
            is_close_complete = self._closing and not self._lost and size == 0
        if is_close_complete:
            self.soon(self._lose, None)
        elif must_resume:
            self.soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self._lost:
            self._connected().resume_writing()

    def _lose(self, error: Exception | None) -> None:
        """Inform the network and the protocol that the connection is lost.

        Later calls do nothing.
        """
        if self._lost:
            return
        self._lost = True
        self.on_lost()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _connected(self) -> asyncio.Protocol | asyncio.BufferedProtocol:
        """Return the protocol that `connect` has set."""
        assert self._protocol is not None, "used before connect"
        return self._protocol

    def soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call ``call`` in a later iteration of this end's event loop; callable on any thread."""
        if self.loop is _running_loop():
            self.loop.call_soon(call, *arguments)
        else:
            # The event loop of this end may have been closed without closing its connections.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(call, *arguments)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
