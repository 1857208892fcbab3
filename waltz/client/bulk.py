"""Read ranges and append batches with the connections of a `Client`. Touches the network."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from waltz.client.appender import Appender
from waltz.client.core.append_values import Append
from waltz.client.core.batches import BatchOutcome
from waltz.client.core.read_values import ReadHeaders, ReadRecords
from waltz.client.log_bulk import HeaderRange, LogBulk, RecordRange
from waltz.client.membership_state import MembershipState
from waltz.client.options import ClientOptions
from waltz.client.request_client import RequestClient
from waltz.protocol import RecordBatch
from waltz.protocol.stored import StoredBatch


class ClientBulk(LogBulk):
    """Implements `LogBulk` for a `Client`."""

    def __init__(
        self,
        options: ClientOptions,
        membership_state: MembershipState,
        request_client: RequestClient,
        appender: Appender,
    ) -> None:
        super().__init__(options)
        self._membership_state = membership_state
        self._request_client = request_client
        self._appender = appender

    @override
    def _check(self, partition: int) -> None:
        self._membership_state.check(partition)

    @override
    def _problems(self) -> str:
        return self._request_client.problems()

    @override
    async def _read_records(self, partition: int, request: ReadRecords) -> RecordRange:
        # `LogBulk.records` does not set ``stored`` in the request, so records come in wire form.
        answer = await self._request_client.read_range(partition, request)
        assert isinstance(answer.records, RecordBatch)
        return RecordRange(answer.records, answer.mark)

    async def records_in_any_form(
        self, partition: int, first_id: int, max_records: int, max_bytes: int
    ) -> tuple[RecordBatch | StoredBatch, int]:
        """Return records as the server sends them, in wire or disk form, and the high-water mark.

        The client has verified the records. Raises the errors of `LogBulk.records` except
        AnswerLate: there is no timeout.
        """
        self._check(partition)
        request = ReadRecords(first_id, max_records, max_bytes, stored=True)
        answer = await self._request_client.read_range(partition, request)
        assert answer.records is not None
        return answer.records, answer.mark

    @override
    async def _read_headers(self, partition: int, request: ReadHeaders) -> HeaderRange:
        answer = await self._request_client.read_range(partition, request)
        return HeaderRange(answer.headers, answer.mark)

    @override
    async def _append_batch(
        self, partition: int, appends: Sequence[Append], seconds: float | None
    ) -> list[BatchOutcome]:
        return await self._appender.append_batch(partition, appends, seconds)
