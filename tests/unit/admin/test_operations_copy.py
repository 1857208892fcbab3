"""The offline copy of a replica: where it begins and ends, and which mark it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from waltz.admin.offline_copy import CopyFailed, Progress, copy_offline
from waltz.net import RemoteFailure
from waltz.net.core.record_counts import COPY_BYTES
from waltz.protocol import UnsupportedByPeer
from waltz.protocol import storage as st
from waltz.protocol.records import Record, RecordBatch, ReqId


def records(first: int, count: int) -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, 0, n), 0, b"x", 7) for n in range(first, first + count)
    )


@dataclass
class Source:
    """A storage with the transactions up to ``last``, without ``lost``.

    Each of its records counts as ``record_bytes``.
    """

    last: int
    lost: int | None = None
    record_bytes: int = 1

    async def session_info(self, partition: int) -> Any:
        return SimpleNamespace(local_low_water_mark=self.last)

    async def records(
        self, partition: int, first_id: int, max_records: int, max_bytes: int
    ) -> RecordBatch:
        first = first_id + 1 if first_id == self.lost else first_id
        return records(first, min(max_records, max_bytes // self.record_bytes))


@dataclass
class Destination:
    """A storage with a replica that is switched off, and its storage port."""

    mark: int
    last: int
    marks: list[int] = field(default_factory=list)
    appended: list[int] = field(default_factory=list)
    cut_to: int | None = None

    async def partitions(self) -> dict[int, bool]:
        return {0: False}

    async def session_info(self, partition: int) -> Any:
        return SimpleNamespace(last_session_id=3, low_water_mark=self.mark)

    async def call(self, make: Any, expected: type[Any]) -> Any:
        request = make(1)
        asks_for_id = isinstance(request, st.MaxTransactionIdRequest | st.TruncateRequest)
        assert expected is (st.MaxTransactionIdResponse if asks_for_id else st.SuccessResponse)
        match request:
            case st.MaxTransactionIdRequest():
                return SimpleNamespace(transaction_id=self.last)
            case st.TruncateRequest():
                self.cut_to = request.transaction_id
                return SimpleNamespace(transaction_id=min(self.last, request.transaction_id))
            case st.AppendRequest():
                self.appended += [each.transaction_id for each in request.records]
                self.last = self.appended[-1]
            case st.SetLowWaterMarkRequest():
                assert self.mark <= request.low_water_mark
                assert self.last >= self.mark, "the storage refuses marks until the log is complete"
                self.marks.append(request.low_water_mark)
        return None


async def copy(source: Source, destination: Destination, *, overwrite: bool = False) -> None:
    target = cast(Any, destination)
    await copy_offline(
        cast(Any, source),
        target,
        target,
        0,
        batch_size=4,
        progress=lambda _at, _last: None,
        overwrite=overwrite,
    )


async def test_copy_begins_at_the_mark_and_ends_where_the_session_of_the_source_began() -> None:
    destination = Destination(mark=4, last=6)
    await copy(Source(last=12), destination)
    assert destination.cut_to == 4
    assert destination.appended == list(range(5, 13))
    assert destination.marks == [8, 12]


async def test_copy_sends_large_records_in_small_portions() -> None:
    """The appends of all partitions of a storage wait while it writes a portion."""
    destination = Destination(mark=4, last=6)
    await copy(Source(last=12, record_bytes=COPY_BYTES // 3), destination)
    assert destination.marks == [7, 10, 12]


async def test_copy_to_a_log_that_was_cut_below_its_mark_sets_no_mark_before_it_is_reached() -> (
    None
):
    """A storage refuses all marks until then; a lower mark would let a recovery cut more."""
    destination = Destination(mark=10, last=4)
    await copy(Source(last=14), destination)
    assert destination.appended == list(range(5, 15))
    assert destination.marks == [12, 14]


@pytest.mark.parametrize("last", [12, 15])
async def test_copy_leaves_a_destination_that_reaches_far_enough(last: int) -> None:
    """Its later transactions may be committed: only a recovery of the servers can decide that."""
    destination = Destination(mark=4, last=last)
    await copy(Source(last=12), destination)
    assert destination.cut_to is None
    assert destination.appended == []
    await copy(Source(last=12), destination, overwrite=True)
    assert destination.cut_to == 4


async def test_copy_from_a_source_with_a_gap_fails_before_the_gap() -> None:
    destination = Destination(mark=4, last=4)
    with pytest.raises(CopyFailed, match="does not hold transaction 9"):
        await copy(Source(last=12, lost=9), destination)
    assert destination.appended == [5, 6, 7, 8]


@dataclass
class PullingDestination(Destination):
    """A destination that reads from ``source`` itself, ``at_once`` records by one request."""

    source: tuple[str, int] = ("a", 2)
    at_once: int = 3
    problem: Exception | None = None
    written: int = 0
    """How many records the request writes that fails with ``problem``."""
    pulls: list[tuple[int, int]] = field(default_factory=list)

    async def pull(
        self, partition: int, session: int, source: tuple[str, int], first_id: int, last_id: int
    ) -> int:
        assert (partition, session, source) == (0, 3, self.source)
        if self.problem is not None and self.pulls:
            self.last += self.written
            raise self.problem
        self.pulls.append((first_id, last_id))
        self.last = min(last_id, first_id + self.at_once - 1)
        return self.last


async def pull(
    destination: PullingDestination,
    progress: Progress = lambda _at, _last: None,
    **options: Any,
) -> None:
    target = cast(Any, destination)
    await copy_offline(
        cast(Any, Source(last=12)),
        target,
        target,
        0,
        batch_size=4,
        progress=progress,
        source_address=("a", 2),
        **options,
    )


class WrongDestination(PullingDestination):
    """Reports another last id than it was to copy."""

    reported = 0

    async def pull(self, *_: Any) -> int:
        return self.reported


@pytest.mark.parametrize("reported", [4, 13])
async def test_destination_that_reports_an_impossible_end_of_its_copy_is_refused(
    reported: int,
) -> None:
    """Without progress, the copy would repeat the same request forever."""
    destination = WrongDestination(mark=4, last=6)
    destination.reported = reported
    with pytest.raises(CopyFailed, match=rf"was to copy .* 5 to 12 .* reports {reported} as the"):
        await pull(destination)
    assert destination.marks == []


class EagerSource(Source):
    """Returns more records than it is asked for."""

    async def records(
        self, partition: int, first_id: int, max_records: int, max_bytes: int
    ) -> RecordBatch:
        return records(first_id, max_records + 1)


async def test_copy_refuses_more_records_than_it_has_asked_for() -> None:
    """Records behind the start of the source's session may be uncommitted."""
    destination = Destination(mark=4, last=4)
    with pytest.raises(CopyFailed, match="more than 4 records"):
        await copy(EagerSource(last=8), destination)
    assert destination.appended == []


