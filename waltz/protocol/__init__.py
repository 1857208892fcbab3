"""Frames and messages of the three protocols, as bytes and as values. Pure.

The protocols are those between client and server, between server and storage, and of the storage's
admin port.

* `records`: transaction records and batches of them; `stored`: the form of records on disk
* `fields`: the data types inside a message
* `frames`: framing, handshake, version negotiation
* `layout`: tables of message fields, from which messages are encoded and decoded
* `client_server`, `storage`, `admin`: the table of each protocol; `storage` and `admin` also define
  the messages of their protocols, as values
* `client_messages`: the messages between client and server, as values
* `client_numbers`: type bytes of the messages between client and server, and the versions that
  introduce them
* `batches`: the appends of a batch, and their outcomes, in messages between client and server
* `failures`: the error answer of a storage node
* `damaged_ranges`: the damaged records of a storage; `partition_states`: the switches and the state
  of a partition
* `locks`: lock ids and their hashes
* `checksums`: the CRC-32 of records, messages and files
* `notation`: partitions, transaction ids and locks in commands and messages

Source of every rule: spec/wire.md sections 1 to 13.
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
