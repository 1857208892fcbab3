"""What the pure parts of the server ask the world to do. Values only.

The shell performs each effect and reports back by calling the method that the effect names. Effects
of one input are performed in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from waltz.metadata.core.formats import PartitionMetadata
from waltz.protocol import RecordBatch
from waltz.protocol import storage as st
from waltz_server.core.appends.lock_table import Slots


@dataclass(eq=False, slots=True)
class Append:
    """An append on its way, in the encoding that client, storage and cache share.

    ``record_tail`` is what follows the request id in a record: header, data length, data, checksum.
    Not frozen, because one is made per transaction and freezing costs more than making.
    """

    client_id: int
    generation: int
    req_id: bytes
    record_tail: bytes
    client_mark: int
    write_locks: tuple[int, ...] = ()
    read_locks: tuple[int, ...] = ()
    append_locks: tuple[int, ...] = ()
    taken: Slots = ()
    """Slots of write and append locks, held while this is open. The lock table's, like the next."""
    checked: Slots = ()
    """Slots of write and read locks: not to have been taken after ``client_mark``."""
    batch: bytes | None = None
    """Request id of the batch that it is of: what follows one that failed fails, too."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send ``request`` to a storage; report with ``answered``. The shell numbers the request."""

    storage: str
    request: st.Request


@dataclass(frozen=True, slots=True)
class Watch:
    """Keep connections to exactly these storages; report with ``storage_up`` / ``storage_down``."""

    storages: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class ReadMetadata:
    """Read the partition's metadata, creating it if it is missing.

    Report ``metadata_read`` or ``metadata_failed`` with this very order: equal ones differ.
    """


@dataclass(frozen=True, slots=True, eq=False)
class WriteMetadata:
    """Compare-and-set the partition's metadata.

    Report ``metadata_written`` or ``metadata_failed`` with this very order: equal ones differ.
    """

    value: PartitionMetadata
    version: int


MetadataOrder = ReadMetadata | WriteMetadata


@dataclass(frozen=True, slots=True)
class NextTry:
    """Purpose: the pause before this attempt at a store session is over."""

    attempt: int


@dataclass(frozen=True, slots=True)
class PatienceOver:
    """Purpose: the recovery of this session should have ended by now."""

    session_id: int


@dataclass(frozen=True, slots=True)
class Rested:
    """Purpose: this storage, which failed, may take part again."""

    storage: str


@dataclass(frozen=True, slots=True)
class Forgiven:
    """Purpose: this storage's failures are forgotten unless there were more since."""

    storage: str
    strikes: int


@dataclass(frozen=True, slots=True)
class FeedsAgain:
    """Purpose: feeds whose headers could not be read try again."""


@dataclass(frozen=True, slots=True)
class ReadsTick:
    """Purpose: reads that wait for transactions to come are a little older."""


StorePurpose = NextTry | PatienceOver | Rested | Forgiven
Purpose = StorePurpose | FeedsAgain | ReadsTick


@dataclass(frozen=True, slots=True)
class Wake:
    """Report ``woken(purpose)`` after ``seconds``."""

    seconds: float
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Opened:
    """A store session is open; the log's high-water mark is ``mark``."""

    mark: int


@dataclass(frozen=True, slots=True)
class Committed:
    """These appends are on a quorum's disks, with consecutive ids from ``first_id`` on."""

    first_id: int
    appends: list[Append]
    records: RecordBatch


@dataclass(frozen=True, slots=True)
class Failed:
    """These appends are not in the log and never will be."""

    appends: list[Append]


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Another server wrote since: whether these are in the log can only be read there."""

    appends: list[Append]


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a fetch: records, or headers as tuple, or the reason why there is none."""

    token: Any
    records: RecordBatch | None = None
    headers: tuple[Any, ...] | None = None
    error: str | None = None


class Peer:
    """A client's connection as a partition sees it; peers differ by identity."""

    __slots__ = ("_is_congested", "reads", "version")

    def __init__(self, version: int, is_congested: Callable[[], bool] = lambda: False) -> None:
        self.version = version
        self.reads = 0
        """Reads of replicas under way for it, of all partitions: each may bring a large answer."""
        self._is_congested = is_congested

    @property
    def congested(self) -> bool:
        """Whether the client does not drain what it is sent; ``writable`` follows when it does."""
        return self._is_congested()


@dataclass(frozen=True, slots=True)
class Send:
    """Send whole frames to a client."""

    peer: Peer
    frames: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Close a client's connection."""

    peer: Peer
    reason: str


@dataclass(frozen=True, slots=True)
class Again:
    """Call ``turn`` soon, when all effects are performed: there is more to send."""


class Level(IntEnum):
    """How much a note matters; the numbers are those of the logging module."""

    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

    level: Level
    text: str


StoreEffect = (
    Ask
    | Watch
    | ReadMetadata
    | WriteMetadata
    | Wake
    | Opened
    | Committed
    | Failed
    | Unresolved
    | Fetched
    | Note
)

PartitionEffect = Ask | Watch | ReadMetadata | WriteMetadata | Wake | Send | Drop | Again | Note
"""What a partition passes on; the other store effects are its own."""
