"""The two switches of a partition: in control files shared with Waltz 0.13.2, and for requests."""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.inline_engine import InlineEngine, arrival
from waltz.protocol import storage
from waltz.protocol.admin import Switch
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_format import (
    STRUCT_BYTES,
    ControlEntry,
    PartitionInfo,
    decode_entry,
    fresh_entry,
)
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory

KEY = uuid.UUID(int=5)
PARTITION = 1
SESSION = 4
# The flags of a partition in the control file.
AVAILABLE, ASSIGNED, ONLY_READABLE, ONLY_WRITABLE = 1, 4, 8, 16
READ_ONLY = PartitionInfo(3, 10, 9, ASSIGNED | ONLY_READABLE)
WRITE_ONLY = PartitionInfo(3, 10, 9, ASSIGNED | ONLY_WRITABLE)
_STRUCT = struct.Struct(">qqqIi")


# ---- the control file


def struct_at(slot: int) -> int:
    """Return where a struct begins in a raw entry: after the id of the partition."""
    return 4 + STRUCT_BYTES * slot


def raw_with(raw: bytes, entry: ControlEntry) -> bytes:
    start = struct_at(entry.slot)
    return raw[:start] + entry.encode() + raw[start + STRUCT_BYTES :]


def updated_by_us(raw: bytes, info: PartitionInfo) -> bytes:
    return raw_with(raw, decode_entry(raw).updated(info))


def updated_by_0_13_2(raw: bytes, available: bool | None, mark: int) -> bytes:
    """Update as Waltz 0.13.2 does: it keeps flags that it does not interpret."""
    entry = decode_entry(raw)
    start = struct_at(entry.slot)
    session, _, local, flags, sequence = _STRUCT.unpack_from(raw, start)
    if available is not None:
        flags = flags | AVAILABLE if available else flags & ~AVAILABLE
    body = _STRUCT.pack(session, mark, local, flags, sequence + 1)
    start = struct_at(1 - entry.slot)
    return raw[:start] + body + struct.pack(">I", crc32(body)) + raw[start + STRUCT_BYTES :]


def flags_of(raw: bytes) -> tuple[int, int]:
    """Return flags and sequence number of the current struct, as they are in the file."""
    *_, flags, sequence = _STRUCT.unpack_from(raw, struct_at(decode_entry(raw).slot))
    return flags, sequence


@pytest.mark.parametrize(
    ("info", "flag"), [(READ_ONLY, ONLY_READABLE), (WRITE_ONLY, ONLY_WRITABLE)]
)
def test_single_switch_is_written_as_bit_and_stamp(info: PartitionInfo, flag: int) -> None:
    raw = updated_by_us(fresh_entry(0), info)
    flags, sequence = flags_of(raw)
    assert (flags & 0xFFFF, flags >> 16) == (ASSIGNED | flag, sequence & 0xFFFF)
    assert decode_entry(raw).info == info
    assert (info.readable, info.writable) == (flag == ONLY_READABLE, flag == ONLY_WRITABLE)
    assert not info.available
    both_on = info.with_switch(Switch.READ, True).with_switch(Switch.WRITE, True)
    assert both_on.flags == ASSIGNED | AVAILABLE
    both_off = info.with_switch(Switch.READ, False).with_switch(Switch.WRITE, False)
    assert both_off.flags == ASSIGNED


@pytest.mark.parametrize("flags", [ASSIGNED | AVAILABLE, ASSIGNED, AVAILABLE, 0])
def test_both_switches_are_written_as_in_waltz_0_13_2(flags: int) -> None:
    raw = updated_by_us(fresh_entry(0), PartitionInfo(3, 10, 9, flags))
    assert flags_of(raw) == (flags, 1)


def test_stamp_wraps_after_16_bits() -> None:
    for sequence in (-1, 0, 0xFFFF, 0x10000, (1 << 31) - 2):
        entry = ControlEntry(READ_ONLY, sequence, 0)
        raw = bytes(4) + entry.encode() + bytes(36)
        assert decode_entry(raw) == entry


@pytest.mark.parametrize("flags", [ONLY_READABLE | ONLY_WRITABLE, 0])
def test_invalid_flag_combination_switches_nothing_on(flags: int) -> None:
    sequence = 7
    body = _STRUCT.pack(3, 10, 9, ASSIGNED | flags | sequence << 16, sequence)
    raw = bytes(4) + body + struct.pack(">I", crc32(body)) + bytes(36)
    info = decode_entry(raw).info
    assert (info.readable, info.writable, info.assigned) == (False, False, True)


OURS = st.tuples(st.booleans(), st.booleans())
THEIRS = st.one_of(st.none(), st.booleans())


