"""Ranges and batches: many transactions in one request, for pipelines. Touches the network.

Servers from protocol version 5 on offer them (spec/wire.md section 9). Records stay in wire form,
so that whoever turns them into columns does it for thousands at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from waltz.client.appender import Appender
from waltz.client.core.appends import Append
from waltz.client.core.batches import BatchOutcome
from waltz.client.core.errors import DataTooLarge
from waltz.client.core.requests import ReadHeaders, ReadRecords
from waltz.client.core.serializers import append_of
from waltz.client.core.values import MAX_DATA_BYTES, Draft, Serializer
from waltz.client.deadlines import in_time
from waltz.client.membership_state import MembershipState
from waltz.client.request_client import RequestClient
from waltz.client.settings import ClientOptions
from waltz.protocol.batches import MAX_BATCH_APPENDS, MAX_LOCKS
from waltz.protocol.records import RecordBatch, RecordHeader

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Committed records with consecutive ids, checked, and the log's mark when they were read.

    Iterating ``records`` gives `Record` after `Record`; ``records.wire`` is all of them as bytes.
    """

    records: RecordBatch
    high_water_mark: int


@dataclass(frozen=True, slots=True)
class HeaderRange:
    """Headers of committed transactions with consecutive ids, and the log's mark then."""

    headers: tuple[RecordHeader, ...]
    high_water_mark: int


def check_range(first_id: int, count: int, size: int = 1) -> None:
    """Raise ValueError unless a range from ``first_id`` on may be asked for in these bounds."""
    if first_id < 0:
        raise ValueError(f"transaction ids begin at 0: there is no {first_id}")
    if count < 1 or size < 1:
        raise ValueError("a range has at least one record: its bounds must be above 0")


def appends_of(
    drafts: Sequence[Draft[Any]], serializer: Serializer[Any] | None, mark: int | None
) -> list[Append]:
    """Return the appends of a batch. Raises ValueError, DataTooLarge, and the serializer's."""
    if len(drafts) > MAX_BATCH_APPENDS:
        raise ValueError(
            f"a batch of {len(drafts)} appends: at most {MAX_BATCH_APPENDS} go into one"
        )
    if any(draft.mark is not None for draft in drafts):
        raise ValueError("a batch has one mark: give it to append, not to its drafts")
    appends = [append_of(draft, serializer, mark) for draft in drafts]
    if sum(append.num_locks for append in appends) > MAX_LOCKS:
        raise ValueError(f"a batch takes at most {MAX_LOCKS} locks: split it")
    size = sum(len(append.data) for append in appends)
    if size > MAX_DATA_BYTES:
        raise DataTooLarge(size, MAX_DATA_BYTES)
    return appends


class Bulk:
    """What `waltz.Client.bulk` offers."""

    def __init__(
        self,
        standing: MembershipState,
        request_client: RequestClient,
        appender: Appender,
        options: ClientOptions,
    ) -> None:
        self._membership_state = standing
        self._request_client = request_client
        self._appender = appender
        self._options = options

    async def records(
        self,
        partition: int,
        first_id: int,
        *,
        max_records: int = 10_000,
        max_bytes: int = 4 << 20,
        wait_seconds: float = 0.0,
        timeout: float | None = None,  # noqa: ASYNC109 - expires as a named error
    ) -> RecordRange:
        """Return committed records from ``first_id`` on, within both bounds, but at least one.

        There are none if nothing follows yet; with ``wait_seconds`` the answer waits so long for
        the first. Fewer than would fit do not mean that the log ends: compare with the mark.

        Raises ServerTooOld, ClientAhead if ``first_id`` is beyond the log's next id, DataCorrupt,
        AnswerLate when time has run out, PartitionUnknown, ClientClosed, ValueError.
        """
        self._membership_state.check_partition(partition)
        check_range(first_id, max_records, max_bytes)
        what = ReadRecords(first_id, max_records, max_bytes, round(wait_seconds * 1000))
        missing = f"the records of partition {partition} from {first_id} on did not come"
        answer = await self._in_time(
            self._request_client.read_range(partition, what), timeout, missing
        )
        assert answer.records is not None
        return RecordRange(answer.records, answer.mark)

    async def headers(
        self,
        partition: int,
        first_id: int,
        *,
        max_headers: int = 10_000,
        timeout: float | None = None,  # noqa: ASYNC109 - expires as a named error
    ) -> HeaderRange:
        """Return headers of committed transactions from ``first_id`` on, perhaps none.

        This is how to find out what became of one's own appends: by their request ids. Raises
        what `records` raises.
        """
        self._membership_state.check_partition(partition)
        check_range(first_id, max_headers)
        missing = f"the headers of partition {partition} from {first_id} on did not come"
        work = self._request_client.read_range(partition, ReadHeaders(first_id, max_headers))
        answer = await self._in_time(work, timeout, missing)
        return HeaderRange(answer.headers, answer.mark)

    async def append(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        *,
        mark: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - an append that was sent needs more than a cancellation
    ) -> list[BatchOutcome]:
        """Append ``drafts`` in their order with one request; return what became of each.

        Each is checked by its own locks against what others took after ``mark``, the last
        transaction that the caller took into account; drafts of one batch never refuse each
        other, and one that is refused takes nothing along. A batch is not a transaction: after a
        fault a prefix of what was granted may be in the log, the rest is `Absent`. Nothing is
        sent twice.

        Raises AppendUncertain when time ran out, or the client was closed, before everything is
        known (its ``outcomes`` say what is), ServerTooOld, ClientAhead, ClusterUnreachable when
        time ran out and nothing was sent, DataTooLarge,
        PartitionUnknown, ClientClosed, and ValueError for too many drafts, or one with a mark of
        its own.
        """
        self._membership_state.check_partition(partition)
        appends = appends_of(drafts, self._options.serializer, mark)
        if not appends:
            return []
        if timeout is None:
            timeout = self._options.append_timeout_seconds
        return await self._appender.append_batch(partition, appends, timeout)

    async def _in_time(self, work: Awaitable[T], seconds: float | None, missing: str) -> T:
        if seconds is None:
            seconds = self._options.answer_timeout_seconds
        return await in_time(work, seconds, missing)
