"""Generate wire.json and wire-negative.json: example messages, and refused frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.vectors.generate.wire_examples import (
    CLIENT_SERVER,
    STORAGE,
    STORAGE_ADMIN,
    Fields,
    append,
    req,
)
from tests.vectors.messages import PROTOCOLS, our_message
from waltz.protocol.frames import HEAD_BYTES, decode_hello, encode_frame

_DIRECTIONS = {
    "client-server": ("client->server", "server->client"),
    "storage": ("server->storage", "storage->server"),
    "storage-admin": ("admin-client->storage", "storage->admin-client"),
}
_LAST_VERSION = {"client-server": 7, "storage": 3, "storage-admin": 3}
_HEADS: dict[str, Fields] = {
    "client-server": {"reqId": req()},
    "storage": {"sessionId": 9, "seqNum": 17, "partitionId": 2},
    "storage-admin": {"seqNum": 17},
}


def wire() -> list[Fields]:
    """Return wire.json: Hellos, keep-alives, and each form of each message."""
    examples = {"client-server": CLIENT_SERVER, "storage": STORAGE, "storage-admin": STORAGE_ADMIN}
    messages = [
        _entry(protocol, name, versions, _HEADS[protocol] | fields)
        for protocol, listed in examples.items()
        for name, versions, fields in listed
    ]
    return [*_hellos(), *_keep_alives(), *messages]


def _entry(protocol: str, name: str, versions: range, fields: Fields) -> Fields:
    frame: bytes = PROTOCOLS[protocol][1].encode(our_message(protocol, name, fields), versions[0])
    to, back = _DIRECTIONS[protocol]
    return {
        "protocol": protocol,
        "versions": list(versions),
        "message": name,
        "type": frame[HEAD_BYTES],
        "direction": to if name.endswith("Request") else back,
        "fields": fields,
        "hex": frame.hex(),
    }


def _hellos() -> Iterator[Fields]:
    for protocol, (spec, _) in PROTOCOLS.items():
        for dialer, direction in zip((True, False), _DIRECTIONS[protocol], strict=True):
            frame = spec.hello(dialer)
            versions, text = decode_hello(frame[HEAD_BYTES:])
            assert max(versions) == _LAST_VERSION[protocol]
            yield {
                "protocol": "hello",
                "version": 0,
                "message": "Hello",
                "type": None,
                "direction": direction,
                "usedBy": protocol,
                "fields": {"versions": list(versions), "message": text},
                "hex": frame.hex(),
            }


def _keep_alives() -> Iterator[Fields]:
    magics = {"hello": b"H", "client-server": b"L", "storage": b"S", "storage-admin": b"A"}
    for protocol, magic in magics.items():
        version = _LAST_VERSION.get(protocol, 0)
        yield {
            "protocol": protocol,
            "version": version,
            "message": "KeepAlive",
            "type": None,
            "direction": "both",
            "fields": {},
            "hex": encode_frame(magic[0], version, b"").hex(),
        }


def negative() -> list[Fields]:
    """Return wire-negative.json: frames with one fault each, and what is wrong with them."""
    fields = {"reqId": req(), **append(write=[112], read=[], append=[])}
    messages = PROTOCOLS["client-server"][1]
    good = messages.encode(our_message("client-server", "AppendRequest", fields), 4)
    head, body = good[:HEAD_BYTES], good[HEAD_BYTES:]

    def framed(body: bytes, version: int = 4) -> bytes:
        return encode_frame(ord("L"), version, body)

    def case(name: str, frame: bytes, error: str | None, version: int = 4, **more: Any) -> Fields:
        fields = {"case": name, "magic": "L", "negotiatedVersion": version, "hex": frame.hex()}
        return {**fields, "error": error, **more}

    preferred = {"reqId": req(), "result": False}
    answer = messages.encode(
        our_message("client-server", "AddPreferredPartitionResponse", preferred), 4
    )
    state = {"reqId": req(), "partitionState": 2}
    mounted = messages.encode(our_message("client-server", "MountResponse", state), 4)
    return [
        case("valid frame", good, None, decodedType=2),
        case("wrong magic", b"X" + good[1:], "CorruptedFrameException: magic"),
        case(
            "version 3 on a connection of version 4",
            framed(body, 3),
            "CorruptedFrameException: version",
        ),
        case("wrong checksum of the data", good[:-1] + bytes([good[-1] ^ 1]), "checksum"),
        case("one byte after the last field", framed(body + b"\0"), "corrupted message"),
        case("body one byte too short", framed(body[:-1]), "corrupted message"),
        case("incomplete frame: the decoder waits", head + body[:-1], None, decodedType=None),
        case("unknown type", framed(b"\x63" + body[1:]), "unknown message type"),
        case(
            "type of version 4 on version 2",
            framed(b"\x15" + body[1:17], 2),
            "unknown message type",
            2,
        ),
        case(
            "MountResponse of version 4 on version 2",
            framed(mounted[HEAD_BYTES:], 2),
            "corrupted message",
            2,
        ),
        case(
            "boolean 2 is false",
            framed(answer[HEAD_BYTES:-1] + b"\2"),
            None,
            decodedType=18,
            result=False,
        ),
        {"case": "encode read locks at version 0", "encodeError": "upgrade"},
        {"case": "encode append locks at version 1", "encodeError": "upgrade"},
    ]
