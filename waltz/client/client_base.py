"""The state of every client, and the operations that `LogClient` leaves to its implementation.

Waits on the event loop.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Generic, TypeVar

from waltz.client.batch_stream import BatchStream
from waltz.client.core.deserializing import Deserializer, Unreadable
from waltz.client.core.log_stream import LogStream
from waltz.client.core.metrics import AppendState, ClientMetrics
from waltz.client.core.values import DataT, Draft
from waltz.client.deadlines import in_time
from waltz.client.options import ClientOptions
from waltz.protocol.records import ReqId

T = TypeVar("T")


class ClientBase(abc.ABC, Generic[DataT]):
    """The base of `LogClient`, which has the public methods. `Client` has the abstract methods."""

    def __init__(
        self,
        options: ClientOptions,
        appending: AppendState,
        *,
        cluster_name: str,
        num_partitions: int,
        client_id: int,
    ) -> None:
        self._options = options
        self._deserializer = Deserializer(options.serializer, options.unreadable)
        self._cluster_name = cluster_name
        self._num_partitions = num_partitions
        self._client_id = client_id
        self._metrics = ClientMetrics(
            cluster_name, client_id, appending, asyncio.get_running_loop().time
        )

    @property
    def unreadable(self) -> Unreadable:
        """The option ``unreadable``: what happens to data that the serializer cannot read."""
        return self._options.unreadable

    @abc.abstractmethod
    def _check(self, partition: int | None = None) -> None:
        """Raise ClientClosed or ClientFailed if the client has ended.

        Raise PartitionUnknown if the cluster has no ``partition`` (None: do not check that).
        """

    @abc.abstractmethod
    async def _append(
        self, partition: int, draft: Draft[DataT], mark: int | None, seconds: float | None
    ) -> int:
        """Append ``draft`` with ``mark``, and not with ``draft.mark``; return the transaction id.

        The two differ if `submit` appends a draft without a mark: then ``mark`` is that of the
        attempt. ``seconds`` is the timeout; None: that of the options.
        """

    @abc.abstractmethod
    async def _mount(self, partition: int, mark: int | None = None) -> int:
        """Begin to mount a partition after ``mark``; return the largest id known to be in its log.

        With None, mount the partition after its high-water mark. Do not mount it again if this was
        done before.
        """

    @abc.abstractmethod
    def _stream(
        self, marks: Mapping[int, int], ends: Mapping[int, int], data: bool
    ) -> LogStream[Any]:
        """Return one stream of the partitions in ``marks``, of each after its mark.

        A partition ends with the transaction in ``ends``, if it has one there. ``data`` tells
        whether the transactions have their data.
        """

    @abc.abstractmethod
    def _batches(self, marks: Mapping[int, int], ends: Mapping[int, int]) -> BatchStream:
        """Return a stream of columns; the arguments are those of `_stream`."""

    @abc.abstractmethod
    async def _read_data(self, partition: int, transaction_id: int) -> bytes:
        """Return the verified data of one transaction. Raises TransactionNotFound."""

    @abc.abstractmethod
    async def _read_mark(self, partition: int) -> int:
        """Return the high-water mark of a partition."""

    @abc.abstractmethod
    async def _check_mark(self, partition: int, mark: int) -> None:
        """Raise ClientAhead if the log of a partition ends before ``mark``."""

    @abc.abstractmethod
    async def _wait_for_outcome(self, req_id: ReqId) -> bool:
        """Wait until an append of this client has an outcome; see `wait_until_settled`."""

    @abc.abstractmethod
    def _problems(self) -> str:
        """Return the end of the text of AnswerLate: which servers are not connected, and why."""

    @abc.abstractmethod
    async def _flush(self) -> None:
        """Wait until every append that was called before has an outcome."""

    async def _in_time(self, work: Awaitable[T], seconds: float | None, missing: str) -> T:
        """Await ``work``, at most ``seconds`` (None: the timeout of the options).

        Raises AnswerLate after that time. The text of the error begins with ``missing``, for
        example "partition 0 was not mounted".
        """
        if seconds is None:
            seconds = self._options.answer_timeout
        return await in_time(work, seconds, missing, self._problems)

    def _count_received(self, partition: int, transactions: int) -> None:
        """Add the number of ``transactions`` that a stream returned to the metrics."""
        self._metrics.of(partition).received += transactions
