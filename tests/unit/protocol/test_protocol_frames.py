"""Framing and handshake: chunks of any size, version negotiation, and refused bytes."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.protocol import (
    ADMIN,
    CLIENT_SERVER,
    STORAGE,
    FrameDecoder,
    MalformedMessage,
    ProtocolSpec,
    ProtocolViolation,
    client_server,
    frames,
)
from waltz.protocol.frames import (
    HEAD_BYTES,
    HELLO_MAGIC,
    MAX_HELLO_BYTES,
    encode_frame,
    encode_hello,
)

NEWEST = max(CLIENT_SERVER.versions)
SPECS = st.sampled_from((CLIENT_SERVER, STORAGE, ADMIN))


def agreed(spec: ProtocolSpec = CLIENT_SERVER, version: int | None = None) -> FrameDecoder:
    """Return a decoder after its handshake."""
    decoder = FrameDecoder(spec)
    offered = spec.versions if version is None else (version,)
    assert decoder.feed(encode_hello(offered, "peer")) == []
    return decoder


def chunked(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Cut ``stream`` at the given places."""
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


@settings(max_examples=500)
@given(
    SPECS,
    st.lists(st.binary(min_size=0, max_size=60), max_size=12),
    st.lists(st.integers(0, 10_000), max_size=30),
    st.sampled_from((1, 20, 1 << 16)),
)
def test_decoder_gives_the_same_bodies_for_any_chunks(
    spec: ProtocolSpec, bodies: list[bytes], cuts: list[int], long_bytes: int
) -> None:
    version = max(spec.versions)
    stream = encode_hello(spec.versions, "peer") + b"".join(
        encode_frame(spec.magic, version, body) for body in bodies
    )
    decoder = FrameDecoder(spec)
    with patch.object(frames, "_LONG_BODY_BYTES", long_bytes):
        received = [body for chunk in chunked(stream, cuts) for body in decoder.feed(chunk)]
    assert received == [body for body in bodies if body]
    assert decoder.version == version
    assert decoder.peer_text == "peer"
    assert not decoder.mid_frame


def receive(decoder: FrameDecoder, chunk: bytes) -> list[bytes]:
    """Feed ``chunk`` as a connection does, which receives the rest of long answers itself."""
    bodies: list[bytes] = []
    answer = decoder.long_answer
    if answer is not None:
        missing = len(answer.body) - answer.received
        answer.body[answer.received : answer.received + missing] = (chunk + bytes(missing))[
            :missing
        ]
        answer.received += min(len(chunk), missing)
        if answer.received < len(answer.body):
            return []
        bodies.append(bytes(answer.body))
        decoder.long_answer = None
        chunk = chunk[missing:]
    return bodies + decoder.feed(chunk)


