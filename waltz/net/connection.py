"""One end of a connection that uses one of the three protocols. Touches one socket.

For speed, a connection works on whole received chunks. It passes all messages of a chunk to the
handler in one call. The frames that the handler sends during this call leave in one write, unless
they are large (`FrameConnection.send`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from waltz.net.accepted import AcceptedConnections
from waltz.net.core.addresses import join_address
from waltz.net.core.allowed_names import certificate_names
from waltz.net.core.loss_reason import loss_reason
from waltz.net.frame_handler import EndedHandler, FrameHandler
from waltz.net.keep_alive import set_keep_alive
from waltz.net.long_answer import LongAnswerReceiver
from waltz.net.paused_peer import PausedPeer
from waltz.net.slow_readers import SlowReaders
from waltz.protocol import FrameDecoder, MalformedMessage, ProtocolSpec, ProtocolViolation
from waltz.protocol.frames import LongAnswer

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 600.0
"""The dialing side sends a keep-alive after this time without a write (spec/wire.md section 3)."""

HANDSHAKE_SECONDS = 10.0
"""A connection is closed if its peer sends no Hello, its first message, within this time."""

LINGER_SECONDS = 10.0
"""A closed connection is aborted if its peer does not read the queued frames within this time."""

_WRITE_HIGH_WATER_BYTES = 1 << 20
_WRITE_LOW_WATER_BYTES = 1 << 18
"""A connection becomes congested when more bytes than the upper bound wait to be written. It stays
congested until no more than the lower bound wait."""


class ConnectionLost(ConnectionError):
    """The connection ended. The peer may or may not have executed the unanswered requests."""


class FrameConnection(asyncio.Protocol):
    """A connection, with its handshake, framing, keep-alives and backpressure.

    ``dialer`` says whether this side has dialed the connection (true) or accepted it (false).
    ``on_end`` is called once when the connection ends, before `FrameHandler.lost`.

    ``accepted`` has two bounds for all accepted connections of a port together: one for the bytes
    of their incomplete frames, one for the bytes that their peers have not read. A connection is
    closed when its incomplete frame makes the sum exceed the first bound. None: no such bounds.
    """

    def __init__(
        self,
        spec: ProtocolSpec,
        handler: FrameHandler,
        *,
        dialer: bool,
        on_end: Callable[[FrameConnection], None] | None = None,
        accepted: AcceptedConnections | None = None,
    ) -> None:
        self.spec = spec
        self.handler = handler
        self.peer = "?"
        """The peer's ``host:port``, "?" before the connection is open."""
        self.outside: str | None = None
        """The *outside address* that was dialed (`waltz.client.outside`), None if none was."""
        self.congested = False
        """Whether too many bytes wait to be written: see `FrameHandler.congested`."""
        self.closed = False
        """Set when the connection ends, before ``on_end`` and the handler are called."""
        self._dialer = dialer
        self._loop = asyncio.get_running_loop()
        self._paused_by_handler = False
        self._reading = True
        self._paused_peer = PausedPeer(self._loop)
        self._on_end = on_end
        self._accepted = accepted
        self._slow_readers = SlowReaders() if accepted is None else accepted.slow_readers
        self._incomplete_bytes = 0
        """How many bytes ``accepted`` counts for the incomplete frame of this connection."""
        # None: answers of every type may be large.
        large_types = None if dialer else spec.large_requests
        # A listener receives no `LongAnswer`: its bytes would not be counted in ``accepted``.
        long_answers = spec.long_answers if dialer else frozenset[int]()
        self._decoder = FrameDecoder(spec, large_types=large_types, long_answers=long_answers)
        self._handshake_done = False
        self._transport: asyncio.Transport | None = None
        self._handshake: asyncio.Future[None] = self._loop.create_future()
        self._outgoing: list[bytes | memoryview] = []
        self._outgoing_bytes = 0
        self._last_write_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """The handshake's timeout; later the dialer's next keep-alive, or the abort of `close`."""

    @property
    def version(self) -> int:
        """The agreed protocol version."""
        assert self._decoder.version is not None, "the handshake has not ended"
        return self._decoder.version

    @property
    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The verified certificate of the peer, as in `ssl.SSLSocket.getpeercert`, or None.

        Without a CA no certificate is verified: None or empty. None after the connection is lost.
        """
        certificate: Mapping[str, Any] | None = None
        if self._transport is not None:
            certificate = self._transport.get_extra_info("peercert")
        return certificate

    @property
    def peer_identity(self) -> str:
        """The peer's address, and the names in its verified certificate, for the log."""
        names = ", ".join(sorted(certificate_names(self.peer_certificate or {})))
        return f"{self.peer} (certificate of {names})" if names else self.peer

    @property
    def outside_note(self) -> str:
        """The outside address, to be added to an error text that has the registered one, or ""."""
        return "" if self.outside is None else f" (by its outside address {self.outside})"

    @property
    def peer_text(self) -> str | None:
        """The text by which the peer identifies itself in its Hello, None before the Hello."""
        return self._decoder.peer_text

    @property
    def unsent_bytes(self) -> int:
        """How many bytes the transport holds; with TLS, those that it has not encrypted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def handshake(self) -> None:
        """Wait until the handshake is done; raises ConnectionLost if the connection ends first."""
        await self._handshake

    def send(self, *frames: bytes | memoryview) -> None:
        """Queue whole frames. Each argument is a frame, or the next part of a frame.

        One write sends all frames that are queued during one turn of the event loop. But when the
        queued frames exceed the bound of the write buffer, they are written now, so that
        `congested` is called before the handler sends more. Otherwise one chunk of requests could
        queue answers of any size (`test_frames_beyond_the_write_buffer_are_written_at_once`). After
        the connection has ended, this does nothing.
        """
        if self.closed:
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing += frames
        self._outgoing_bytes += sum(map(len, frames))
        if self._outgoing_bytes > _WRITE_HIGH_WATER_BYTES:
            self._flush()

    def close(self, reason: str = "closed") -> None:
        """Send the queued frames, then close. `FrameHandler.lost` is called during this call.

        A peer that no longer reads cannot keep the socket open for longer than `LINGER_SECONDS`
        (test_closed_connection_is_aborted_after_the_linger_time).
        """
        if not self.closed:
            self._flush()
            self._end(reason)
            if self._transport is not None:
                self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.abort)
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Close without sending the queued frames."""
        if not self.closed:
            self._end(reason)
            if self._transport is not None:
                self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading from the peer; TCP then makes the peer stop sending."""
        self._paused_by_handler = True
        self._update_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`. A listener that is congested still does not read."""
        self._paused_by_handler = False
        self._update_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the Hello immediately, without waiting for the peer's Hello."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_HIGH_WATER_BYTES, _WRITE_LOW_WATER_BYTES)
        if (tcp_socket := transport.get_extra_info("socket")) is not None:
            set_keep_alive(tcp_socket)
        name = transport.get_extra_info("peername")
        # For IPv6 the name also has a flow label and a scope.
        self.peer = join_address(*name[:2]) if isinstance(name, tuple) else "?"
        self._transport.write(self.spec.hello(self._dialer))
        self._last_write_at = self._loop.time()
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS, self._abort_handshake)

    def data_received(self, data: bytes) -> None:
        """Parse one chunk and pass its messages to the handler."""
        if self.closed:
            return
        try:
            bodies = self._decoder.feed(data)
            self._count_incomplete(self._decoder.incomplete_bytes)
            if not self._handshake_done and self._decoder.version is not None:
                self._handshake_done = True
                self._finish_handshake()
                self.handler.ready(self)
            if bodies and not self.closed:
                self.handler.received(bodies)
            if self._decoder.long_answer is not None and not self.closed:
                self._receive_rest(self._decoder.long_answer)
        except (ProtocolViolation, MalformedMessage) as error:
            self._abort_after(error)

    def _receive_rest(self, answer: LongAnswer) -> None:
        """Receive the rest of ``answer`` into its body; then pass its body to the handler."""
        assert self._transport is not None
        transport = self._transport

        def complete() -> None:
            # Also after `close`: this connection needs `connection_lost` to stop its timer.
            transport.set_protocol(self)
            if not self.closed:
                self._decoder.long_answer = None
                try:
                    # The decoders of long answers use the body as they use bytes.
                    self.handler.received([cast("bytes", answer.body)])
                except (ProtocolViolation, MalformedMessage) as error:
                    self._abort_after(error)

        transport.set_protocol(LongAnswerReceiver(self, answer, complete))

    def _abort_after(self, error: Exception) -> None:
        """Close the connection, because what the peer has sent caused ``error``."""
        if not self.closed:
            log.warning("closing %s connection with %s: %s", self.spec.name, self.peer, error)
            self.abort(str(error))

    def eof_received(self) -> bool:
        """Handle that the peer has closed its side. Return False: asyncio then closes this side."""
        if self._decoder.mid_frame:
            log.warning(
                "%s connection with %s ended within a frame; dropping the incomplete frame",
                self.spec.name,
                self.peer,
            )
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss to the handler, once."""
        if self.closed:
            self._stop_timer()
        else:
            self._end(str(exc) if exc else self._loss_reason())
        # Cycles of references would stay in memory for long (see `waltz.runtime.memory`).
        self._transport, self.handler = None, EndedHandler()

    def pause_writing(self) -> None:
        """Tell the handler that the peer does not read fast enough: the write buffer is full."""
        self.congested = True
        self._update_reading()
        if not self.closed:
            self._slow_readers.enter(self)
            self.handler.congested()

    def resume_writing(self) -> None:
        """Tell the handler that the peer has read enough: the write buffer has room again."""
        self.congested = False
        self._slow_readers.leave(self)
        self._update_reading()
        if not self.closed:
            self.handler.writable()

    def allow_large_requests(self, allowed: bool) -> None:
        """Set whether the peer of a listener may send messages of ``spec.large_requests``.

        A storage forbids it until the peer has shown that it belongs to the cluster.
        """
        self._decoder.large_types = self.spec.large_requests if allowed else frozenset()

    def _count_incomplete(self, size: int) -> None:
        """Report to ``accepted`` that ``size`` bytes of the incomplete frame have arrived by now.

        Raises ProtocolViolation if the frame has grown and the sum of all exceeds the bound.
        """
        change = size - self._incomplete_bytes
        self._incomplete_bytes = size
        accepted = self._accepted
        if accepted is None or change == 0:
            return
        is_within_bound = accepted.change_incomplete_bytes(change)
        if change > 0 and not is_within_bound:
            raise ProtocolViolation(
                f"the incomplete messages of all connections exceed "
                f"{accepted.max_incomplete_bytes} bytes"
            )

    def _update_reading(self) -> None:
        """Start or stop reading from the transport.

        The connection does not read while the handler has paused it, or while this side is a
        listener and is congested. A peer that sends requests and does not read the answers would
        otherwise fill the listener's memory (test_listener_stops_reading_from_a_congested_peer).
        The dialing side reads even if it is congested: if both sides stopped, each could wait for
        the other forever.
        """
        should_read = not self._paused_by_handler and (self._dialer or not self.congested)
        transport = self._transport
        if should_read == self._reading:
            return
        if transport is None or self.closed or transport.is_closing():
            return
        self._reading = should_read
        if should_read:
            transport.resume_reading()
        else:
            transport.pause_reading()
            if not self._dialer:
                self._paused_peer.watch(transport, lambda: self.close(self._loss_reason()))

    def _flush(self) -> None:
        if self._outgoing and self._transport is not None and not self.closed:
            outgoing, self._outgoing = self._outgoing, []
            size, self._outgoing_bytes = self._outgoing_bytes, 0
            self._last_write_at = self._loop.time()
            # Not `writelines`: in asyncio of Python 3.12.0 to 3.13.1 it never calls `pause_writing`
            # (CPython issue 127655), so that the buffer of a slow peer would grow without a bound.
            if size <= _WRITE_HIGH_WATER_BYTES:
                # One system call for many small frames.
                self._transport.write(b"".join(outgoing))
            else:
                # Not joined: a copy of a large answer would double its memory.
                for part in outgoing:
                    # asyncio keeps what the socket has not taken: of a view, without a copy.
                    self._transport.write(memoryview(part))

    def _end(self, reason: str) -> None:
        """Mark this as closed; notify ``on_end`` and the handler. Callers close the transport."""
        if self.closed:
            return
        self.closed = True
        self._slow_readers.leave(self)
        self._count_incomplete(0)
        self._decoder.drop_incomplete()
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._stop_timer()
        if not self._handshake.done():
            self._handshake.set_exception(ConnectionLost(reason))
            # If nothing awaits the handshake, asyncio would log the exception as never retrieved.
            self._handshake.exception()
        if self._on_end is not None:
            self._on_end(self)
        self.handler.lost(reason)

    def _loss_reason(self) -> str:
        """Return why the peer has probably closed the connection without an error."""
        transport = self._transport
        uses_tls = transport is not None and transport.get_extra_info("ssl_object") is not None
        before_hello = self._dialer and not self._handshake_done
        return loss_reason(before_hello=before_hello, secured=uses_tls)

    def _abort_handshake(self) -> None:
        self._timer = None
        reason = f"no Hello within {HANDSHAKE_SECONDS:g} s"
        log.warning("%s connection with %s: %s, closing", self.spec.name, self.peer, reason)
        self.abort(reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish_handshake(self) -> None:
        self._stop_timer()
        # If a task that awaited the handshake was cancelled, the future is cancelled, too.
        if not self._handshake.done():
            self._handshake.set_result(None)
        if self._dialer:
            self._schedule_keep_alive()

    def _schedule_keep_alive(self) -> None:
        keep_alive_at = self._last_write_at + KEEP_ALIVE_SECONDS
        self._timer = self._loop.call_at(keep_alive_at, self._send_keep_alive)

    def _send_keep_alive(self) -> None:
        if self.closed or self._transport is None:
            return
        if self._loop.time() - self._last_write_at >= KEEP_ALIVE_SECONDS:
            self._transport.write(self._decoder.keep_alive())
            self._last_write_at = self._loop.time()
        self._schedule_keep_alive()
