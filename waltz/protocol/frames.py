"""Framing, handshake and version negotiation: chunks of bytes in, message bodies out. Pure.

A connection has a *dialer*, the side that opened it, and a *listener*, the side that accepted it.
Each side sends a Hello immediately, without waiting for the Hello of its peer. Each side then uses
the largest version that both Hellos offer (spec/wire.md sections 2 and 3). So an old peer never
receives a message that its versions lack (test_handshake_chooses_the_largest_common_version).

`FrameDecoder` decodes what one side receives. `frame_parts`, `encode_frame` and `encode_hello` make
the frames that a side sends. A frame has a *head* (magic, version, length of the body) and a
*body*, which is one message, and whose first byte is the type of the message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from waltz.protocol.client_numbers import (
    ANSWERED_APPEND_TYPE,
    APPEND_BATCH_TYPE,
    APPEND_TYPE,
    STORED_RECORDS_TYPE,
)
from waltz.protocol.fields import TEXT, MalformedMessage, Reader

_HEAD = struct.Struct(">bhi")
"""The head of a frame: magic, version, length of the body."""
HEAD_BYTES = _HEAD.size
HELLO_MAGIC = ord("H")
MAX_FRAME_BYTES = 256 << 20
"""The limit for the body of a frame. A frame with a longer body is refused before the body is
received, because the body could exhaust the memory."""
MAX_SMALL_FRAME_BYTES = 1 << 20
"""The limit for bodies to a listener, except for the types in `ProtocolSpec.large_requests`. All
other requests are short, and a listener must not hold much memory for each of many dialers."""
MAX_RECORD_BYTES = MAX_FRAME_BYTES - (4 << 10)
"""The most bytes of one record. The rest is room for the other fields of a message: every message
that has one such record fits into a frame."""
_UNCOPIED_BYTES = 4 << 10
"""Byte strings of at least this length are sent separately; shorter ones are joined."""
_LONG_BODY_BYTES = 64 << 10
"""A body of at least this length is joined from its chunks without a further copy."""
_LONG_ANSWER_BYTES = 256 << 10
"""The least length of a body that is received as a `LongAnswer`. This way of receiving costs some
system calls, which take longer than to copy a shorter body."""
MAX_HELLO_BYTES = 64 << 10
"""The limit for a Hello. It is small, because a peer may be any process until it sends a Hello."""


class ProtocolViolation(Exception):
    """The peer's bytes do not obey the framing. The receiver must close the connection."""


@dataclass(frozen=True, slots=True)
class ProtocolSpec:
    """The properties that distinguish one of the three protocols on the wire.

    ``dialer_hello`` and ``listener_hello`` are the texts in the Hellos of the two sides.
    """

    name: str
    magic: int
    versions: tuple[int, ...]
    dialer_hello: str
    listener_hello: str
    large_requests: frozenset[int] = frozenset()
    """The types of the messages to the listener that may exceed `MAX_SMALL_FRAME_BYTES`."""
    long_answers: frozenset[int] = frozenset()
    """The types of the messages to the dialer that may be received as a `LongAnswer`.

    The body of a `LongAnswer` is a bytearray, not bytes. So a message of these types must have no
    field of type bytes: its long field is a memoryview of the body."""

    def limited_to(self, *versions: int) -> ProtocolSpec:
        """Return the same protocol with only ``versions``, for tests that play an older peer."""
        return replace(self, versions=versions)

    def hello(self, dialer: bool) -> bytes:
        """Return the Hello frame of the dialer, or of the listener if ``dialer`` is false."""
        return encode_hello(self.versions, self.dialer_hello if dialer else self.listener_hello)


# Each protocol has message types of its own: the same number may have different meanings.
STORAGE_APPEND_TYPE = 6
"""The message type of an append, in the storage protocol."""
STORED_LIST_TYPE = 22
"""The message type of an answer with records in their form on disk, in the storage protocol."""
REPAIR_TYPE = 22
"""The message type of a request to repair records, in the admin protocol."""

_APPENDS = frozenset((APPEND_TYPE, APPEND_BATCH_TYPE, ANSWERED_APPEND_TYPE))

