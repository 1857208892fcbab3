"""The appends of a batch, and the outcomes of appends (spec/wire.md sections 9 and 12). Pure.

`client_messages` has the messages that contain them, and defines the client high-water mark and the
locks of an append.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from waltz.protocol.fields import BYTES, INT, INTS, MalformedMessage, Reader
from waltz.protocol.records import NO_TRANSACTION, checksum

MAX_BATCH_APPENDS = 10_000
"""The most appends of one batch."""
MAX_LOCKS = 1 << 16
"""The most locks of one append, and of all appends of a batch together."""

LOG_MARK = -(1 << 63)
"""A special value for the client high-water mark of an append, from version 6 on.

A client sends it for an append whose caller names no mark. The server replaces it by the log's
high-water mark at the time when the append arrives. So a lock that a committed transaction took
before does not refuse the append. A lock of an append that is still open at that time does, if that
append commits."""

_OUTCOME = struct.Struct(">bq")
"""A `BatchedOutcome`."""
_ANSWER = struct.Struct(">iiiibq")
"""An `AppendAnswer`."""
_SMALLEST_APPEND_BYTES = 24
"""An append without locks and data has six ints: three counts of locks, header, data length,
checksum."""


@dataclass(frozen=True, slots=True)
class BatchedAppend:
    """One append of a batch. The locks are hashes (`Lock.hash`).

    ``header`` is an int of the application. ``checksum`` is the CRC-32 of ``data``.
    """

    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    header: int
    data: bytes
    checksum: int


class OutcomeKind(IntEnum):
    """How an append ended."""

    COMMITTED = 0
    REFUSED = 1
    """A lock refused the append, which is not in the log and never will be."""
    ABSENT = 2
    """The append is not in the log and never will be, for another reason than REFUSED and AHEAD.

    The client may send it again as it is."""
    UNKNOWN = 3
    """The append may be in the log; the client must search the log before it sends it again."""
    AHEAD = 4
    """The log ends before the append's client high-water mark, so its locks could not be checked.

    The append is not in the log and never will be. Versions before 6 lack this outcome.
    """


_OUTCOME_KINDS = frozenset(map(int, OutcomeKind))


@dataclass(frozen=True, slots=True)
class BatchedOutcome:
    """The outcome of one append.

    The meaning of ``transaction_id`` depends on ``kind``:

    * COMMITTED: the id of the append's transaction
    * REFUSED: the id up to which the client must apply the log before it sends the append again
    * AHEAD: the last id of the log
    * ABSENT, UNKNOWN: -1
    """

    kind: OutcomeKind
    transaction_id: int = NO_TRANSACTION


class AppendsCodec:
    """An int count, then that many `BatchedAppend`. Reading checks the checksum of each."""

    def write(self, out: list[bytes], value: tuple[BatchedAppend, ...]) -> None:
        """Add the encoded count and appends to ``out``."""
        INT.write(out, len(value))
        for append in value:
            for locks in (append.write_locks, append.read_locks, append.append_locks):
                INTS.write(out, locks)
            INT.write(out, append.header)
            BYTES.write(out, append.data)
            INT.write(out, append.checksum)

    def read(self, reader: Reader) -> tuple[BatchedAppend, ...]:
        """Read the count and the appends; raises MalformedMessage, also for an empty batch."""
        count = reader.take_count(_SMALLEST_APPEND_BYTES)
        if not 0 < count <= MAX_BATCH_APPENDS:
            raise MalformedMessage(f"a batch of {count} appends")
        appends = tuple(_read_append(reader) for _ in range(count))
        check_locks(
            sum(
                len(append.write_locks) + len(append.read_locks) + len(append.append_locks)
                for append in appends
            )
        )
        return appends


class OutcomesCodec:
    """An int count, then that many `BatchedOutcome`."""

    def write(self, out: list[bytes], value: tuple[BatchedOutcome, ...]) -> None:
        """Add the encoded count and outcomes to ``out``."""
        INT.write(out, len(value))
        out += (_OUTCOME.pack(outcome.kind, outcome.transaction_id) for outcome in value)

    def read(self, reader: Reader) -> tuple[BatchedOutcome, ...]:
        """Read the count and the outcomes; raises MalformedMessage."""
        raw = [reader.take_numbers(_OUTCOME) for _ in range(reader.take_count(_OUTCOME.size))]
        try:
            return tuple(
                BatchedOutcome(OutcomeKind(kind), transaction_id) for kind, transaction_id in raw
            )
        except ValueError as error:
            raise MalformedMessage(f"unknown outcome of an append: {error}") from None


class AppendAnswer(NamedTuple):
    """The outcome of an append, which the first four numbers identify: they are its request id.

    ``kind`` is the number of an `OutcomeKind`. ``transaction_id`` has the meaning that
    `BatchedOutcome` describes. This is a plain tuple of numbers for speed.
    """

    client_id: int
    generation: int
    partition: int
    seq: int
    kind: int
    transaction_id: int


class AnswersCodec:
    """An int count, then that many `AppendAnswer`."""

    def write(self, out: list[bytes], value: Sequence[AppendAnswer]) -> None:
        """Add the encoded count and answers to ``out``."""
        INT.write(out, len(value))
        out += (_ANSWER.pack(*answer) for answer in value)

    def read(self, reader: Reader) -> tuple[AppendAnswer, ...]:
        """Read the count and the answers; raises MalformedMessage."""
        raw = reader.take(_ANSWER.size * reader.take_count(_ANSWER.size))
        answers = tuple(map(AppendAnswer._make, _ANSWER.iter_unpack(raw)))
        for answer in answers:
            if answer.kind not in _OUTCOME_KINDS:
                raise MalformedMessage(f"unknown outcome of an append: {answer.kind}")
        return answers


def check_locks(count: int) -> None:
    """Raise MalformedMessage if a request with ``count`` locks has more than `MAX_LOCKS`."""
    if count > MAX_LOCKS:
        raise MalformedMessage(f"{count} locks in one request: at most {MAX_LOCKS} can be taken")


def _read_append(reader: Reader) -> BatchedAppend:
    write_locks, read_locks, append_locks = (INTS.read(reader) for _ in range(3))
    header, data, claimed_checksum = INT.read(reader), BYTES.read(reader), INT.read(reader)
    if data is None:
        raise MalformedMessage("append without data")
    if checksum(data) != claimed_checksum:
        raise MalformedMessage("data does not match its checksum")
    return BatchedAppend(write_locks, read_locks, append_locks, header, data, claimed_checksum)


APPENDS = AppendsCodec()
OUTCOMES = OutcomesCodec()
ANSWERS = AnswersCodec()
