"""The read requests of a client, and their results. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from waltz.protocol.records import NO_TRANSACTION, RecordBatch, RecordHeader
from waltz.protocol.stored import StoredBatch


class AnswerKind(Enum):
    """The kinds of results of a read request."""

    DATA = "the data of the transaction"
    MARK = "the high-water mark"
    RECORDS = "the records of a range, possibly none"
    HEADERS = "the headers of a range, possibly none"
    CORRUPT = "the data failed its checksum in every attempt"
    AHEAD = "the log ends before the transaction that precedes the range"
    UNSUPPORTED = "the protocol version of the server has no such request"
    DENIED = "the client has no right to make the request"


class Answer(NamedTuple):
    """The result of a read request; ``token`` is the object that was passed with the request.

    ``data`` is set for DATA, ``records`` for RECORDS, ``headers`` for HEADERS. The records are
    verified, in either form. ``mark`` is the high-water mark for MARK, RECORDS, HEADERS and AHEAD.
    ``corrupt_id`` is the transaction of CORRUPT, ``version`` the server's protocol version for
    UNSUPPORTED, ``denial`` the reason of DENIED.
    """

    token: object
    kind: AnswerKind
    data: bytes = b""
    mark: int = NO_TRANSACTION
    records: RecordBatch | StoredBatch | None = None
    headers: tuple[RecordHeader, ...] = ()
    corrupt_id: int = NO_TRANSACTION
    version: int = 0
    denial: str = ""


@dataclass(frozen=True, slots=True)
class ReadData:
    """Read the data of one transaction, which must be in the log."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class ReadMark:
    """Read the high-water mark."""


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Read records from ``first_id`` on. The server waits up to ``wait_ms`` for the first one.

    ``first_id`` is at most the next id of the log; otherwise the kind of the answer is AHEAD. With
    ``stored``, the answer may have a `StoredBatch`.
    """

    first_id: int
    max_records: int
    max_bytes: int
    wait_ms: int = 0
    stored: bool = False


@dataclass(frozen=True, slots=True)
class ReadHeaders:
    """Read headers from ``first_id`` on."""

    first_id: int
    max_headers: int


ReadRequest = ReadData | ReadMark | ReadRecords | ReadHeaders
