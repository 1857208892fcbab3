"""The ledger of one write: which attempts may have appended which rows. Kept in ZooKeeper. Pure.

A write is a streaming query, or one batch. Its ledger describes the newest epoch (a micro-batch; 0
for a batch): the mark of each partition before the epoch's first append there, and the client id of
every attempt at every task. Both together locate a task's rows in the log: after the mark, under
the client ids of the attempts.

An epoch can run several times: a restarted driver runs it again. Within a run each row belongs to
one task; another run may distribute the rows over other tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from waltz.protocol.locks import Lock

_FORMAT = 1


class Superseded(Exception):
    """A newer epoch of the write has begun; this attempt must not append any more."""

    def __init__(self, write_id: str, epoch: int, newest: int) -> None:
        super().__init__(
            f"the write {write_id} is in epoch {newest} and epoch {epoch} is over: this task was "
            "abandoned and appends nothing more, or the checkpoint is older than the log; in that "
            "case set a new writeId"
        )


class WriteIsOver(Exception):
    """The batch write that this attempt belongs to has ended."""

    def __init__(self, write_id: str) -> None:
        super().__init__(
            f"the write {write_id} has ended, and this abandoned task of it appended nothing more"
        )


class LedgerMalformed(ValueError):
    """The data of a ledger's znode cannot be decoded."""


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """An attempt that is not in the ledger yet; ``run`` names the run among those of its epoch."""

    epoch: int
    run: str
    task: int
    client_id: int


class AttemptedTask(NamedTuple):
    """The task of an attempt, and the number of its run, from 0."""

    task: int
    run: int


@dataclass(frozen=True, slots=True)
class AttemptLocks:
    """The locks of an attempt's appends.

    An append under them fails if another attempt has appended the same rows since the mark.
    """

    write_locks: tuple[Lock, ...]
    read_locks: tuple[Lock, ...] = ()
    append_locks: tuple[Lock, ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """``marks`` by partition, ``attempts`` by client id; ``runs`` in the order they began."""

    write_id: str
    epoch: int
    runs: tuple[str, ...] = ()
    marks: Mapping[int, int] = field(default_factory=dict)
    attempts: Mapping[int, AttemptedTask] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the node's data."""
        return json.dumps(
            {
                "format": _FORMAT,
                "writeId": self.write_id,
                "epoch": self.epoch,
                "marks": {str(p): str(mark) for p, mark in sorted(self.marks.items())},
                "runs": self.runs,
                "attempts": {str(client): at for client, at in sorted(self.attempts.items())},
            }
        ).encode()

    @classmethod
    def decode(cls, raw: bytes) -> Ledger:
        """Decode a znode's data. Raises LedgerMalformed."""
        try:
            fields: Any = json.loads(raw)
            if fields["format"] != _FORMAT:
                raise LedgerMalformed(f"unknown ledger format {fields['format']!r}")
            return cls(
                fields["writeId"],
                fields["epoch"],
                tuple(fields["runs"]),
                {int(p): int(mark) for p, mark in fields["marks"].items()},
                {int(client): AttemptedTask(*at) for client, at in fields["attempts"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise LedgerMalformed(f"not a ledger of a write: {problem}") from None

    def joined(self, attempt: NewAttempt, marks: Mapping[int, int]) -> Ledger:
        """Return the ledger with an attempt that is about to append to the partitions of ``marks``.

        ``marks`` are the partitions' present marks. A mark that the epoch recorded before is kept:
        otherwise rows appended since then would be missed. Raises Superseded.
        """
        if attempt.epoch < self.epoch:
            raise Superseded(self.write_id, attempt.epoch, self.epoch)
        before = self
        if attempt.epoch > self.epoch:
            before = Ledger(self.write_id, attempt.epoch)
        runs = before.runs if attempt.run in before.runs else (*before.runs, attempt.run)
        at = AttemptedTask(attempt.task, runs.index(attempt.run))
        return replace(
            before,
            runs=runs,
            marks={**marks, **before.marks},
            attempts={**before.attempts, attempt.client_id: at},
        )

    def competing_attempts(self, client_id: int, *, has_row_ids: bool) -> frozenset[int]:
        """Return the client ids of the other attempts that may have appended the same rows.

        They are those at the same task. Rows that have ids are recognised in any task, so for them
        all attempts of other runs count, too.
        """
        own = self.attempts[client_id]
        return frozenset(
            client
            for client, at in self.attempts.items()
            if client != client_id and (at.task == own.task or (has_row_ids and at.run != own.run))
        )

    def locks_of(self, client_id: int, *, has_row_ids: bool) -> AttemptLocks:
        """Return the locks that make an append fail if a competing attempt came between.

        Attempts at one task take the same lock. If rows have ids, a run also takes a lock that
        every older run checks, and one that every newer run checks. Without these locks an
        abandoned attempt could append a row again
        (`test_ledger_attempts_at_same_rows_conflict`).
        """
        own = self.attempts[client_id]
        tasks = (Lock(f"waltz.spark.task/{self.write_id}", own.task),)
        if not has_row_ids:
            return AttemptLocks(tasks)
        older = range(own.run)
        appended, overtaken = f"waltz.spark.run/{self.write_id}", f"waltz.spark.new/{self.write_id}"
        return AttemptLocks(
            tasks,
            (Lock(overtaken, own.run), *(Lock(appended, run) for run in older)),
            (Lock(appended, own.run), *(Lock(overtaken, run) for run in older)),
        )
