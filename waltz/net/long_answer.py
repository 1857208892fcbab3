"""Receive the rest of a long answer straight into its place in memory. Touches one socket.

The event loop gives a connection its bytes in chunks. A message of megabytes has many of them: each
is copied when it is received, and again when all are joined. So for the rest of a long answer,
`LongAnswerReceiver` takes the place of its connection at the transport, and the transport writes
into the body of the message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from typing_extensions import override

from waltz.protocol.frames import LongAnswer


class LongAnswerReceiver(asyncio.BufferedProtocol):
    """Receives the rest of ``answer``; then calls ``complete``.

    All other events of the transport are passed on to ``connection``. A transport keeps this object
    until its next long answer or its end, so it refers to nothing once the answer is complete.
    """

    def __init__(
        self, connection: asyncio.Protocol, answer: LongAnswer, complete: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._rest = memoryview(answer.body)[answer.received :]
        self._complete = complete

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the place of the bytes that arrive next."""
        return self._rest

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """Note that bytes have arrived."""
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
        """Refer no longer to the answer and to the connection, which refers to the transport."""
        self._rest = memoryview(b"")
        self._connection = asyncio.Protocol()
        self._complete = _do_nothing


def _do_nothing() -> None:
    """Take the place of a call that has been made."""
