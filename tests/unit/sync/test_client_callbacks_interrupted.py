"""Test that an interrupted change of the active partitions repeats no transaction."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import waltz
from tests.support.recording import Recording, until
from waltz.sync import opened
from waltz.sync.callbacks import CallbackClient
from waltz.testing import SyncCluster


class Resuming(Recording):
    """An application whose mark is the last transaction that it has applied."""

    def get_client_high_water_mark(self, partition: int) -> int:
        return self.applied[-1].id if self.applied else -1


def test_set_partitions_after_an_interrupted_one_applies_no_transaction_twice() -> None:
    applying, go_on = threading.Event(), threading.Event()

    def wait_at_one(transaction: waltz.Transaction[bytes]) -> None:
        if transaction.id == 1:
            applying.set()
            assert go_on.wait(60)

    app = Resuming(before=wait_at_one)
    with (
        SyncCluster(partitions=1) as cluster,
        CallbackClient(opened(cluster.connect()), app, auto_mount=False) as client,
    ):
        for number in range(3):
            client.log.append(0, b"%d" % number)
        client.set_partitions([0])
        assert applying.wait(60)

        def interrupt(_: object) -> Any:
            until(lambda: not client.active_partitions)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client.log.thread, "result", interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.set_partitions([])
        activating = threading.Thread(target=client.set_partitions, args=([0],))
        activating.start()
        activating.join(0.2)  # Without a wait for the end of the first run, it ends now.
        go_on.set()
        activating.join(60)
        until(lambda: len(app.applied) >= 3)
    assert [transaction.id for transaction in app.applied] == [0, 1, 2]