async def test_destination_that_reads_from_the_source_itself_gets_no_relayed_records() -> None:
    destination = PullingDestination(mark=4, last=6)
    await pull(destination)
    assert destination.cut_to == 4
    assert destination.pulls == [(5, 12), (8, 12), (11, 12)]
    assert destination.appended == []
    assert destination.marks == [7, 10, 12]


@pytest.mark.parametrize("problem", [RemoteFailure("no answer"), UnsupportedByPeer("old")])
async def test_destination_that_cannot_read_from_the_source_gets_the_rest_relayed(
    problem: Exception,
) -> None:
    destination = PullingDestination(mark=4, last=4, problem=problem)
    await pull(destination)
    assert destination.appended == list(range(8, 13))
    assert destination.marks == [7, 11, 12]
    without_relay = PullingDestination(mark=4, last=4, problem=problem)
    with pytest.raises(CopyFailed, match="partition 0 cannot be copied from the other storage"):
        await pull(without_relay, relay=False)
    assert without_relay.appended == []


async def test_records_of_a_request_that_failed_are_cut_before_the_rest_is_relayed() -> None:
    """The storage would refuse records that it has already written."""
    destination = PullingDestination(mark=4, last=4, problem=RemoteFailure("late"), written=2)
    await pull(destination)
    assert destination.pulls == [(5, 12)]
    assert destination.cut_to == 7, "the mark of the request that succeeded"
    assert destination.appended == list(range(8, 13))


async def test_time_of_a_request_that_failed_does_not_count_for_the_relayed_records() -> None:
    """The time limit of a part begins with a call of ``progress``."""
    destination = PullingDestination(mark=4, last=4, problem=RemoteFailure("late"))
    positions: list[int] = []
    await pull(destination, lambda at, _last: positions.append(at))
    assert positions == [4, 7, 7, 11, 12]


@pytest.mark.parametrize("pulls", [True, False])
async def test_copy_ends_early_when_it_may_not_continue(pulls: bool) -> None:
    answers = [True, False]
    problem = None if pulls else UnsupportedByPeer("old")
    destination = PullingDestination(mark=4, last=4, problem=problem)
    if not pulls:
        destination.pulls.append((0, 0))  # The first request fails, too.
        answers.insert(0, True)
    await pull(destination, may_continue=lambda: answers.pop(0))
    assert destination.last < 12
    assert destination.marks == [destination.last]
