"""The ledger of one write: which attempts may have appended which rows. Pure.

`ledger_store` keeps the ledger in ZooKeeper.

A *write* is a streaming query, or one batch. An *epoch* is one micro-batch of the query; a batch is
epoch 0. Spark divides an epoch into *tasks*, and may run several *attempts* at a task. The ledger
describes the newest epoch. It has the high-water mark (*mark*) of each partition before the epoch's
first append there, and the client id of every attempt at every task. So the rows of a task are
found in the log after that mark, by the client ids of the attempts at the task.

An epoch can have several *runs*, because a restarted driver runs the epoch again. Within a run each
row belongs to one task; another run may distribute the rows over other tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from waltz.protocol.locks import Lock

_FORMAT = 1
MAX_LEDGER_BYTES = 1_000_000
"""A ledger has at most this size: ZooKeeper accepts no message of more than 1 MiB.

ZooKeeper would close the connection without an answer, and the error would not say why a task
failed. There is room for about 50,000 attempts. No attempt can be dropped before its epoch is over,
also if it has finished: later attempts at its task must find the rows that it has appended.
"""


class EpochIsOver(Exception):
    """A newer epoch of the write has begun: attempts of ``epoch`` must not append any more."""

    def __init__(self, write_id: str, epoch: int, newest: int) -> None:
        super().__init__(
            f"the write {write_id} is in epoch {newest} and epoch {epoch} is over, so this task "
            "appends nothing more. Either Spark has abandoned the task, or the checkpoint is older "
            "than the log: then set a new writeId"
        )


class WriteIsOver(Exception):
    """The batch write that this attempt belongs to has ended."""

    def __init__(self, write_id: str) -> None:
        super().__init__(
            f"the write {write_id} has ended, so this task, which Spark has abandoned, appends "
            "nothing more"
        )


class LedgerFull(Exception):
    """The ledger has no room for another attempt, so the attempt must not append."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(
            f"the ledger of the write {ledger.write_id} has no room in ZooKeeper for more than "
            f"{len(ledger.attempts) - 1} attempts at tasks in epoch {ledger.epoch}, so this task "
            "appends nothing; write fewer tasks at once: join them with coalesce, or divide the "
            "data into several writes or micro-batches"
        )


class LedgerMalformed(ValueError):
    """The data of a ledger's znode cannot be decoded."""


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """An attempt that is about to append; ``run`` is the id of its run of the epoch."""

    epoch: int
    run: str
    task: int
    client_id: int


class AttemptedTask(NamedTuple):
    """The task of an attempt, and its run: the place of the run's id in `Ledger.runs`, from 0."""

    task: int
    run: int


@dataclass(frozen=True, slots=True)
class AttemptLocks:
    """The locks of an attempt's appends.

    An append with these locks fails if a competing attempt (`Ledger.competing_attempts`) has
    appended any row after the mark of the append. The server compares the append's write and read
    locks with the write and append locks of the transactions after the mark.
    """

    write_locks: tuple[Lock, ...]
    read_locks: tuple[Lock, ...] = ()
    append_locks: tuple[Lock, ...] = ()


