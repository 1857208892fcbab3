"""Receive the rest of a long answer straight into its place in memory. Touches one socket.

The event loop gives a connection its bytes in chunks. A message of megabytes has many chunks. Each
chunk is copied when it is received, and again when all chunks are joined. To avoid these copies, a
`LongAnswerReceiver` replaces the connection as the protocol of the transport until the long answer
is complete. Meanwhile the transport writes the received bytes straight into the body of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from typing_extensions import override

from waltz.protocol.frames import LongAnswer


class LongAnswerReceiver(asyncio.BufferedProtocol):
    """Receives the rest of ``answer``; then calls ``complete``.

    All other events of the transport are passed on to ``connection``. ``complete`` makes
    ``connection`` the protocol of the transport again, so no event reaches this object afterwards.
    But the transport may still refer to it, until the next long answer or the end of the
    connection. So this object drops its own references, above all that to the memory of the answer.
    """

    def __init__(
        self, connection: asyncio.Protocol, answer: LongAnswer, complete: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._rest = memoryview(answer.body)[answer.received :]
        self._complete = complete

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the part of the body into which the next bytes are written."""
        return self._rest

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """Note that ``nbytes`` bytes have been written into the body."""
        self._rest = self._rest[nbytes:]
        if not self._rest:
            complete = self._complete
            self._release()
            complete()

    @override
    def eof_received(self) -> bool | None:
        """Pass on that the peer has closed its side."""
        return self._connection.eof_received()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the connection is lost."""
        connection = self._connection
        self._release()
        connection.connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        """Pass on that the write buffer is full."""
        self._connection.pause_writing()

    @override
    def resume_writing(self) -> None:
        """Pass on that the write buffer has room."""
        self._connection.resume_writing()

    def _release(self) -> None:
        """Drop the references to the answer, to ``complete``, and to the connection.

        The connection refers to the transport, which refers to this object. If this object kept its
        references, only the garbage collector would free the three.
        """
        self._rest = memoryview(b"")
        self._connection = asyncio.Protocol()
        self._complete = _do_nothing


def _do_nothing() -> None:
    """Do nothing: the value of ``_complete`` after its call."""