@settings(max_examples=300)
@given(st.lists(st.one_of(OURS.map(lambda s: ("ours", s)), THEIRS.map(lambda a: ("theirs", a)))))
def test_switch_is_on_only_if_this_version_and_0_13_2_have_it_on(
    updates: list[tuple[str, Any]],
) -> None:
    raw = fresh_entry(0)
    readable, writable = True, True
    for mark, (who, switched) in enumerate(updates):
        if who == "ours":
            readable, writable = switched
            info = decode_entry(raw).info
            info = info.with_switch(Switch.READ, readable).with_switch(Switch.WRITE, writable)
            raw = updated_by_us(raw, info)
        else:
            # 0.13.2 has one switch; an update for another reason leaves it unchanged.
            seen = readable and writable if switched is None else switched
            readable = writable = seen
            raw = updated_by_0_13_2(raw, switched, mark)
        found = decode_entry(raw).info
        assert (found.readable, found.writable) == (readable, writable)
        assert bool(flags_of(raw)[0] & AVAILABLE) == found.available == (readable and writable)


def test_update_of_session_keeps_switches() -> None:
    raw = updated_by_us(fresh_entry(0), WRITE_ONLY)
    raw = updated_by_us(raw, replace(decode_entry(raw).info, session_id=4))
    assert decode_entry(raw).info == replace(WRITE_ONLY, session_id=4)
    assert flags_of(raw) == (ASSIGNED | ONLY_WRITABLE | 2 << 16, 2)


# ---- requests


def batch(first_id: int, count: int = 1) -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, PARTITION, n), 0, b"data", 7)
        for n in range(first_id, first_id + count)
    )


CONTEXT = (SESSION, 7, PARTITION)
READS = (
    storage.RecordHeaderRequest(*CONTEXT, 0),
    storage.RecordRequest(*CONTEXT, 0),
    storage.RecordHeaderListRequest(*CONTEXT, 0, 9),
    storage.RecordListRequest(*CONTEXT, 0, 9),
    storage.BoundedRecordListRequest(*CONTEXT, 0, 9, 900),
    storage.CommittedRecordListRequest(*CONTEXT, 0, 2, 9, 900),
    storage.StoredRecordListRequest(*CONTEXT, 0, 2, 9, 900),
)
WRITES = (
    storage.LastSessionInfoRequest(*CONTEXT),
    storage.MaxTransactionIdRequest(*CONTEXT),
    storage.TruncateRequest(*CONTEXT, 2),
    storage.SetLowWaterMarkRequest(*CONTEXT, 2),
    storage.AppendRequest(*CONTEXT, batch(3)),
)
A_READ, A_BOUNDED_READ, A_WRITE = READS[1], READS[4], WRITES[1]
VERSION_0_REQUESTS = (*READS[:4], *WRITES)
"""The requests that version 0 of the protocol has."""


@pytest.fixture
def engine() -> InlineEngine:
    options = LogOptions(lambda: 1, 100_000, allocate_bytes=0)
    engine = InlineEngine(StorageDirectory(MemoryDisk(), KEY, 2, options))
    engine.directory.assign(PARTITION)
    engine.ask(storage.AppendRequest(SESSION, 0, PARTITION, batch(0, 3)))
    engine.ask(storage.SetLowWaterMarkRequest(SESSION, 0, PARTITION, 2))
    return engine


def switched(engine: InlineEngine, *, read: bool, write: bool) -> None:
    engine.directory.set_switch(PARTITION, Switch.READ, read)
    engine.directory.set_switch(PARTITION, Switch.WRITE, write)


def answer(engine: InlineEngine, request: Any, version: int) -> Any:
    answers: list[Any] = []
    engine.submit([arrival(request, answers.append, version)])
    return answers[0]


def refused(engine: InlineEngine, request: Any, version: int = 1) -> bool:
    return isinstance(answer(engine, request, version), storage.FailureResponse)


@pytest.mark.parametrize(("read", "write"), [(True, False), (False, True), (False, False)])
def test_reads_need_read_switch_and_others_write_switch(
    engine: InlineEngine, read: bool, write: bool
) -> None:
    switched(engine, read=read, write=write)
    assert [refused(engine, request) for request in READS] == [not read] * len(READS)
    assert [refused(engine, request) for request in WRITES] == [not write] * len(WRITES)


def test_partition_with_one_switch_on_refuses_version_0(engine: InlineEngine) -> None:
    for readable in (True, False):
        switched(engine, read=readable, write=not readable)
        assert all(refused(engine, request, 0) for request in VERSION_0_REQUESTS)
    switched(engine, read=True, write=True)
    assert not any(refused(engine, request, 0) for request in VERSION_0_REQUESTS)


def test_refusal_names_the_switch(engine: InlineEngine) -> None:
    texts = []
    for read, write in ((True, False), (False, True), (False, False)):
        switched(engine, read=read, write=write)
        request = A_WRITE if read else A_READ
        texts.append(answer(engine, request, 1).failure.message.partition(": ")[2])
    assert texts == [
        f"write for partition={PARTITION} has been disabled on storage node",
        f"read for partition={PARTITION} has been disabled on storage node",
        f"read and write for partition={PARTITION} have been disabled on storage node",
    ]


