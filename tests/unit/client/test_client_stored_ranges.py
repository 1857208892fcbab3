"""Records that a server passes on in their form on disk: verified, or requested again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.client_cluster import ClientCluster, connected
from tests.support.stored_records import batch_of, stored_form, with_bit_flipped
from tests.support.virtual_time import on_virtual_time
from waltz.client import ColumnBatch
from waltz.client.core import equal_records, stored_ranges
from waltz.client.core.deserializing import Deserializer
from waltz.client.core.mount import RequestIds
from waltz.client.core.read_values import Answer, AnswerKind, ReadRecords
from waltz.client.core.requests import PartitionRequests
from waltz.client.core.stored_ranges import verified
from waltz.client.stream_ranges import decode_transactions
from waltz.protocol.client_server import (
    RecordsRequest,
    RecordsResponse,
    StoredRecordsResponse,
)
from waltz.protocol.records import EMPTY_BATCH, RecordBatch
from waltz.protocol.stored import StoredBatch
from waltz.testing import FrameReplacement, FrameRule

FIRST, PARTITION, MANY = 7, 3, 100
SAME_SIZE = st.integers(0, 20).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9)
)
DATA = st.lists(st.binary(max_size=20), min_size=1, max_size=9) | SAME_SIZE


def of(data: list[bytes]) -> StoredBatch:
    return stored_form(batch_of(FIRST, data, PARTITION))


def is_right(found: StoredBatch, partition: int = PARTITION, first_id: int = FIRST) -> bool:
    """Whether the records are right: by a loop, and all at once if they have one size."""
    with patch.object(stored_ranges, "_FEWEST_AT_ONCE", 1 << 30):
        by_loop = verified(found, partition, first_id, MANY) is not None
    if found.count > 0 and len(found.raw) >= found.count * 40:
        at_once = equal_records.are_right(found, partition, first_id)
        assert at_once in (None, by_loop)
    return by_loop


# ---- verification


@given(DATA)
def test_stored_records_that_are_right_are_accepted(data: list[bytes]) -> None:
    found = of(data)
    assert is_right(found)
    assert is_right(StoredBatch(found.count, memoryview(bytes(found.raw))))


@given(DATA, st.data())
def test_stored_records_with_any_flipped_bit_are_refused(
    data: list[bytes], draw: st.DataObject
) -> None:
    found = of(data)
    bit = draw.draw(st.integers(0, 8 * len(found.raw) - 1))
    assert not is_right(with_bit_flipped(found, bit))


@pytest.mark.parametrize("data", [[b"equal", b"sizes"], [b"different", b"sizes"]])
def test_stored_records_with_each_flipped_bit_are_refused(data: list[bytes]) -> None:
    found = of(data)
    for bit in range(8 * len(found.raw)):
        assert not is_right(with_bit_flipped(found, bit)), bit


@given(DATA, st.data())
def test_stored_records_that_are_cut_or_continued_are_refused(
    data: list[bytes], draw: st.DataObject
) -> None:
    found = of(data)
    raw = bytes(found.raw)
    assert not is_right(StoredBatch(found.count, raw[: draw.draw(st.integers(0, len(raw) - 1))]))
    assert not is_right(StoredBatch(found.count, raw + draw.draw(st.binary(min_size=1))))
    for count in (-1, 0, found.count - 1, found.count + 1, 1 << 31):
        assert not is_right(StoredBatch(count, raw)), count


@pytest.mark.parametrize("data", [[b"equal", b"sizes"], [b"different", b"sizes"]])
def test_stored_records_of_another_place_are_refused(data: list[bytes]) -> None:
    found = of(data)
    assert not is_right(found, partition=PARTITION + 1)
    assert not is_right(found, first_id=FIRST - 1)
    first, second = (of([each]).raw for each in data)
    assert not is_right(StoredBatch(2, bytes(first) + bytes(second))), "both have the first id"
    assert verified(found, PARTITION, FIRST, 1) is None, "more than requested"


@pytest.mark.parametrize("data", [[b"equal", b"sizes"], [b"different", b"sizes"]])
def test_stored_records_with_wrong_data_under_a_right_record_checksum_are_refused(
    data: list[bytes],
) -> None:
    """The storage computed its checksum over data that were damaged before it wrote them."""
    wire = bytearray(batch_of(FIRST, data, PARTITION).wire)
    wire[33] ^= 1
    assert not is_right(stored_form(RecordBatch(2, bytes(wire))))


def test_many_equal_records_are_verified_at_once_if_numpy_is_loaded() -> None:
    found = of([b"%04d" % n for n in range(600)])
    with patch.object(stored_ranges, "_each_is_right", return_value=False):
        assert verified(found, PARTITION, FIRST, 600) == found
    assert verified(with_bit_flipped(found, 12345), PARTITION, FIRST, 600) is None


@pytest.mark.parametrize(("size", "loads"), [(100, False), (4000, True)])
def test_numpy_is_loaded_for_a_large_range_only(size: int, loads: bool) -> None:
    program = (
        "import sys\n"
        "from tests.support.stored_records import batch_of, stored_form\n"
        "from waltz.client.core.stored_ranges import verified\n"
        f"found = stored_form(batch_of(7, [bytes({size})] * 600))\n"
        "assert 'numpy' not in sys.modules\n"
        "assert verified(found, 0, 7, 600) is not None\n"
        f"assert ('numpy' in sys.modules) is {loads}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_large_ranges_are_verified_without_numpy() -> None:
    found = of([bytes(4000)] * 600)
    with patch.object(stored_ranges, "_has_numpy", return_value=False):
        assert verified(found, PARTITION, FIRST, 600) == found
        assert verified(with_bit_flipped(found, 12345), PARTITION, FIRST, 600) is None
    with patch.dict("sys.modules", numpy=None):
        assert not stored_ranges._load_numpy.__wrapped__()


# ---- both forms have the same transactions


@given(DATA)
def test_columns_of_both_forms_are_equal(data: list[bytes]) -> None:
    wire = ColumnBatch(PARTITION, batch_of(FIRST, data, PARTITION))
    disk = ColumnBatch(PARTITION, of(data))
    for name in ("ids", "headers", "client_ids", "generations", "seqs", "req_ids", "data"):
        assert getattr(disk, name) == getattr(wire, name), name
    assert [disk.buffer[start:end] for start, end in disk.spans] == data
    assert isinstance(disk.buffer, bytes)
    assert disk.to_arrow() == wire.to_arrow()


@given(DATA)
def test_transactions_of_both_forms_are_equal(data: list[bytes]) -> None:
    deserializer = Deserializer(None, "raise")
    (wire,) = decode_transactions(PARTITION, batch_of(FIRST, data, PARTITION), deserializer)
    assert list(decode_transactions(PARTITION, of(data), deserializer)) == [wire]
    assert [each.data for each in wire] == data


# ---- requests


class Scene:
    """The reads of one client of partition 3, on a connection of protocol version 7."""

    def __init__(self, version: int = 7) -> None:
        self.reads = PartitionRequests(RequestIds(9, PARTITION))
        self.reads.attach(2, version)
        self.reads.add("token", ReadRecords(FIRST, 2, 1000, stored=True))
        self.now = 0.0

    def request(self) -> RecordsRequest:
        (request,) = self.reads.effects.take_messages()
        assert isinstance(request, RecordsRequest)
        return request

    def answer_stored(self, records: StoredBatch, mark: int = 100) -> list[Answer]:
        self.reads.received(StoredRecordsResponse(self.request().req_id, mark, records))
        return list(self.reads.effects.take_results())

    def request_after_backoff(self) -> RecordsRequest:
        self.reads.tick(self.now)
        self.reads.tick(self.now + 60)
        return self.request()


def test_right_stored_range_is_the_answer() -> None:
    scene, found = Scene(), of([b"a", b"bc"])
    (answer,) = scene.answer_stored(found)
    assert (answer.kind, answer.mark, answer.records) == (AnswerKind.RECORDS, 100, found)
    assert scene.reads.idle


@pytest.mark.parametrize("version", [5, 6])
def test_older_server_is_not_asked_for_stored_records(version: int) -> None:
    assert not Scene(version).request().stored


def test_wrong_stored_range_is_requested_again_in_the_verified_form() -> None:
    scene, found = Scene(), of([b"a", b"bc"])
    assert scene.answer_stored(with_bit_flipped(found, 300)) == []
    assert scene.reads.wrong_stored_ranges == 1
    again = scene.request()
    assert (again.first_id, again.max_records, again.stored) == (FIRST, 2, False)
    wire = batch_of(FIRST, [b"a", b"bc"], PARTITION)
    scene.reads.received(RecordsResponse(again.req_id, None, 100, wire))
    assert [each.records for each in scene.reads.effects.take_results()] == [wire]


def test_stored_range_beyond_its_own_mark_is_requested_again() -> None:
    scene = Scene()
    assert scene.answer_stored(of([b"a", b"bc"]), mark=FIRST) == []
    assert not scene.request().stored


def test_stored_range_without_records_is_requested_again() -> None:
    scene = Scene()
    assert scene.answer_stored(StoredBatch(0, b"")) == []
    assert not scene.request().stored


def test_refused_stored_range_is_requested_again_in_the_verified_form() -> None:
    """A replica that refuses to pass on its records may still read them."""
    scene = Scene()
    scene.reads.received(RecordsResponse(scene.request().req_id, "refused", 0, EMPTY_BATCH))
    assert not scene.request_after_backoff().stored


def test_stored_answer_to_a_request_for_verified_records_is_not_accepted() -> None:
    scene, found = Scene(), of([b"a", b"bc"])
    scene.answer_stored(with_bit_flipped(found, 300))
    assert scene.answer_stored(found) == []
    assert not scene.request_after_backoff().stored


# ---- with a cluster


def damage_stored(rule_bit: int) -> FrameRule:
    """Return a rule that changes one bit of each stored range."""

    def rule(message: Any) -> FrameReplacement | None:
        if isinstance(message, StoredRecordsResponse):
            bit = rule_bit % (8 * len(message.records.raw))
            damaged = with_bit_flipped(message.records, bit)
            return FrameReplacement(replace(message, records=damaged))
        return None

    return rule


async def forgetful(cluster: ClientCluster) -> None:
    """Let the servers forget their recent records, so that they read replicas."""
    await cluster.kill_server()
    await cluster.start_server()
    await cluster.ready()


@on_virtual_time
async def test_streams_of_stored_ranges_have_all_transactions() -> None:
    async with connected(count=2500) as (cluster, client):
        await forgetful(cluster)
        expected = cluster.data_of(0)
        stream = client.stream(0, until=2499, data=True)
        assert [each.data async for each in stream] == expected
        batches = [batch async for batch in client.batches(0, until=2499)]
        assert [data for batch in batches for data in batch.data] == expected
        assert all(request.stored for request in cluster.requests_of(RecordsRequest))


@pytest.mark.parametrize("bit", [0, 70, 250, 300, -1])
@on_virtual_time
async def test_streams_of_damaged_stored_ranges_have_all_transactions(bit: int) -> None:
    async with connected(count=4500) as (cluster, client):
        await forgetful(cluster)
        cluster.set_answer_rule(damage_stored(bit))
        stream = client.stream(0, until=4499, data=True)
        assert [each.data async for each in stream] == cluster.data_of(0)
        asked = [request.stored for request in cluster.requests_of(RecordsRequest)]
        assert asked == [True, False] * (len(asked) // 2)
        assert len(asked) >= 4
        counter = client.metrics.http_form()["counters"]["waltz-client.wrong-stored-ranges"]
        assert counter["count"] == len(asked) // 2