@dataclass(frozen=True, slots=True)
class Ledger:
    """The newest epoch of a write.

    ``marks`` are by partition, ``attempts`` by client id. ``runs`` are the ids of the epoch's runs,
    in the order of their start. The marks in the znode are text, because some implementations of
    JSON round numbers of more than 53 bits.
    """

    write_id: str
    epoch: int
    runs: tuple[str, ...] = ()
    marks: Mapping[int, int] = field(default_factory=dict)
    attempts: Mapping[int, AttemptedTask] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the data of the ledger's znode. Raises LedgerFull."""
        data = json.dumps(
            {
                "format": _FORMAT,
                "writeId": self.write_id,
                "epoch": self.epoch,
                "marks": {str(p): str(mark) for p, mark in sorted(self.marks.items())},
                "runs": self.runs,
                "attempts": {str(client): task for client, task in sorted(self.attempts.items())},
            },
            separators=(",", ":"),
        ).encode()
        if len(data) > MAX_LEDGER_BYTES:
            raise LedgerFull(self)
        return data

    @classmethod
    def decode(cls, raw: bytes) -> Ledger:
        """Decode a znode's data. Raises LedgerMalformed."""
        try:
            match json.loads(raw):
                case {"format": number} if number != _FORMAT:
                    raise LedgerMalformed(f"unknown ledger format {number!r}")
                case {
                    "writeId": str(write_id),
                    "epoch": int(epoch),
                    "runs": [*runs],
                    "marks": dict(marks),
                    "attempts": dict(attempts),
                }:
                    return cls(
                        write_id,
                        epoch,
                        runs=tuple(map(_text, runs)),
                        marks={int(p): int(_text(mark)) for p, mark in marks.items()},
                        attempts={
                            int(client): _attempted(task_and_run, len(runs))
                            for client, task_and_run in attempts.items()
                        },
                    )
        except LedgerMalformed:
            raise
        except (ValueError, RecursionError) as problem:
            raise LedgerMalformed(f"not a ledger of a write: {problem}") from None
        raise LedgerMalformed("not a ledger of a write: a field is missing or has another type")

    def with_attempt(self, attempt: NewAttempt, marks: Mapping[int, int]) -> Ledger:
        """Return the ledger with ``attempt``, which is about to append to some partitions.

        ``marks`` are the present marks of these partitions. A mark that the ledger has for the
        epoch is kept: a later mark would hide rows that the epoch has appended already. Raises
        EpochIsOver.
        """
        if attempt.epoch < self.epoch:
            raise EpochIsOver(self.write_id, attempt.epoch, self.epoch)
        ledger = self
        if attempt.epoch > self.epoch:
            # A new epoch begins: the marks and the attempts of the epoch before are not needed.
            ledger = Ledger(self.write_id, attempt.epoch)
        runs = ledger.runs if attempt.run in ledger.runs else (*ledger.runs, attempt.run)
        attempted = AttemptedTask(attempt.task, runs.index(attempt.run))
        return replace(
            ledger,
            runs=runs,
            marks={**marks, **ledger.marks},
            attempts={**ledger.attempts, attempt.client_id: attempted},
        )

    def competing_attempts(self, client_id: int, *, has_row_ids: bool) -> frozenset[int]:
        """Return the client ids of the other attempts that may have appended the same rows.

        Attempts at the same task compete. If rows have ids, another run may give a row to another
        task, so all attempts of other runs compete, too. Without ids, each run must give a task the
        same rows (docs/spark.md, Guarantees).
        """
        own = self.attempts[client_id]
        return frozenset(
            client
            for client, attempted in self.attempts.items()
            if client != client_id
            and (attempted.task == own.task or (has_row_ids and attempted.run != own.run))
        )

    def locks_of(self, client_id: int, *, has_row_ids: bool) -> AttemptLocks:
        """Return the locks that make an append fail if a competing attempt appended after the mark.

        Attempts at one task check and take the same lock. If rows have ids, attempts of different
        runs compete, too, whatever their tasks are, but attempts of one run at different tasks do
        not. So each run has two more locks:

        * ``appended`` of a run: the attempts of this run take it, those of newer runs check it.
        * ``overtaken`` of a run: the attempts of newer runs take it, those of this run check it.

        Example: an append of run 0 takes ``appended`` 0 and checks ``overtaken`` 0. An append of
        run 1 takes ``appended`` 1 and ``overtaken`` 0, and checks ``overtaken`` 1 and ``appended``
        0. The later one of the two finds a lock that was taken after its mark, and is refused.
        Without these locks an abandoned attempt of run 0 could append a row again
        (`test_ledger_attempts_at_same_rows_conflict`).
        """
        own = self.attempts[client_id]
        task_lock = Lock(f"waltz.spark.task/{self.write_id}", own.task)
        if not has_row_ids:
            return AttemptLocks((task_lock,))
        older_runs = range(own.run)
        appended, overtaken = f"waltz.spark.run/{self.write_id}", f"waltz.spark.new/{self.write_id}"
        return AttemptLocks(
            write_locks=(task_lock,),
            read_locks=(Lock(overtaken, own.run), *(Lock(appended, run) for run in older_runs)),
            append_locks=(Lock(appended, own.run), *(Lock(overtaken, run) for run in older_runs)),
        )


def _text(value: object) -> str:
    """Return ``value``. Raises ValueError if it is not text."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _attempted(value: object, num_runs: int) -> AttemptedTask:
    """Decode an attempt's task and run. Raises ValueError."""
    match value:
        case [int(task), int(run)] if 0 <= run < num_runs:
            return AttemptedTask(task, run)
    raise ValueError(f"{value!r} is not the task and the run of an attempt")
