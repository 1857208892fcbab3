"""Interrupted calls of the client with callbacks: nothing is applied or reported twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import waltz
from tests.support.recording import Record, Recording, Say, until
from waltz.sync import opened
from waltz.sync.callbacks import CallbackClient
from waltz.sync.callbacks.open_contexts import OpenContexts
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


@pytest.fixture
def app() -> Recording:
    return Recording()


@pytest.fixture
def client(app: Recording) -> Iterator[CallbackClient[bytes]]:
    with (
        SyncCluster(partitions=1) as cluster,
        CallbackClient(opened(cluster.connect()), app) as client,
    ):
        yield client


def test_submit_interrupted_after_its_append_has_begun_reports_the_end_of_the_context_once(
    client: CallbackClient[bytes], app: Recording
) -> None:
    """`submit` ended the context, too, and the partition failed as it ended it once more."""
    record, start = Record(), client.log.thread.start

    def interrupt(work: Any) -> Any:
        start(work).result(60)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.log.thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.submit(Say(record, "interrupted"))
    client.submit(Say(record, "next"))
    client.flush(60)
    for name in ("interrupted", "next"):
        assert [event[0] for event in record.of(name)] == ["completion", "application"]
    assert app.errors == []


def test_submit_interrupted_before_its_append_begins_calls_no_callback_later(
    client: CallbackClient[bytes],
) -> None:
    record = Record()

    def interrupt(work: Any) -> Any:
        work.close()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.log.thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.submit(Say(record, "interrupted"))
    client.submit(Say(record, "next"))
    client.flush(60)
    assert record.of("interrupted") == []


def test_submit_interrupted_before_the_event_loop_takes_its_append_appends_nothing(
    client: CallbackClient[bytes],
) -> None:
    """`submit` reports an interruption before the append begins: it must not begin afterwards."""
    record, start = Record(), client.log.thread.start
    abandoned, waiting = threading.Event(), threading.Event()

    async def block() -> None:
        waiting.set()
        assert abandoned.wait(60)

    def interrupt(work: Any) -> Any:
        start(block())
        assert waiting.wait(60)
        start(work)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.log.thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.submit(Say(record, "interrupted"))
    abandoned.set()
    client.submit(Say(record, "next"))
    client.flush(60)
    assert record.of("interrupted") == []


def test_submit_interrupted_after_its_context_was_added_leaves_no_open_context(
    client: CallbackClient[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`flush` would wait for it forever."""
    add = OpenContexts.add

    def interrupt(*arguments: Any) -> None:
        add(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(OpenContexts, "add", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.submit(Say(Record(), "interrupted"))
    client.flush(1)
