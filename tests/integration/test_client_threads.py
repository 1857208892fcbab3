"""The blocking client and callbacks on a real cluster; tests/unit/sync has the details."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import waltz
from tests.support.recording import Recording, Say, until
from waltz import sync as blocking
from waltz.local import LocalCluster
from waltz.sync import SyncClient, callbacks
from waltz.sync.callbacks import CallbackClient

PARTITIONS = 3


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[SyncClient[bytes]]:
    with blocking.connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls) as log:
        yield log


@pytest.fixture
def row() -> str:
    """The name of a lock that no other test takes."""
    return uuid.uuid4().hex


def test_sync_client_works_with_a_real_cluster(log: SyncClient[bytes]) -> None:
    first = log.append(0, b"a", header=5)
    last = log.append(0, b"b")
    with log.stream(0, after=first - 1, until=last, data=True) as stream:
        assert [(t.id, t.header, t.data) for t in stream] == [(first, 5, b"a"), (last, 0, b"b")]
    assert log.read(0, first) == b"a"
    assert log.high_water_mark(0) >= last


def test_sync_submit_may_use_the_client_in_build(log: SyncClient[bytes], row: str) -> None:
    lock = [waltz.Lock(row, 1)]

    def build(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
        if attempt.number == 1:
            log.append(0, b"in between", write_locks=lock)
        seen = log.read(0, attempt.mark)
        return waltz.Draft(b"after " + seen, write_locks=lock)

    tx = log.submit(0, build)
    assert tx is not None
    assert log.read(0, tx) == b"after in between"


def test_sync_client_uses_a_serializer(cluster: LocalCluster) -> None:
    with blocking.connect(
        cluster.zookeeper, root=cluster.root, tls=cluster.tls, serializer=waltz.JsonSerializer()
    ) as log:
        assert log.read(0, log.append(0, {"a": [1, 2]})) == {"a": [1, 2]}


def test_missing_cluster_raises_cluster_not_found(cluster: LocalCluster) -> None:
    with pytest.raises(waltz.ClusterNotFound):
        blocking.connect(cluster.zookeeper, root="/nothing/here", tls=cluster.tls)


Open = Callable[[Recording], CallbackClient[bytes]]


@pytest.fixture
def open_client(cluster: LocalCluster) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_one(application: Recording) -> CallbackClient[bytes]:
            return stack.enter_context(
                callbacks.connect(
                    application, cluster.zookeeper, root=cluster.root, tls=cluster.tls
                )
            )

        yield open_one


def begun(log: SyncClient[bytes]) -> dict[int, int]:
    return {partition: log.high_water_mark(partition) for partition in range(PARTITIONS)}


def test_applications_apply_the_same_transactions(
    open_client: Open, log: SyncClient[bytes], row: str
) -> None:
    marks = begun(log)
    apps = [Recording(marks=marks) for _ in range(2)]
    clients = [open_client(app) for app in apps]
    for number in range(40):
        for index, (app, client) in enumerate(zip(apps, clients, strict=True)):
            client.submit(Say(app.record, f"{index}/{number}", partition=number % 2, lock=row))
    for client in clients:
        client.flush(60)
    until(lambda: all(len(app.applied) == 80 for app in apps))
    for partition in range(2):
        one, two = ([t for t in app.applied if t.partition == partition] for app in apps)
        assert one == two
        assert [t.id for t in one] == list(range(marks[partition] + 1, marks[partition] + 41))
    for index, app in enumerate(apps):
        assert app.errors == []
        for number in range(40):
            events = [event[0] for event in app.record.of(f"{index}/{number}")]
            assert [word for word in events if word != "lock failure"] == [
                "completion",
                "applied",
                "application",
            ]


def test_failed_apply_is_repeated(open_client: Open, log: SyncClient[bytes]) -> None:
    failures = iter(range(3))

    def before(transaction: waltz.Transaction[bytes]) -> None:
        if transaction.data == b"hard" and next(failures, None) is not None:
            raise OSError("the disk is full")

    marks = begun(log)
    app = Recording(marks=marks, before=before)
    client = open_client(app)
    for name in ("easy", "hard", "after"):
        client.submit(Say(app.record, name))
    client.flush(60)
    assert [type(error) for _, _, error in app.errors] == [OSError] * 3
    assert [t.id - marks[0] for t in app.applied] == [1, 2, 3]
    assert [event[0] for event in app.record.of("hard")] == ["completion", "applied", "application"]