CLIENT_SERVER = ProtocolSpec(
    "client/server",
    ord("L"),
    (0, 1, 2, 3, 4, 5, 6, 7),
    dialer_hello="Waltz Client",
    listener_hello="Waltz Server",
    large_requests=_APPENDS,
    long_answers=frozenset((STORED_RECORDS_TYPE,)),
)
STORAGE = ProtocolSpec(
    "storage",
    ord("S"),
    (0, 1, 2, 3),
    dialer_hello="Waltz Storage Client",
    listener_hello="Waltz Storage Server",
    large_requests=frozenset((STORAGE_APPEND_TYPE,)),
    long_answers=frozenset((STORED_LIST_TYPE,)),
)
ADMIN = ProtocolSpec(
    "storage admin",
    ord("A"),
    (0, 1, 2, 3),
    dialer_hello="Waltz Storage Admin Client",
    listener_hello="Waltz Storage Admin Server",
    large_requests=frozenset((REPAIR_TYPE,)),
)


def frame_parts(magic: int, version: int, body: Sequence[bytes]) -> list[bytes]:
    """Return one frame as byte strings, which the caller sends in order.

    ``body`` has its parts. Short parts are joined, so that few remain; long ones are not copied.
    """
    parts: list[bytes] = []
    short = [_HEAD.pack(magic, version, sum(map(len, body)))]
    for part in body:
        if len(part) < _UNCOPIED_BYTES:
            short.append(part)
        else:
            parts += (b"".join(short), part)
            short = []
    if short:
        parts.append(b"".join(short))
    return parts


def encode_frame(magic: int, version: int, *body: bytes) -> bytes:
    """Return one frame, whose body has the given parts. A frame without a body is a keep-alive."""
    return b"".join((_HEAD.pack(magic, version, sum(map(len, body))), *body))


def frame_head(data: bytes, position: int) -> tuple[int, int, int, int] | None:
    """Return magic, version, body start and body end of the frame that begins at ``position``.

    Start and end are positions in ``data``. Return None if ``data`` has only a part of the frame.
    """
    start = position + HEAD_BYTES
    if len(data) < start:
        return None
    magic, version, length = _HEAD.unpack_from(data, position)
    return (magic, version, start, start + length) if start + length <= len(data) else None


def encode_hello(versions: tuple[int, ...], text: str) -> bytes:
    """Return a Hello frame. The version in its head is always 0. Its body has no message type."""
    parts = [struct.pack(f">i{len(versions)}h", len(versions), *versions)]
    TEXT.write(parts, text)
    return encode_frame(HELLO_MAGIC, 0, *parts)


def decode_hello(body: bytes) -> tuple[tuple[int, ...], str | None]:
    """Return the versions that the peer offers, and its text; raises MalformedMessage."""
    reader = Reader(body)
    count = reader.take_count(2)
    versions = struct.unpack(f">{count}h", reader.take(2 * count))
    text = TEXT.read(reader)
    reader.finish()
    return versions, text


@dataclass(slots=True)
class LongAnswer:
    """A message body of which only the first ``received`` bytes have arrived.

    `waltz.net.long_answer` receives the rest directly into ``body``, without a copy."""

    body: bytearray
    received: int


