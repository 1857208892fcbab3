"""Comparison of replicas by checksums finds the first difference; lag is not a difference."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from waltz.admin.core.comparison import Comparison, ComparisonResult, RangeSum
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz_storage.core.log.segment_format import SegmentEncoder


def record(transaction_id: int, data: bytes) -> Record:
    return Record(transaction_id, ReqId(1, 2, 3, transaction_id), 4, data, checksum(data))


class Replica:
    """A replica that returns the checksum of its records, of at most ``most`` per request."""

    def __init__(self, log: list[bytes], most: int) -> None:
        self.log = log
        self.most = most

    def sum(self, first_id: int, last_id: int) -> RangeSum:
        last_id = min(last_id, first_id + self.most - 1, len(self.log) - 1)
        records = [record(i, self.log[i]) for i in range(first_id, last_id + 1)]
        return RangeSum(first_id - 1).plus(RecordBatch.of(records))


def compare(
    replicas: dict[str, Replica], last_id: int, *, first_id: int = 0, slice_ids: int = 7
) -> tuple[ComparisonResult, int]:
    """Return the result, and the number of requests."""
    limits: dict[str, int | str] = dict.fromkeys(replicas, last_id)
    comparison = Comparison(limits, last_id, first_id=first_id, slice_ids=slice_ids)
    questions = 0
    while (wanted_range := comparison.next_range) is not None:
        questions += 1
        assert questions < 1000
        assert wanted_range[0] <= wanted_range[1] <= last_id
        assert wanted_range[1] - wanted_range[0] < slice_ids
        comparison.add_sums({s: replicas[s].sum(*wanted_range) for s in comparison.storages})
    return comparison.result, questions


logs = st.integers(1, 40).flatmap(
    lambda size: st.lists(st.binary(max_size=3), min_size=size, max_size=size)
)


@given(
    logs,
    st.lists(
        st.tuples(st.integers(0, 45), st.integers(0, 60), st.integers(1, 20)),
        min_size=2,
        max_size=4,
    ),
    st.integers(0, 10),
    st.integers(1, 20),
)
def test_comparison_finds_first_difference(
    log: list[bytes], shapes: list[tuple[int, int, int]], first_id: int, slice_ids: int
) -> None:
    replicas = {}
    last_id = len(log) - 1
    for number, (end, flipped, most) in enumerate(shapes):
        held = log[:end]
        if flipped < len(held):
            held[flipped] += b"!%d" % number
        replicas[f"s{number}"] = Replica(held, most)
    found, _ = compare(replicas, last_id, first_id=first_id, slice_ids=slice_ids)
    expected = None
    for i in range(first_id, last_id + 1):
        versions: dict[bytes, set[str]] = {}
        for name, replica in replicas.items():
            if i < len(replica.log):
                versions.setdefault(replica.log[i], set()).add(name)
        if len(versions) > 1:
            expected = i, {frozenset(names) for names in versions.values()}
            break
    if expected is None:
        assert found.difference is None
        assert found.is_sound
    else:
        assert found.difference is not None
        assert (found.difference.transaction_id, set(found.difference.versions)) == expected


def test_comparison_lists_majority_first() -> None:
    log = [b"x"] * 100
    bad = [*log[:63], b"y", *log[64:]]
    replicas = {"a": Replica(bad, 100), "b": Replica(log, 100), "c": Replica(log, 100)}
    found, questions = compare(replicas, 99, slice_ids=50)
    assert found.difference is not None
    assert found.difference.transaction_id == 63
    assert found.difference.versions == (frozenset({"b", "c"}), frozenset({"a"}))
    assert questions < 10
    assert not found.is_sound


def test_comparison_reports_replica_behind_and_continues() -> None:
    log = [b"%d" % i for i in range(100)]
    bad = [*log[:80], b"y", *log[81:]]
    replicas = {"a": Replica(log[:30], 100), "b": Replica(log, 100), "c": Replica(bad, 100)}
    found, _ = compare(replicas, 99)
    assert found.ends == {"a": 29}
    assert found.difference is not None
    assert found.difference.transaction_id == 80


def test_comparison_reports_unreadable_replica_and_continues() -> None:
    comparison = Comparison({"a": 5, "b": 5, "c": 5, "d": "it is down"}, 5)
    assert comparison.next_range == (0, 5)
    comparison.add_sums({"a": RangeSum(5, 9, 9), "b": RangeSum(5, 9, 9), "c": "damaged"})
    assert comparison.next_range == (0, 5)
    comparison.add_sums({"a": RangeSum(5, 9, 9), "b": RangeSum(5, 9, 9)})
    assert comparison.next_range is None
    found = comparison.result
    assert found.problems == {"c": "damaged", "d": "it is down"}
    assert found.difference is None
    assert not found.is_sound


def test_comparison_continues_after_differing_replica_becomes_unreadable() -> None:
    comparison = Comparison(dict.fromkeys("abc", 9), 9, slice_ids=5)
    same, other = RangeSum(4, 9, 9), RangeSum(4, 9, 8)
    comparison.add_sums({"a": same, "b": same, "c": other})
    assert comparison.next_range == (0, 2)
    comparison.add_sums({"a": RangeSum(2, 5, 5), "b": RangeSum(2, 5, 5), "c": "damaged"})
    while (wanted_range := comparison.next_range) is not None:
        last_asked = wanted_range[1]
        comparison.add_sums({storage: RangeSum(wanted_range[1], 1, 1) for storage in "ab"})
    assert last_asked == 9
    assert comparison.result.difference is None
    assert comparison.result.problems == {"c": "damaged"}


def test_comparison_of_empty_log_or_single_replica_queries_nothing() -> None:
    assert Comparison({"a": -1, "b": -1}, -1).next_range is None
    assert Comparison({"a": 9}, 9).next_range is None


def test_range_checksum_equals_crc_of_records_in_disk_form() -> None:
    records = [record(i, b"d" * i) for i in range(5)]
    whole = RangeSum(-1).plus(RecordBatch.of(records))
    assert whole == RangeSum(-1).plus(RecordBatch.of(records[:2])).plus(RecordBatch.of(records[2:]))
    segment = SegmentEncoder(0, 0, 1 << 20)
    segment.add(RecordBatch.of(records).wire, 0, len(records))
    on_disk = b"".join(segment.parts)
    assert whole == RangeSum(4, len(on_disk), crc32(on_disk))