def test_request_to_closed_partition_raises_fence(engine: InlineEngine) -> None:
    switched(engine, read=True, write=False)
    newer = storage.LastSessionInfoRequest(SESSION + 1, 1, PARTITION)
    assert refused(engine, newer)
    switched(engine, read=True, write=True)
    assert refused(engine, A_WRITE)


@pytest.mark.parametrize("switch", [Switch.READ, Switch.WRITE])
def test_offline_recovery_needs_both_switches_off(engine: InlineEngine, switch: Switch) -> None:
    request = storage.MaxTransactionIdRequest(*CONTEXT, offline=True)
    switched(engine, read=False, write=False)
    assert not refused(engine, request)
    engine.directory.set_switch(PARTITION, switch, True)
    assert "while partition is online" in answer(engine, request, 1).failure.message


def test_switches_survive_restart(engine: InlineEngine) -> None:
    switched(engine, read=False, write=True)
    disk: Any = engine.directory._disk
    engine.directory.close()
    options = LogOptions(lambda: 1, 100_000)
    again = StorageDirectory(disk.restarted(), KEY, 2, options)
    assert (again.info(PARTITION).readable, again.info(PARTITION).writable) == (False, True)
    assert again.status() == {PARTITION: False}


# ---- lists that are bounded in bytes


def listed(engine: InlineEngine, request: Any) -> list[int]:
    found = answer(engine, request, 1)
    assert isinstance(found, storage.RecordListResponse)
    return [record.transaction_id for record in found.records]


RECORD_BYTES = 44


def stored_ids(engine: InlineEngine, request: storage.StoredRecordListRequest) -> list[int]:
    found = answer(engine, request, 2)
    assert isinstance(found, storage.StoredRecordListResponse)
    assert len(found.records.raw) == found.records.count * RECORD_BYTES
    raw = bytes(found.records.raw)
    return [int.from_bytes(raw[at : at + 8]) for at in range(0, len(raw), RECORD_BYTES)]


@settings(max_examples=60)
@given(st.integers(-1, 8), st.integers(-1, 9), st.integers(-1, 300), st.integers(-1, 9))
def test_record_list_ends_at_first_bound(first: int, most: int, size: int, last: int) -> None:
    options = LogOptions(lambda: 1, 200, allocate_bytes=0)
    engine = InlineEngine(StorageDirectory(MemoryDisk(), KEY, 2, options))
    engine.directory.assign(PARTITION)
    engine.ask(storage.AppendRequest(-1, 0, PARTITION, batch(0, 7)))
    context = (-1, 7, PARTITION)
    fits = min(most, max(1, size // RECORD_BYTES))
    wanted = list(range(first, min(first + fits, 7))) if 0 <= first < 7 else []
    bounded = storage.BoundedRecordListRequest(*context, first, most, size)
    assert listed(engine, bounded) == wanted
    committed = storage.CommittedRecordListRequest(*context, first, last, most, size)
    assert listed(engine, committed) == [n for n in wanted if n <= last]
    stored = storage.StoredRecordListRequest(*context, first, last, most, size)
    ids = stored_ids(engine, stored)
    assert ids == [n for n in wanted if n <= last][: len(ids)]
    following = engine.directory.partitions[PARTITION].log.read_stored_batch(
        first + len(ids), 9, 900
    )
    assert ids == [n for n in wanted if n <= last] or following.count, "it ends with its segment"
    assert bool(ids) == any(n <= last for n in wanted)


def test_committed_read_raises_no_fence_and_needs_persisted_session(engine: InlineEngine) -> None:
    def committed(session: int) -> Any:
        return storage.CommittedRecordListRequest(session, 1, PARTITION, 0, 2, 9, 900)

    for session in (SESSION - 1, SESSION + 1, 1 << 60):
        text = answer(engine, committed(session), 1).failure.message
        assert f"session id has changed to {SESSION}" in text
    assert not refused(engine, WRITES[0]), "the session goes on"
    introduced = storage.LastSessionInfoRequest(SESSION + 1, 1, PARTITION)
    assert not refused(engine, introduced)
    assert listed(engine, committed(SESSION)) == [0, 1, 2], (
        "the new session has not begun on this storage"
    )
    begun = storage.SetLowWaterMarkRequest(SESSION + 1, 1, PARTITION, 2)
    assert not refused(engine, begun)
    assert refused(engine, committed(SESSION))
    assert listed(engine, committed(SESSION + 1)) == [0, 1, 2]


def test_bounded_list_request_of_newer_session_fences_older_one(engine: InlineEngine) -> None:
    assert not refused(engine, storage.BoundedRecordListRequest(SESSION + 1, 1, PARTITION, 0, 1, 1))
    assert refused(engine, A_WRITE)
    assert refused(engine, A_BOUNDED_READ)
