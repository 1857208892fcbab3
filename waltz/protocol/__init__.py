"""Frames and messages of the three protocols, as bytes and as values. Pure.

* `records`: transaction records and batches of them; `stored`: their form on disk
* `fields`: the data types inside a message
* `frames`: framing, handshake, version negotiation
* `client_server`, `storage`, `admin`: the messages and how they are encoded
* `client_messages`: those of the client protocol as values; `client_numbers`: their type bytes
  and versions
* `batches`: the appends of a batch, and their outcomes
* `layout`: how a table of fields becomes an encoder and a decoder
* `locks`: lock ids and their hashes

Source of every rule: spec/wire.md sections 1 to 11.
"""

from waltz.protocol.fields import MalformedMessage
from waltz.protocol.frames import (
    ADMIN,
    CLIENT_SERVER,
    STORAGE,
    FrameDecoder,
    ProtocolSpec,
    ProtocolViolation,
)
from waltz.protocol.layout import UnsupportedByPeer
from waltz.protocol.locks import Lock
from waltz.protocol.records import (
    NO_TRANSACTION,
    MalformedBatch,
    Record,
    RecordBatch,
    RecordHeader,
    ReqId,
    checksum,
)

__all__ = [
    "ADMIN",
    "CLIENT_SERVER",
    "NO_TRANSACTION",
    "STORAGE",
    "FrameDecoder",
    "Lock",
    "MalformedBatch",
    "MalformedMessage",
    "ProtocolSpec",
    "ProtocolViolation",
    "Record",
    "RecordBatch",
    "RecordHeader",
    "ReqId",
    "UnsupportedByPeer",
    "checksum",
]
