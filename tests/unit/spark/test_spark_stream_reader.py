"""The offsets and tasks of a stream, when the log has become shorter or is of another cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from waltz.client import ClusterUnreachable
from waltz.net import PLAINTEXT
from waltz.spark import stream_reader
from waltz.spark.batch_reader import SliceTask
from waltz.spark.core.offsets import Offset, offset_of
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.options import parse_options
from waltz.spark.core.payload import PayloadDecoder
from waltz.spark.core.slices import PositionMissing, Slice
from waltz.spark.log_reader import ClusterLocation
from waltz.spark.stream_reader import WaltzStreamReader

KEY, OTHER_KEY = UUID(int=1), UUID(int=2)


class Log:
    """A reader of a cluster with one partition whose log ends at ``mark``; and its cache."""

    num_partitions = 1

    def __init__(self, mark: int, key: UUID = KEY) -> None:
        self._mark, self._key = mark, key

    def cluster_key(self) -> UUID:
        return self._key

    def open(self, where: ClusterLocation) -> Log:
        return self

    def marks(self, partitions: Iterable[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, self._mark)

    def confirmed_marks(self, starts: Mapping[int, int]) -> dict[int, int]:
        return self.marks(starts)


def reader(monkeypatch: pytest.MonkeyPatch, mark: int, **given: str) -> WaltzStreamReader:
    monkeypatch.setattr(stream_reader, "READER_CACHE", Log(mark))
    options = parse_options({"zookeeper": "zk:2181"} | given)
    payload = PayloadDecoder("binary", options.mode, StructType())
    return WaltzStreamReader(ClusterLocation("zk:2181", "/log", PLAINTEXT, 1), options, payload)


def offset(position: int) -> Offset:
    return offset_of({0: position}, KEY)


def slices(stream: WaltzStreamReader, start: int, end: int) -> list[Slice]:
    tasks = stream.partitions(offset(start), offset(end))
    return [task.part for task in tasks if isinstance(task, SliceTask)]


def test_repeated_batch_is_cut_at_the_end_of_a_log_that_became_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = reader(monkeypatch, mark=4, missingPositions="continue")
    assert slices(stream, 0, 10) == [Slice(0, 0, 4)]
    assert slices(stream, 5, 10) == []


def test_repeated_batch_beyond_a_log_that_became_shorter_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(PositionMissing):
        slices(reader(monkeypatch, mark=4), 0, 10)


def test_available_now_trigger_stops_at_the_log_end_at_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a query with the trigger availableNow would not end while others append."""
    stream = reader(monkeypatch, mark=4)
    stream.prepareForTriggerAvailableNow()
    monkeypatch.setattr(stream_reader, "READER_CACHE", Log(9))
    assert stream.latestOffset(offset(0), ReadAllAvailable()) == offset(5)


def test_available_now_trigger_with_an_old_mark_does_not_go_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that has lost its partition may report an old mark; a next run would read twice."""
    stream = reader(monkeypatch, mark=4)
    stream.prepareForTriggerAvailableNow()
    monkeypatch.setattr(stream_reader, "READER_CACHE", Log(9))
    assert stream.latestOffset(offset(8), ReadAllAvailable()) == offset(8)


def test_new_query_records_the_cluster_key(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(monkeypatch, mark=4)
    assert stream.initialOffset() == offset(0)
    assert stream.latestOffset(offset(0), ReadAllAvailable()) == offset(5)
    assert stream.reportLatestOffset() == offset(5)


def test_checkpoint_without_a_key_continues_and_gets_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A query stopped by an earlier version has neither key in its last, perhaps open, batch."""
    stream = reader(monkeypatch, mark=4)
    tasks = stream.partitions({"0": "0"}, {"0": "5"})
    assert [task.part for task in tasks if isinstance(task, SliceTask)] == [Slice(0, 0, 4)]
    assert stream.latestOffset({"0": "5"}, ReadAllAvailable()) == {"0": "5"}
    monkeypatch.setattr(stream_reader, "READER_CACHE", Log(9))
    assert stream.latestOffset({"0": "5"}, ReadAllAvailable()) == offset(10)


def test_checkpoint_of_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(monkeypatch, mark=9)
    monkeypatch.setattr(stream_reader, "READER_CACHE", Log(9, OTHER_KEY))
    with pytest.raises(OptionError, match="belongs to the cluster with the key"):
        stream.latestOffset(offset(3), ReadAllAvailable())
    with pytest.raises(OptionError, match="belongs to the cluster with the key"):
        stream.partitions({"0": "0"}, offset(3))


def test_starting_positions_of_another_cluster_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = f'{{"clusterKey": "{OTHER_KEY}", "0": "3"}}'
    stream = reader(monkeypatch, mark=9, startingPositions=given)
    with pytest.raises(OptionError, match="the option startingPositions belongs to the cluster"):
        stream.initialOffset()


class FailingLog(Log):
    """A log whose server cannot be reached."""

    def __init__(self) -> None:
        super().__init__(0)
        self.forgotten: list[ClusterLocation] = []

    def marks(self, partitions: Iterable[int]) -> dict[int, int]:
        raise ClusterUnreachable("no server answers")

    def forget(self, where: ClusterLocation) -> None:
        self.forgotten.append(where)


def test_failed_connection_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, log = reader(monkeypatch, mark=0), FailingLog()
    monkeypatch.setattr(stream_reader, "READER_CACHE", log)
    with pytest.raises(ClusterUnreachable):
        stream.initialOffset()
    assert len(log.forgotten) == 1
