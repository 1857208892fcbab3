"""The values of the model: what a disk, a session and the metadata of a partition hold. Pure.

A replica is a number from 0 on. A transaction id is its position in the log; -1 is "none". A
record is the number of the session that appended it: two records with the same id are equal if and
only if the same session appended them.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

NEVER = -1
"""Session of a replica that never took part in a session."""


class Entry(NamedTuple):
    """The state of one replica in the metadata; ``closing`` is None while it is unresolved."""

    session: int
    closing: int | None


class Disk(NamedTuple):
    """What a storage keeps of a replica: the log, and the entry of the control file."""

    log: tuple[int, ...] = ()
    session: int = NEVER
    mark: int = -1
    """The low-water mark."""
    local: int = -1
    """The local low-water mark: where the log ended when the disk got the mark."""
    refused: bool = False
    """Whether the storage refuses the partition, because it has noticed damage."""
    unreadable: bool = False
    """Whether a record is damaged, and the storage has not restarted since: it cannot be copied."""

    @property
    def end(self) -> int:
        return len(self.log) - 1


class Role(IntEnum):
    """How the position of a replica counts while the mark is unresolved."""

    VOTER = auto()
    CLEAN = auto()
    UNKNOWN = auto()
    NEW = auto()


class Stage(IntEnum):
    """How far a replica has come in a session."""

    ABSENT = auto()
    JOINED = auto()
    LOST_RECORDS = auto()
    ACTIVE = auto()
    FAILED = auto()


class Phase(IntEnum):
    RECOVERING = auto()
    OPEN = auto()
    CLOSED = auto()


class Do(IntEnum):
    """The kinds of steps."""

    MEASURE = auto()
    CUT = auto()
    COPY = auto()
    STORE = auto()
    """Append the records that a copy has read from its source."""
    MARK = auto()


class Step(NamedTuple):
    """A step of one replica, which its storage has not answered yet."""

    do: Do
    at: int = -1
    """CUT: the last id that stays. COPY: the first id to copy. MARK: the mark."""
    number: int = 0
    """COPY: how many records."""
    source: int = -1
    records: tuple[int, ...] = ()


class View(NamedTuple):
    """What one session knows about one replica."""

    entry: Entry | None
    """Its state in the metadata, as this session has read or written them."""
    in_last: bool
    """Whether it had a state when the session began."""
    assigned: bool
    stage: Stage = Stage.ABSENT
    role: Role | None = None
    position: int | None = None
    mark: int = -1
    floor: int = -1
    interim: int | None = None
    step: Step | None = None
    trimmed: bool = False
    marked: bool = False
    counted: bool = False
    persisted: bool = False
    unreadable: tuple[int, ...] = ()
    """The first ids of the copies for which this replica could not be read."""
    acknowledged: int = -1
    """The last id that the replica has acknowledged in the open session."""


class Session(NamedTuple):
    """A store session of one server."""

    id: int
    views: tuple[View, ...]
    quorum: int
    last_quorum: int
    phase: Phase = Phase.RECOVERING
    mark: int | None = None
    """The resolved mark."""
    known: int = -1
    """The highest mark on a disk that counts as committed."""
    contradicted: bool = False
    """Whether a replica contradicts the metadata: the session changes nothing."""
    due: tuple[Entry | None, ...] | None = None
    """The states to write to the metadata."""
    sent: bool = False
    """Whether ZooKeeper has ``due``, and the server does not know it yet."""

    def recovered(self, number: int) -> bool:
        """Whether the replica has the new session and exactly the log up to the mark."""
        view = self.views[number]
        return view.marked and view.position == self.mark
