"""Faults of single frames between two hosts of a network in memory. Touches thread locks.

A *frame* is one message with its head on a connection. A `FrameRule` decides about each frame that
one host sends to another. So a test can cause on demand what real nodes do only rarely: leave a
request without its answer, answer late, send another message, or lose the connection at an exact
place of a conversation.

No rule sees a frame that is written in parts, as `waltz.net.FrameConnection` writes long frames
when it has more than 1 MiB to write.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from waltz.protocol import ADMIN, CLIENT_SERVER, STORAGE, admin, client_server, storage
from waltz.protocol.frames import frame_head

_CODECS: dict[int, Any] = {
    CLIENT_SERVER.magic: client_server,
    STORAGE.magic: storage,
    ADMIN.magic: admin,
}
"""By the magic number in a protocol's frames: the module that encodes and decodes its messages."""


class FrameFault(Enum):
    """A fault of one frame."""

    DROP = "never arrives"
    HOLD = "arrives when `MemoryNetwork.release_frames` is called; later frames overtake it"
    CUT = "is lost with its connection; the frames before it arrive"


@dataclass(frozen=True, slots=True)
class FrameReplacement:
    """The frame arrives with ``message`` in place of its own message."""

    message: Any


FrameRule = Callable[[Any], FrameFault | FrameReplacement | None]
"""Decides about the frame of a message; None: the frame arrives unchanged.

The rule is called on the event loop of the sending host. It sees neither the Hellos, by which a
connection begins, nor keep-alives.
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame; ``body`` is empty for a Hello, a keep-alive and an incomplete frame."""

    raw: bytes
    magic: int
    version: int
    body: bytes

    def decode(self) -> Any:
        """Return the message of the frame."""
        return _CODECS[self.magic].decode(self.body, self.version)

    def with_message(self, message: Any) -> bytes:
        """Return a frame of the same protocol and version with ``message``."""
        encoded: bytes = _CODECS[self.magic].encode(message, self.version)
        return encoded


def split_frames(data: bytes) -> Iterator[Frame]:
    """Yield the frames of a chunk. An incomplete frame at its end is yielded with an empty body.

    A chunk may be a later part of a long frame. Then it begins without a head, and its bytes, read
    as a head, may state a negative length. Such a chunk is yielded with an empty body, too.
    """
    position = 0
    while position < len(data):
        head = frame_head(data, position)
        if head is None:
            break
        magic, version, body_start, body_end = head
        if body_end < body_start:
            break
        body = data[body_start:body_end] if magic in _CODECS else b""
        yield Frame(data[position:body_end], magic, version, body)
        position = body_end
    if position < len(data):
        yield Frame(data[position:], 0, 0, b"")


class FrameRules:
    """The rules of a network, by sending and receiving host, and the frames that they hold."""

    def __init__(self) -> None:
        self.by_hosts: dict[tuple[str, str], FrameRule] = {}
        self._held: deque[Callable[[], None]] = deque()
        """For each held frame a function that lets it arrive, oldest first."""
        self._lock = threading.Lock()

    def release(self, count: int | None) -> int:
        """Let the oldest ``count`` held frames arrive (None: all); return how many arrive."""
        num_released = 0
        while count is None or num_released < count:
            with self._lock:
                if not self._held:
                    break
                deliver = self._held.popleft()
            deliver()  # Not under this lock, because a delivery takes the lock of the network.
            num_released += 1
        return num_released

    def apply(
        self, hosts: tuple[str, str], data: bytes, deliver: Callable[[bytes], None]
    ) -> tuple[bytes, bool]:
        """Return the bytes of a chunk that arrive, and whether the connection is lost after them.

        ``hosts`` are the sending and the receiving host. `release` passes the bytes of a held frame
        to ``deliver``.
        """
        rule = self.by_hosts.get(hosts)
        if rule is None:
            return data, False
        arriving: list[bytes] = []
        for frame in split_frames(data):
            decision = rule(frame.decode()) if frame.body else None
            match decision:
                case None:
                    arriving.append(frame.raw)
                case FrameReplacement(message):
                    arriving.append(frame.with_message(message))
                case FrameFault.HOLD:
                    with self._lock:
                        self._held.append(partial(deliver, frame.raw))
                case FrameFault.CUT:
                    return b"".join(arriving), True
                case FrameFault.DROP:
                    pass
        return b"".join(arriving), False
