"""One append on its way from a client to the log. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from waltz_server.core.appends.lock_table import Slots
from waltz_server.core.peer import Peer

HEADER_BYTES = 4
"""Length of the header, which is the first field of `Append.record_tail`."""


@dataclass(eq=False, slots=True)
class Append:
    """An append, whose request id and record stay encoded.

    ``req_id`` is the encoded request id; ``client_id`` and ``generation`` are two of its fields.
    ``record_tail`` is the part of a record after the request id: header, data length, data,
    checksum. Client, storage and cache share this encoding. ``client_mark`` is the last transaction
    that the client had seen, or `LOG_MARK` (`waltz.protocol.batches`), which the append queue
    replaces by the log's high-water mark. The locks are 32-bit hashes.

    The class is not frozen: codec, connection and append queue set some fields later. An append is
    equal only to itself.
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
    """Slots (see `lock_table`) of the write and append locks.

    The append holds them from its grant until the store reports its outcome."""
    checked: Slots = ()
    """Slots of the write and read locks.

    The append is refused if one of these locks was taken after ``client_mark``."""
    answer_to: Peer | None = None
    """The connection that gets the outcome in a message AppendAnswers.

    None for an append of a batch, and for an append whose client sees the outcome in its feed."""
    batch: bytes | None = None
    """Request id of the batch that contains this append, None for a single append.

    Only a prefix of a batch may be in the log. So if an append of a batch fails in the store, the
    later appends of the batch fail, too (`in_doubt_appends`)."""