class FrameDecoder:
    """Decodes the received bytes of one connection: first the Hello, then the frames.

    Chunks may end anywhere in a frame. The chunks of a long frame are joined only once.

    If a long message has one of the types ``long_answers``, the decoder does not get all its bytes:
    it sets `FrameDecoder.long_answer`, and its caller receives the rest of the message.
    """

    def __init__(
        self,
        spec: ProtocolSpec,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        *,
        large_types: frozenset[int] | None = None,
        long_answers: frozenset[int] = frozenset(),
    ) -> None:
        self.spec = spec
        self.large_types = large_types
        """The message types that may exceed `MAX_SMALL_FRAME_BYTES`. None: all types, for a dialer.
        A listener sets `ProtocolSpec.large_requests`. A storage sets an empty set until the peer
        has shown that it belongs to the cluster."""
        self.long_answer: LongAnswer | None = None
        """The long message whose rest the caller must receive now, usually None. The caller sets
        this to None after it has received the rest, before it calls `feed` again."""
        self._long_answers = long_answers
        self.version: int | None = None
        """The agreed version, None before the peer's Hello."""
        self.peer_text: str | None = None
        """The text of the peer's Hello, None before the Hello."""
        self._max_frame_bytes = max_frame_bytes
        self._limit = MAX_HELLO_BYTES
        """The limit for the length of a body: that of a Hello, later that of a frame."""
        self._chunks: list[bytes] = []
        """The chunks of an incomplete frame. The first one begins with the frame's head."""
        self._buffered = 0
        """The number of bytes in ``_chunks``."""
        self._needed = HEAD_BYTES
        """The number of bytes that ``_chunks`` must have before they are parsed again."""
        self._is_long = False
        """Whether the incomplete frame is a long one, whose head has been checked. ``_needed`` is
        then the length of the whole frame, with its head."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Parse received bytes, and return the message bodies that are now complete.

        Keep-alives are dropped. Raises ProtocolViolation; the decoder must not be used afterwards.
        """
        assert self.long_answer is None, "the rest of the long answer is missing"
        bodies: list[bytes] = []
        if self._chunks:
            self._chunks.append(chunk)
            self._buffered += len(chunk)
            if self._buffered < self._needed:
                return []
            if self._is_long:
                body, chunk = self._split_long_frame()
                bodies.append(body)
            else:
                chunk = b"".join(self._chunks)
            self._chunks.clear()
            self._is_long = False
        position, end_of_data = 0, len(chunk)
        self._needed = HEAD_BYTES
        while end_of_data - position >= HEAD_BYTES:
            magic, version, length = _HEAD.unpack_from(chunk, position)
            if (
                magic != self.spec.magic
                or version != self.version
                or not 0 <= length <= self._limit
            ):
                # The quick check above accepts the heads of correct frames. It rejects every head
                # of a Hello, because `self.version` is None then. The complete check decides.
                self._check_head(chunk[position : position + HEAD_BYTES])
            frame_bytes = HEAD_BYTES + length
            end = position + frame_bytes
            if end > end_of_data:
                # Only a part of the frame has arrived.
                self._expect_rest(chunk, position, length)
                break
            if length:
                body = chunk[position + HEAD_BYTES : end]
                if self.version is None:
                    self._choose_version(body)
                else:
                    bodies.append(body)
            position = end
        # The rest of the chunk begins a frame. A `LongAnswer` has copied these bytes already.
        if position < end_of_data and self.long_answer is None:
            self._chunks.append(chunk[position:] if position else chunk)
            self._buffered = end_of_data - position
        return bodies

    @property
    def mid_frame(self) -> bool:
        """Whether only a part of the last frame has arrived."""
        return bool(self._chunks) or self.long_answer is not None

    @property
    def incomplete_bytes(self) -> int:
        """How many bytes of an incomplete frame are kept here, without those of a `LongAnswer`."""
        return self._buffered if self._chunks else 0

    def drop_incomplete(self) -> None:
        """Free the bytes of an incomplete frame: the connection has ended."""
        self._chunks.clear()
        self.long_answer = None

    def keep_alive(self) -> bytes:
        """Return an empty frame with the magic and version that the connection uses now."""
        if self.version is None:
            return encode_frame(HELLO_MAGIC, 0)
        return encode_frame(self.spec.magic, self.version)

    def _expect_rest(self, chunk: bytes, position: int, length: int) -> None:
        """Choose how to receive the rest of an incomplete frame, which begins at ``position``.

        ``length`` is the length of its body in bytes. Raises ProtocolViolation if a message of this
        type may not be so long.
        """
        frame_bytes = HEAD_BYTES + length
        self._needed = frame_bytes
        arrived = len(chunk) - position - HEAD_BYTES
        if length > MAX_SMALL_FRAME_BYTES and self.large_types is not None:
            # Check the message type of a large frame now: after the whole body has arrived, it
            # would be too late to protect the memory. The type is the first byte of the body. If
            # this byte has not arrived, parse again as soon as it arrives.
            if arrived:
                self._check_large_frame(chunk[position + HEAD_BYTES], length)
            else:
                self._needed = HEAD_BYTES + 1
        # `feed` does not parse the head of a long frame again. So a Hello is never a long frame,
        # and neither is a frame whose type must still be checked.
        self._is_long = (
            length >= _LONG_BODY_BYTES and self._needed == frame_bytes and self.version is not None
        )
        if (
            self._is_long
            and length >= _LONG_ANSWER_BYTES
            and arrived
            and chunk[position + HEAD_BYTES] in self._long_answers
        ):
            self._begin_long_answer(chunk[position + HEAD_BYTES :], length)

    def _begin_long_answer(self, arrived: bytes, length: int) -> None:
        """Make the caller receive the rest of a body of ``length`` bytes, after ``arrived``."""
        body = bytearray(length)
        body[: len(arrived)] = arrived
        self.long_answer = LongAnswer(body, len(arrived))
        # The next chunk begins with the head of the next frame.
        self._needed, self._is_long = HEAD_BYTES, False

    def _split_long_frame(self) -> tuple[bytes, bytes]:
        """Return the body of the long frame in ``_chunks``, and the bytes after the frame.

        The frame is complete now. Its body is copied only once: if all chunks were joined first,
        cutting the body out would be a second copy.
        """
        first, *others, last = self._chunks
        last_bytes = len(last) - (self._buffered - self._needed)
        parts: list[bytes | memoryview] = [memoryview(first)[HEAD_BYTES:], *others]
        parts.append(memoryview(last)[:last_bytes])
        return b"".join(parts), last[last_bytes:]

    def _check_head(self, head: bytes) -> None:
        """Raise ProtocolViolation if ``head`` is wrong for a Hello, or later for a frame."""
        magic, version, length = _HEAD.unpack(head)
        in_handshake = self.version is None
        expected_magic = HELLO_MAGIC if in_handshake else self.spec.magic
        expected_version = 0 if in_handshake else self.version
        if magic != expected_magic:
            if magic == HELLO_MAGIC and not in_handshake:
                raise ProtocolViolation("a second Hello")
            raise ProtocolViolation(_describe_foreign_peer(head, self.spec))
        if version != expected_version:
            raise ProtocolViolation(
                f"frame of version {version} on a {self.spec.name} connection that agreed on "
                f"version {expected_version}"
            )
        if not 0 <= length <= self._limit:
            raise ProtocolViolation(f"frame length {length} is outside 0..{self._limit}")

    def _check_large_frame(self, message_type: int, length: int) -> None:
        """Raise ProtocolViolation if messages of this type may not be large."""
        assert self.large_types is not None
        if message_type not in self.large_types:
            raise ProtocolViolation(
                f"message of type {message_type} with {length} bytes, at most "
                f"{MAX_SMALL_FRAME_BYTES} are allowed now"
            )

    def _choose_version(self, body: bytes) -> None:
        """Choose the largest version that both Hellos offer. Raises ProtocolViolation."""
        try:
            offered, self.peer_text = decode_hello(body)
        except MalformedMessage as error:
            raise ProtocolViolation(f"bad Hello: {error}") from error
        common = set(offered) & set(self.spec.versions)
        if not common:
            raise ProtocolViolation(
                f"no common version: the peer offers {sorted(offered)}, "
                f"this side {sorted(self.spec.versions)} of the {self.spec.name} protocol"
            )
        self.version = max(common)
        self._limit = self._max_frame_bytes


def _describe_foreign_peer(head: bytes, spec: ProtocolSpec) -> str:
    """Return an error text: which protocol the peer seems to use, by its first bytes."""
    if head[:2] == b"\x16\x03":
        return "the peer speaks TLS, but this side is set to plaintext"
    if head[:4] in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return f"the peer speaks HTTP, but this is a {spec.name} port"
    for protocol in (CLIENT_SERVER, STORAGE, ADMIN):
        if head[0] == protocol.magic and protocol.magic != spec.magic:
            return f"the peer speaks the {protocol.name} protocol, but this is a {spec.name} port"
    return f"not a {spec.name} frame: it begins with {head.hex(' ')}"
