"""Frames: each decodes to the fields that the vectors give, and the fields encode to the frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.messages import (
    PROTOCOLS,
    Entry,
    messages_of,
    our_message,
    req_id,
    wire_entries,
)
from waltz.protocol import (
    ADMIN,
    CLIENT_SERVER,
    STORAGE,
    FrameDecoder,
    Lock,
    MalformedMessage,
    ProtocolSpec,
    ProtocolViolation,
    ReqId,
    UnsupportedByPeer,
    checksum,
    client_server,
)
from waltz.protocol.client_server import MountState
from waltz.protocol.frames import HEAD_BYTES, decode_hello, encode_frame, encode_hello

REFERENCE = {CLIENT_SERVER: (0, 1, 2, 3, 4), STORAGE: (0,), ADMIN: (0,)}
"""The versions of Waltz 0.13.2."""
BY_MAGIC = {"L": "client-server", "S": "storage", "A": "storage-admin"}


@pytest.fixture(scope="module")
def entries(vectors: Path) -> list[Entry]:
    return wire_entries(vectors)


def load(vectors: Path, name: str) -> Any:
    return json.loads((vectors / name).read_text())


def decoder(spec: ProtocolSpec, version: int) -> FrameDecoder:
    """Return a decoder whose handshake agreed on ``version``."""
    ready = FrameDecoder(spec)
    assert ready.feed(encode_hello((version,), "peer")) == []
    return ready


def test_frame_of_each_message_decodes_to_its_fields(entries: list[Entry]) -> None:
    for entry in messages_of(entries):
        spec, messages = PROTOCOLS[entry["protocol"]]
        version, frame = entry["version"], bytes.fromhex(entry["hex"])
        [body] = decoder(spec, version).feed(frame)
        assert messages.decode(body, version) == our_message(
            entry["protocol"], entry["message"], entry["fields"]
        ), entry


def test_fields_of_each_message_encode_to_its_frame(entries: list[Entry]) -> None:
    for entry in messages_of(entries):
        _, messages = PROTOCOLS[entry["protocol"]]
        encoded = messages.encode(
            our_message(entry["protocol"], entry["message"], entry["fields"]), entry["version"]
        )
        assert encoded.hex() == entry["hex"], entry


def test_client_ahead_is_sent_as_not_ready_on_versions_before_3(entries: list[Entry]) -> None:
    ahead = [
        entry
        for entry in entries
        if entry["fields"].get("sourcePartitionState") == MountState.CLIENT_AHEAD
    ]
    assert ahead
    for entry in ahead:
        answer = client_server.MountResponse(
            req_id(entry["fields"]["reqId"]), MountState.CLIENT_AHEAD
        )
        assert client_server.encode(answer, entry["version"]).hex() == entry["hex"]


def test_vectors_have_exactly_the_messages_of_each_version(entries: list[Entry], own: bool) -> None:
    """The vectors have no message that the tables lack, and the reverse."""
    listed = messages_of(entries)
    for name, (spec, messages) in PROTOCOLS.items():
        for version in spec.versions if own else REFERENCE[spec]:
            recorded = {
                e["type"] for e in listed if e["protocol"] == name and e["version"] == version
            }
            known = set()
            for code in range(256):
                try:
                    messages.decode(bytes([code]), version)
                except MalformedMessage as error:
                    if "unknown message type" not in str(error):
                        known.add(code)
            assert known == recorded, (name, version)


def test_hellos_decode_and_encode_to_the_same_bytes(entries: list[Entry]) -> None:
    hellos = [e for e in entries if e["message"] == "Hello"]
    assert hellos
    for entry in hellos:
        frame, fields = bytes.fromhex(entry["hex"]), entry["fields"]
        offered, text = tuple(fields["versions"]), fields["message"]
        assert decode_hello(frame[HEAD_BYTES:]) == (offered, text)
        assert encode_hello(offered, text) == frame


def test_hellos_of_both_sides_equal_the_vectors(entries: list[Entry], own: bool) -> None:
    recorded = {e["hex"] for e in entries if e["message"] == "Hello"}
    ours = {
        (spec if own else spec.limited_to(*REFERENCE[spec])).hello(side).hex()
        for spec, _ in PROTOCOLS.values()
        for side in (True, False)
    }
    assert ours == recorded


def test_keep_alives_are_ignored_and_sent_with_the_same_bytes(entries: list[Entry]) -> None:
    keep_alives = [e for e in entries if e["message"] == "KeepAlive"]
    assert keep_alives
    for entry in keep_alives:
        frame = bytes.fromhex(entry["hex"])
        if entry["protocol"] == "hello":
            connection = FrameDecoder(CLIENT_SERVER)
        else:
            connection = decoder(PROTOCOLS[entry["protocol"]][0], entry["version"])
        assert connection.feed(frame) == []
        assert connection.keep_alive() == frame
        assert not connection.mid_frame


def test_invalid_frames_are_refused_by_the_responsible_layer(vectors: Path) -> None:
    for case in load(vectors, "wire-negative.json"):
        if "hex" not in case:
            continue
        spec, messages = PROTOCOLS[BY_MAGIC[case["magic"]]]
        version, frame = case["negotiatedVersion"], bytes.fromhex(case["hex"])
        connection = decoder(spec, version)
        if case["error"] is None:
            bodies = connection.feed(frame)
            decoded = [messages.decode(body, version) for body in bodies]
            if case["decodedType"] is None:
                assert decoded == [], case
                assert connection.mid_frame, case
            else:
                assert bodies[0][0] == case["decodedType"], case
                if "result" in case:
                    assert decoded[0].result == case["result"], case
        elif case["error"].startswith("CorruptedFrameException"):
            with pytest.raises(ProtocolViolation):
                connection.feed(frame)
        else:
            [body] = connection.feed(frame)
            with pytest.raises(MalformedMessage):
                messages.decode(body, version)


def test_invalid_head_is_refused_before_its_body_arrives(vectors: Path) -> None:
    for case in load(vectors, "wire-negative.json"):
        if (case.get("error") or "").startswith("CorruptedFrameException"):
            spec, _ = PROTOCOLS[BY_MAGIC[case["magic"]]]
            with pytest.raises(ProtocolViolation):
                decoder(spec, case["negotiatedVersion"]).feed(
                    bytes.fromhex(case["hex"])[:HEAD_BYTES]
                )


def test_locks_that_a_version_lacks_are_refused_by_the_encoder(vectors: Path) -> None:
    cases = [case["case"] for case in load(vectors, "wire-negative.json") if "encodeError" in case]
    assert cases
    for case in cases:
        version = int(case.rsplit(" ", 1)[1])
        locks = {"read": (), "append": ()} | {case.split()[1]: (Lock("row", 1).hash(),)}
        request = client_server.AppendRequest(
            ReqId(1, 0, 0, 0), -1, (), locks["read"], locks["append"], 0, b"", 0
        )
        with pytest.raises(UnsupportedByPeer, match=r"\d: upgrade it"):
            client_server.encode(request, version)


def test_append_with_altered_data_is_refused(entries: list[Entry]) -> None:
    """Every recorded append is refused when any bit of its data changes."""
    appends = [
        e
        for e in messages_of(entries)
        if e["protocol"] == "client-server" and e["fields"].get("data_hex") and e["type"] == 2
    ]
    for entry in appends:
        frame = bytes.fromhex(entry["hex"])
        damaged = bytearray(frame[HEAD_BYTES:])
        damaged[-5] ^= 1
        with pytest.raises(MalformedMessage, match="checksum"):
            client_server.decode(bytes(damaged), entry["version"])


def test_frames_consist_of_head_and_body(entries: list[Entry]) -> None:
    for entry in entries:
        frame = bytes.fromhex(entry["hex"])
        version = int.from_bytes(frame[1:3], "big")
        assert encode_frame(frame[0], version, frame[HEAD_BYTES:]) == frame


def test_checksum_of_the_data_is_that_of_the_message(entries: list[Entry]) -> None:
    for entry in messages_of(entries):
        if "data_hex" in entry["fields"]:
            data = bytes.fromhex(entry["fields"]["data_hex"])
            assert checksum(data) == entry["fields"]["checksum"]
