"""The read requests of a client to one partition, and their results. Pure.

`waltz.client.core.requests` sends the requests. A *range* is a number of consecutive transactions.
"""

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

    ``data`` is set for DATA, ``records`` for RECORDS, ``headers`` for HEADERS. Data and records are
    verified. Records are in wire form, or in their form on disk if the request allows it. ``mark``
    is the high-water mark for MARK, RECORDS, HEADERS and AHEAD. ``corrupt_id`` is the transaction
    of CORRUPT, ``version`` the server's protocol version for UNSUPPORTED, ``denial`` the reason of
    DENIED.
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

    If ``first_id`` is beyond the next id of the log, the kind of the answer is AHEAD. With
    ``stored``, the answer may have records in their form on disk, a `StoredBatch`.
    """

    first_id: int
    max_records: int
    max_bytes: int
    wait_ms: int = 0
    stored: bool = False


@dataclass(frozen=True, slots=True)
class ReadHeaders:
    """Read the headers of transactions from ``first_id`` on. The server does not wait for them.

    If ``first_id`` is beyond the next id of the log, the kind of the answer is AHEAD.
    """

    first_id: int
    max_headers: int


ReadRequest = ReadData | ReadMark | ReadRecords | ReadHeaders
