"""Test what is logged about the session with ZooKeeper."""

from __future__ import annotations

import logging

import pytest

from waltz.metadata.kazoo_log import KazooLog, SessionLog
from waltz.metadata.store import SessionState

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    # The command line raises the level of this logger, also in the process of a test.
    caplog.set_level(1, "waltz.metadata.kazoo_log")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_state_is_logged_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    session = SessionLog("zk:2181")
    for state in (CONNECTED, SUSPENDED, SUSPENDED, LOST, CONNECTED, CONNECTED):
        session.changed(state)
    assert lines(caplog) == [
        ("WARNING", "ZooKeeper at zk:2181: connection lost; reconnecting"),
        ("WARNING", "ZooKeeper at zk:2181: session expired; opening another session"),
        ("INFO", "ZooKeeper at zk:2181: reconnected"),
    ]


def test_opening_and_closing_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    session = SessionLog("zk:2181")
    session.changed(CONNECTED)
    session.changed(SessionState.CLOSED)
    assert lines(caplog) == []


def test_warnings_of_kazoo_are_logged_at_level_debug(caplog: pytest.LogCaptureFixture) -> None:
    kazoo = KazooLog()
    kazoo.log(5, "every byte")
    kazoo.warning("Connection dropped: %s", "reason")
    kazoo.error("defect")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (5, "every byte"),
        (logging.DEBUG, "Connection dropped: reason"),
        (logging.ERROR, "defect"),
    ]