@settings(max_examples=500)
@given(
    st.lists(st.binary(min_size=0, max_size=60), max_size=12),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_decoder_leaves_the_rest_of_long_answers_to_its_caller(
    bodies: list[bytes], cuts: list[int]
) -> None:
    """A third of the first bytes are types of long answers."""
    stream = encode_hello(STORAGE.versions, "peer") + b"".join(
        encode_frame(STORAGE.magic, max(STORAGE.versions), body) for body in bodies
    )
    decoder = FrameDecoder(STORAGE, long_answers=frozenset(range(0, 256, 3)))
    with (
        patch.object(frames, "_LONG_BODY_BYTES", 10),
        patch.object(frames, "_LONG_ANSWER_BYTES", 20),
    ):
        received = [body for chunk in chunked(stream, cuts) for body in receive(decoder, chunk)]
    assert received == [body for body in bodies if body]
    assert not decoder.mid_frame


def test_decoder_within_a_long_answer_is_mid_frame() -> None:
    decoder = FrameDecoder(STORAGE, long_answers=STORAGE.long_answers)
    decoder.feed(encode_hello(STORAGE.versions, "peer"))
    body = bytes((frames.STORED_LIST_TYPE,)) * (1 << 20)
    decoder.feed(encode_frame(STORAGE.magic, max(STORAGE.versions), body)[:1000])
    assert decoder.long_answer is not None
    assert decoder.long_answer.received == 1000 - HEAD_BYTES
    assert decoder.mid_frame


def test_decoder_fed_byte_by_byte_gives_all_bodies() -> None:
    frame = encode_frame(CLIENT_SERVER.magic, NEWEST, b"body")
    decoder = FrameDecoder(CLIENT_SERVER)
    stream = CLIENT_SERVER.hello(dialer=True) + frame + frame
    received = [body for i in range(len(stream)) for body in decoder.feed(stream[i : i + 1])]
    assert received == [b"body", b"body"]


def test_decoder_keeps_half_a_frame() -> None:
    decoder = agreed()
    frame = encode_frame(CLIENT_SERVER.magic, NEWEST, b"x" * 1000)
    assert decoder.feed(frame[:500]) == []
    assert decoder.mid_frame
    assert decoder.feed(frame[500:]) == [b"x" * 1000]
    assert not decoder.mid_frame


@settings(max_examples=500)
@given(
    SPECS,
    st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
    st.lists(st.integers(0, 10_000), max_size=8),
    st.booleans(),
)
def test_decoder_of_mutated_streams_raises_only_protocol_violation(
    spec: ProtocolSpec,
    bodies: list[bytes],
    flips: list[tuple[int, int]],
    cuts: list[int],
    after_handshake: bool,
) -> None:
    version = max(spec.versions)
    frames = b"".join(encode_frame(spec.magic, version, body) for body in bodies)
    stream = bytearray(frames if after_handshake else spec.hello(dialer=True) + frames)
    for at, bits in flips:
        stream[at % len(stream)] ^= bits
    decoder = agreed(spec) if after_handshake else FrameDecoder(spec)
    with suppress(ProtocolViolation):
        for chunk in chunked(bytes(stream), cuts):
            decoder.feed(chunk)


@settings(max_examples=500)
@given(st.binary(max_size=200), st.booleans())
def test_decoder_of_garbage_raises_only_protocol_violation_or_malformed_message(
    junk: bytes, after_handshake: bool
) -> None:
    decoder = agreed() if after_handshake else FrameDecoder(CLIENT_SERVER)
    with suppress(ProtocolViolation, MalformedMessage):
        for body in decoder.feed(junk):
            client_server.decode(body, NEWEST)


@settings(max_examples=500)
@given(
    st.lists(st.integers(-(2**15), 2**15 - 1), max_size=6, unique=True),
    st.sets(st.sampled_from(CLIENT_SERVER.versions), min_size=1),
)
def test_handshake_chooses_the_largest_common_version(theirs: list[int], ours: set[int]) -> None:
    decoder = FrameDecoder(CLIENT_SERVER.limited_to(*ours))
    hello = encode_hello(tuple(theirs), "")
    if not set(theirs) & ours:
        with pytest.raises(ProtocolViolation, match="no common version"):
            decoder.feed(hello)
        assert decoder.version is None
    else:
        decoder.feed(hello)
        assert decoder.version == max(set(theirs) & ours)


def test_decoder_refuses_a_second_hello() -> None:
    decoder = agreed()
    with pytest.raises(ProtocolViolation, match="second Hello"):
        decoder.feed(CLIENT_SERVER.hello(dialer=True))


def test_decoder_refuses_messages_before_the_hello() -> None:
    with pytest.raises(ProtocolViolation):
        FrameDecoder(CLIENT_SERVER).feed(encode_frame(CLIENT_SERVER.magic, NEWEST, b"early"))


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "speaks TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP"),
        (encode_frame(STORAGE.magic, 0, b"x"), "storage protocol, but this is a client/server"),
        (encode_frame(ADMIN.magic, 0, b"x"), "storage admin protocol, but this is"),
        (b"\0" * 16, "not a client/server frame"),
    ],
)
def test_decoder_names_the_protocol_of_a_foreign_peer(first: bytes, reason: str) -> None:
    with pytest.raises(ProtocolViolation, match=reason):
        FrameDecoder(CLIENT_SERVER).feed(first)


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_decoder_refuses_impossible_lengths_from_the_head_alone(length: int) -> None:
    decoder = FrameDecoder(CLIENT_SERVER, max_frame_bytes=1000)
    decoder.feed(CLIENT_SERVER.hello(dialer=True))
    head = bytes([CLIENT_SERVER.magic, 0, NEWEST]) + length.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolViolation, match="frame length"):
        decoder.feed(head)


def test_decoder_accepts_the_longest_allowed_frame() -> None:
    decoder = FrameDecoder(CLIENT_SERVER, max_frame_bytes=1000)
    decoder.feed(CLIENT_SERVER.hello(dialer=True))
    assert decoder.feed(encode_frame(CLIENT_SERVER.magic, NEWEST, b"z" * 1000)) == [b"z" * 1000]


@pytest.mark.parametrize("version", CLIENT_SERVER.versions)
def test_keep_alive_contains_the_agreed_version(version: int) -> None:
    before = FrameDecoder(CLIENT_SERVER).keep_alive()
    assert before == b"H" + bytes(6)
    after = agreed(version=version).keep_alive()
    assert after == encode_frame(CLIENT_SERVER.magic, version)
    assert len(after) == HEAD_BYTES
    assert agreed(version=version).feed(after * 3) == []


def test_hello_with_a_null_text_is_accepted() -> None:
    decoder = FrameDecoder(STORAGE)
    decoder.feed(encode_frame(ord("H"), 0, b"\0\0\0\1\0\0" + b"\xff" * 4))
    assert decoder.version == 0
    assert decoder.peer_text is None


@pytest.mark.parametrize(
    "body", [b"\0\0\0\1", b"\xff\xff\xff\xff", b"\0\0\0\1\0\0\0\0\0\0!", b"\x7f\xff\xff\xff\0\0"]
)
def test_malformed_hellos_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="bad Hello"):
        FrameDecoder(STORAGE).feed(encode_frame(ord("H"), 0, body))


def test_hello_longer_than_its_limit_is_refused() -> None:
    head = encode_frame(HELLO_MAGIC, 0, bytes(MAX_HELLO_BYTES + 1))[:HEAD_BYTES]
    with pytest.raises(ProtocolViolation, match=f"outside 0..{MAX_HELLO_BYTES}"):
        FrameDecoder(CLIENT_SERVER).feed(head)
