"""Requests that a partition refuses, and marks that a session may set, at their boundaries."""

from __future__ import annotations

from typing import Any

import pytest

from waltz.protocol import storage
from waltz.protocol.admin import Switch
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.errors import NotAssigned, RequestRefused, SessionFenced
from waltz_storage.core.partitions.fencing import (
    MAX_SESSION_JUMP,
    begin_session,
    check_request,
    is_possible,
    raises_fence,
)

VERSION = 1
ON = PartitionInfo(5, 20, 15).as_assigned().as_available(True)
"""Session 5 at mark 20; this replica's own mark is 15, because it lagged."""


@pytest.mark.parametrize(
    ("session_id", "mark", "max_id"),
    [(5, 20, 15), (6, 20, 20), (6, 21, 15), (6, 25, 25), (7, 20, 16)],
)
def test_session_may_begin_with_growing_marks(session_id: int, mark: int, max_id: int) -> None:
    info = begin_session(ON, session_id, mark, max_id)
    assert (info.session_id, info.low_water_mark) == (session_id, mark)
    assert info.local_low_water_mark == max_id
    assert info.flags == ON.flags


@pytest.mark.parametrize(
    ("session_id", "mark", "max_id", "reason"),
    [
        (4, 20, 15, "session id"),
        (6, 20, 21, "lower than the max transaction id"),
        (6, 19, 15, "low watermark"),
        (6, 20, 14, "local low watermark"),
    ],
)
def test_session_that_breaks_a_rule_by_one_is_refused(
    session_id: int, mark: int, max_id: int, reason: str
) -> None:
    with pytest.raises(RequestRefused, match=reason):
        begin_session(ON, session_id, mark, max_id)


def committed_read(session_id: int) -> Any:
    return storage.StoredRecordListRequest(session_id, 0, 0, 0, 9, 9, 1000)


def max_id(session_id: int, *, offline: bool = False) -> Any:
    return storage.MaxTransactionIdRequest(session_id, 0, 0, offline)


@pytest.mark.parametrize("session_id", [4, 6])
def test_request_of_another_session_than_the_highest_is_fenced(session_id: int) -> None:
    check_request(max_id(5), VERSION, ON, 5)
    with pytest.raises(SessionFenced):
        check_request(max_id(session_id), VERSION, ON, 5)


def test_committed_read_must_name_the_persisted_session_and_raises_no_fence() -> None:
    check_request(committed_read(5), VERSION, ON, 9)
    assert not raises_fence(committed_read(9))
    assert raises_fence(max_id(9))
    for session_id in (4, 9):
        with pytest.raises(RequestRefused, match="last session id has changed to 5"):
            check_request(committed_read(session_id), VERSION, ON, 9)


def test_offline_request_needs_both_switches_off_and_the_persisted_session() -> None:
    off = ON.as_available(False)
    check_request(max_id(5, offline=True), VERSION, off, 9)
    with pytest.raises(RequestRefused, match="last session id has changed to 5"):
        check_request(max_id(6, offline=True), VERSION, off, 9)
    for readable, writable in ((True, True), (True, False), (False, True)):
        info = off
        if readable:
            info = info.with_switch(Switch.READ, True)
        if writable:
            info = info.with_switch(Switch.WRITE, True)
        with pytest.raises(RequestRefused, match="cannot run offline recovery"):
            check_request(max_id(5, offline=True), VERSION, info, 9)


def test_request_to_a_partition_that_is_not_assigned_is_refused() -> None:
    with pytest.raises(NotAssigned):
        check_request(max_id(5), VERSION, PartitionInfo(5, 20, 15), 5)


def test_session_id_that_no_server_can_have_is_refused() -> None:
    largest = ON.session_id + MAX_SESSION_JUMP
    assert is_possible(largest, ON)
    check_request(max_id(largest), VERSION, ON, largest)
    for session_id in (largest + 1, (1 << 63) - 1):
        assert not is_possible(session_id, ON)
        with pytest.raises(RequestRefused, match="impossible: the last session"):
            check_request(max_id(session_id), VERSION, ON, session_id)
