"""Who has written what for one write, as it is kept in ZooKeeper. Pure.

A write is a streaming query, or one batch. Its ledger is about its newest epoch (a micro-batch; 0
for a batch): the mark of each partition before the epoch appended anything there, and the client
id of every attempt at every task. With both, what has been appended for a task is found in the
log: after the mark, by the client ids of the attempts.

An epoch may be run several times: by a driver, and by the one that takes over. Within a run each
row belongs to one task; another run may have cut the rows otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from waltz.protocol.locks import Lock

_FORMAT = 1


class Superseded(Exception):
    """The write has gone on without this attempt, which must not append any more."""

    def __init__(self, write_id: str, epoch: int, newest: int) -> None:
        super().__init__(
            f"the write {write_id} is in epoch {newest} and epoch {epoch} is over: this is a task "
            "that was given up, or a checkpoint that is older than the log; in that case set a new "
            "writeId"
        )


class WriteIsOver(Exception):
    """The batch write that this attempt belongs to has ended."""

    def __init__(self, write_id: str) -> None:
        super().__init__(
            f"the write {write_id} has ended, and this is a task of it that was given up: nothing "
            "was appended"
        )


class LedgerMalformed(ValueError):
    """What is in ZooKeeper is not a ledger."""


@dataclass(frozen=True, slots=True)
class Joining:
    """An attempt before it is in the ledger; ``run`` names the run among those of its epoch."""

    epoch: int
    run: str
    task: int
    client_id: int


class Attempted(NamedTuple):
    """What an attempt is at: a task of a run, which is counted from 0."""

    task: int
    run: int


@dataclass(frozen=True, slots=True)
class Fence:
    """The locks that an attempt appends under: nobody else may have appended its rows meanwhile."""

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
    attempts: Mapping[int, Attempted] = field(default_factory=dict)

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
        """Return what a node's data says. Raises LedgerMalformed."""
        try:
            told: Any = json.loads(raw)
            if told["format"] != _FORMAT:
                raise LedgerMalformed(f"a ledger of format {told['format']!r}")
            return cls(
                told["writeId"],
                told["epoch"],
                tuple(told["runs"]),
                {int(p): int(mark) for p, mark in told["marks"].items()},
                {int(client): Attempted(*at) for client, at in told["attempts"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise LedgerMalformed(f"not a ledger of a write: {problem}") from None

    def joined(self, attempt: Joining, marks: Mapping[int, int]) -> Ledger:
        """Return the ledger with an attempt that is about to append to the partitions of ``marks``.

        ``marks`` are the partitions' present marks; what the epoch has noted before counts. Raises
        Superseded.
        """
        if attempt.epoch < self.epoch:
            raise Superseded(self.write_id, attempt.epoch, self.epoch)
        before = self
        if attempt.epoch > self.epoch:
            before = Ledger(self.write_id, attempt.epoch)
        runs = before.runs if attempt.run in before.runs else (*before.runs, attempt.run)
        at = Attempted(attempt.task, runs.index(attempt.run))
        return replace(
            before,
            runs=runs,
            marks={**marks, **before.marks},
            attempts={**before.attempts, attempt.client_id: at},
        )

    def others(self, client_id: int, *, stable: bool) -> frozenset[int]:
        """Return the client ids of the other attempts that may have appended the same rows.

        They are those at the same task. Rows with ids that are ``stable`` are recognised whatever
        task they were in, so for them all attempts of other runs count, too.
        """
        own = self.attempts[client_id]
        return frozenset(
            client
            for client, at in self.attempts.items()
            if client != client_id and (at.task == own.task or (stable and at.run != own.run))
        )

    def fence(self, client_id: int, *, stable: bool) -> Fence:
        """Return the locks of an attempt: its appends are refused if one of `others` came between.

        Attempts at one task write the same lock. With ``stable`` ids a run also tells every older
        one that a newer run appends, and every newer one that an older run does.
        """
        own = self.attempts[client_id]
        tasks = (Lock(f"waltz.spark.task/{self.write_id}", own.task),)
        if not stable:
            return Fence(tasks)
        older = range(own.run)
        appended, overtaken = f"waltz.spark.run/{self.write_id}", f"waltz.spark.new/{self.write_id}"
        return Fence(
            tasks,
            (Lock(overtaken, own.run), *(Lock(appended, run) for run in older)),
            (Lock(appended, own.run), *(Lock(overtaken, run) for run in older)),
        )
