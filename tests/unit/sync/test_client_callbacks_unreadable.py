"""Test what a client with callbacks does with data that its serializer cannot read."""

from __future__ import annotations

from typing import Any

import pytest

import waltz
from tests.support.recording import until
from waltz.sync import callbacks, opened
from waltz.testing import SyncCluster

REFUSED = "^unreadable is 'skip': an application with callbacks must apply every transaction"


class Values(callbacks.Application[Any]):
    """Keeps the data of the transactions that it has applied."""

    def __init__(self) -> None:
        self.applied: list[object] = []

    def get_client_high_water_mark(self, partition: int) -> int:
        return -1

    def apply_transaction(self, transaction: waltz.Transaction[Any]) -> None:
        self.applied.append(transaction.data)


def test_callbacks_of_a_client_that_skips_unreadable_data_are_refused() -> None:
    with (
        SyncCluster() as cluster,
        opened(cluster.connect(serializer=waltz.JsonSerializer(), unreadable="skip")) as log,
        pytest.raises(ValueError, match=REFUSED),
    ):
        callbacks.CallbackClient(log, Values()).close()


def test_connect_that_skips_unreadable_data_is_refused_before_a_connection() -> None:
    no_server = "127.0.0.1:1"
    with pytest.raises(ValueError, match=REFUSED):
        callbacks.connect(Values(), no_server, serializer=waltz.JsonSerializer(), unreadable="skip")


def test_callbacks_of_a_client_with_raw_data_apply_every_transaction() -> None:
    application = Values()
    with SyncCluster() as cluster:
        with opened(cluster.connect()) as writer:
            for data in (b"1", b"no JSON", b"2"):
                writer.append(0, data)
        log = opened(cluster.connect(serializer=waltz.JsonSerializer(), unreadable="raw"))
        with callbacks.CallbackClient(log, application) as client:
            until(lambda: client.mark(0) == 2)
    assert application.applied == [1, b"no JSON", 2]
