"""One append on its way from a client to the log. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from waltz_server.core.appends.lock_table import Slots


@dataclass(eq=False, slots=True)
class Append:
    """An append in the encoding that client, storage and cache share.

    ``record_tail`` is the part of a record after the request id: header, data length, data,
    checksum. Not frozen, because one is made per transaction and freezing costs more than making.
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
    """Slots of the write and append locks, which the append holds while it is open."""
    checked: Slots = ()
    """Slots of the write and read locks; none may have been taken after ``client_mark``."""
    batch: bytes | None = None
    """Request id of the batch that it belongs to, None for a single append.

    If an append of a batch fails, the appends after it in the batch fail, too."""
