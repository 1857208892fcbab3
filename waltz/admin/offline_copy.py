"""Fill a switched-off replica from a peer (spec/behaviour.md section 11). Touches the network.

A replica is *switched off* at its storage: servers can neither read nor write it.

The copy ends where the source's present store session began: all transactions before that point are
committed. Servers copy the rest when the replica is switched on.

Every copy begins by cutting the destination's log to its low-water mark. The copy raises this mark
after each part, so a repeated copy continues where the last one ended. Until the copy is complete,
the log may lack records that the replica acknowledged before the cut. If the replica were switched
on then, the next recovery would count it as a voter that never had these records, and could drop
them at the other replicas, too. So repeat an interrupted copy before you switch the replica on.

The destination reads the records from the source itself. If it cannot, because of its version or
because it does not reach the source, this process reads the records and *relays* them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from waltz.admin.storage_admin import StorageAdmin
from waltz.net import RemoteFailure, RpcConnection
from waltz.net.core.record_counts import COPY_BYTES
from waltz.protocol import UnsupportedByPeer
from waltz.protocol import storage as messages
from waltz.protocol.records import RecordBatch

AnswerT = TypeVar("AnswerT")

MayContinue = Callable[[], bool]
"""Returns whether a copy or a comparison may continue; called between its parts."""

Progress = Callable[[int, int], None]
"""Called with the last id that was copied so far, and the last id that will be copied."""


class CopyFailed(Exception):
    """The copy cannot begin or continue; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """The ids that a copy wrote at the destination; none if ``last_id`` is below ``first_id``."""

    first_id: int
    last_id: int

    @property
    def count(self) -> int:
        """How many transactions were copied."""
        return self.last_id - self.first_id + 1


async def check_offline(destination: StorageAdmin, partition: int) -> None:
    """Raise CopyFailed unless the destination holds ``partition``, switched off."""
    available = (await destination.partitions()).get(partition)
    if available is None:
        raise CopyFailed(
            f"the destination does not hold partition {partition}; create it with: "
            f"waltz storage assign HOST:PORT {partition} --only storage"
        )
    if available:
        raise CopyFailed(
            f"partition {partition} is switched on at the destination, so that servers may write "
            f"it; switch it off first with: waltz storage availability HOST:PORT {partition} off"
        )


async def copy_offline(
    source: StorageAdmin,
    destination: StorageAdmin,
    destination_connection: RpcConnection,
    partition: int,
    *,
    batch_size: int,
    progress: Progress,
    overwrite: bool = False,
    source_address: tuple[str, int] | None = None,
    relay: bool = True,
    may_continue: MayContinue = lambda: True,
) -> CopiedRange:
    """Copy the source's log, up to the start of its session, to the switched-off destination.

    ``source`` and ``destination`` are connections to admin ports. ``destination_connection`` is one
    to the destination's port for servers, through which the log is cut and written.

    A destination that already reaches the start of the source's session is not changed: its later
    transactions may be committed. Only a server's recovery can decide whether they are.

    With ``overwrite``, such a destination is cut to its low-water mark, too, and filled again, but
    only up to the start of the source's session. This replica then lacks the later transactions,
    although it has acknowledged them. So ``overwrite`` is safe only if no committed transaction
    needs this replica for its quorum. Without ``overwrite`` nothing is lost: a log that is cut ends
    before that start, so all records that the cut removes are copied again.

    The destination itself reads from ``source_address``, the host and the admin port of the source.
    The records are relayed if this is None, and with ``relay`` also if the destination cannot read
    there; without ``relay`` the copy then fails. The copy ends when ``may_continue`` returns False.

    Raises CopyFailed, RemoteFailure, ConnectionLost.
    """
    await check_offline(destination, partition)
    writer = await _OfflineWriter.open(destination, destination_connection, partition)
    # The source's last id when its present session began: the copy ends there.
    last_id = (await source.session_info(partition)).local_low_water_mark
    held_up_to = await writer.max_id()
    if held_up_to >= last_id and not overwrite:
        return CopiedRange(held_up_to + 1, held_up_to)  # Nothing was copied.
    last_kept = await writer.cut()
    position = last_kept  # The last id that the destination holds now.
    progress(position, last_id)
    if source_address is not None:
        try:
            while position < last_id and may_continue():
                position = await writer.pull(source_address, position + 1, last_id)
                progress(position, last_id)
            return CopiedRange(last_kept + 1, position)
        except (UnsupportedByPeer, RemoteFailure) as problem:
            if not relay:
                raise CopyFailed(
                    f"partition {partition} cannot be copied from the other storage: {problem}"
                ) from problem
            # Records that the failed pull has written above the mark would make the first relayed
            # append fail. The pull has used up time: at ``progress`` the caller extends its limit.
            position = await writer.cut()
            progress(position, last_id)
    while position < last_id and may_continue():
        count = min(batch_size, last_id - position)
        records = await source.records(partition, position + 1, count, max_bytes=COPY_BYTES)
        if (wrong := _relay_problem(records, position + 1, count)) is not None:
            raise CopyFailed(
                f"the source {wrong} of partition {partition}, though it must have everything up "
                f"to {last_id}; copy from another storage"
            )
        position += records.count
        await writer.append(records, position)
        progress(position, last_id)
    return CopiedRange(last_kept + 1, position)


def _relay_problem(records: RecordBatch, first_id: int, count: int) -> str | None:
    """Return what is wrong with the answer to a read of ``count`` records, None if nothing is."""
    if records.count > count:
        # The records after the requested ones may be uncommitted.
        return f"returned more than {count} records"
    if not records.count or records.first_id() != first_id:
        return f"does not hold transaction {first_id}"
    return None


class _OfflineWriter:
    """Writes one switched-off partition at the destination.

    ``session`` and ``mark`` are the store session and the low-water mark that the storage has
    persisted. The requests name this session: while the partition is switched off, the storage
    refuses any other one.
    """

    def __init__(
        self,
        admin: StorageAdmin,
        connection: RpcConnection,
        partition: int,
        session: int,
        mark: int,
    ) -> None:
        self._admin = admin
        self._connection = connection
        self._partition = partition
        self._session = session
        self._mark = mark

    @classmethod
    async def open(
        cls, admin: StorageAdmin, connection: RpcConnection, partition: int
    ) -> _OfflineWriter:
        """Read the session and the low-water mark that the destination has persisted."""
        info = await admin.session_info(partition)
        return cls(admin, connection, partition, info.last_session_id, info.low_water_mark)

    async def max_id(self) -> int:
        """Return the last id that the destination holds."""
        answer = await self._connection.call(
            lambda seq: messages.MaxTransactionIdRequest(
                self._session, seq, self._partition, offline=True
            ),
            messages.MaxTransactionIdResponse,
        )
        return answer.transaction_id

    async def cut(self) -> int:
        """Cut off all transactions above the low-water mark; return the last id that remains."""
        expected = messages.MaxTransactionIdResponse
        return (await self._call(messages.TruncateRequest, self._mark, expected)).transaction_id

    async def append(self, records: RecordBatch, mark: int) -> None:
        """Write ``records``, which end at ``mark``, and persist ``mark`` as the low-water mark."""
        await self._call(messages.AppendRequest, records, messages.SuccessResponse)
        await self._set_mark(mark)

    async def pull(self, source: tuple[str, int], first_id: int, last_id: int) -> int:
        """Let the storage copy records from ``source``; persist and return the last copied id."""
        last = await self._admin.pull(self._partition, self._session, source, first_id, last_id)
        if not first_id <= last <= last_id:
            raise CopyFailed(
                f"the destination was to copy transactions {first_id} to {last_id} of partition "
                f"{self._partition}, and reports {last} as the last one; restart or upgrade it"
            )
        await self._set_mark(last)
        return last

    async def _set_mark(self, mark: int) -> None:
        """Persist ``mark``, up to which all records are written, as the low-water mark.

        A storage refuses a mark below the persisted one. But the log can end below the persisted
        mark: if a session wrote the mark and never opened, a later recovery may cut the log below
        the mark (see `core.replication.replica_roles` of the server). Then the copied parts set no
        mark until the copy has reached the persisted mark.
        """
        if mark >= self._mark:
            await self._call(messages.SetLowWaterMarkRequest, mark, messages.SuccessResponse)
            self._mark = mark

    async def _call(
        self, request: Callable[..., Any], content: Any, expected: type[AnswerT]
    ) -> AnswerT:
        """Send a request for the switched-off partition, and return the ``expected`` answer."""
        return await self._connection.call(
            lambda seq: request(self._session, seq, self._partition, content, offline=True),
            expected,
        )
