"""Contexts and callbacks, on a cluster in one process: which are called, when, how often."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typing_extensions import override

import waltz
from tests.support.recording import Recording, Say, until
from waltz.protocol import CLIENT_SERVER, ProtocolSpec
from waltz.sync import SyncClient, opened
from waltz.sync.callbacks import (
    CallbackClient,
    DataMissing,
    InCallback,
    PartitionInactive,
    TimedOut,
    TransactionBuilder,
    TransactionContext,
)
from waltz.testing import Faults, SyncCluster

Open = Callable[..., CallbackClient[bytes]]


@pytest.fixture
def cluster() -> Iterator[SyncCluster]:
    with SyncCluster(partitions=2) as cluster:
        yield cluster


@pytest.fixture
def open_client(cluster: SyncCluster) -> Iterator[Open]:
    """Opens clients of the cluster for an application; closed at the end."""
    clients: list[CallbackClient[bytes]] = []

    def open_one(
        application: Recording, spec: ProtocolSpec = CLIENT_SERVER, **options: Any
    ) -> CallbackClient[bytes]:
        client = CallbackClient(opened(cluster.connect(spec=spec)), application, **options)
        clients.append(client)
        return client

    yield open_one
    for client in clients:
        client.close()


@pytest.fixture
def other(cluster: SyncCluster) -> Iterator[SyncClient[bytes]]:
    """Another client of the same cluster."""
    with opened(cluster.connect()) as client:
        yield client


def test_context_callbacks_are_called_in_order(open_client: Open) -> None:
    app = Recording()
    client = open_client(app)
    client.submit(Say(app.record, "one"))
    client.flush(10)
    assert app.record.events == [
        ("one", "completion", True),
        ("one", "applied", 0),
        ("one", "application"),
    ]
    assert not client.has_pending
    assert client.mark(0) == 0


def test_execute_returning_false_completes_with_false(open_client: Open) -> None:
    app = Recording()
    client = open_client(app)
    client.submit(Say(app.record, "none", willing=False))
    assert app.record.events == [("none", "completion", False)]
    assert not client.has_pending


def test_transactions_of_other_clients_are_applied(
    open_client: Open, other: SyncClient[bytes]
) -> None:
    app = Recording()
    client = open_client(app)
    for number in range(30):
        other.append(number % 2, b"theirs")
        client.submit(Say(app.record, "mine", partition=number % 2))
    client.flush(10)
    until(lambda: len(app.applied) == 60)
    for partition in range(2):
        ids = [each.id for each in app.applied if each.partition == partition]
        assert ids == list(range(30))


def test_applying_begins_after_the_applications_mark(
    open_client: Open, other: SyncClient[bytes]
) -> None:
    for number in range(5):
        other.append(0, b"%d" % number)
    app = Recording(marks={0: 2})
    open_client(app)
    until(lambda: len(app.applied) == 2)
    assert [each.data for each in app.applied] == [b"3", b"4"]


def test_error_in_execute_is_reported_and_raised(open_client: Open) -> None:
    app = Recording()
    client = open_client(app)

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.submit(Say(app.record, "bad", during=fail))
    assert app.record.events == [("bad", "exception", "ZeroDivisionError")]
    assert not client.has_pending


def test_execute_without_data_raises_data_missing(open_client: Open) -> None:
    class Empty(TransactionContext[bytes]):
        def execute(self, builder: TransactionBuilder[bytes]) -> bool:
            return True

    with pytest.raises(DataMissing, match=r"set builder\.data"):
        open_client(Recording()).submit(Empty())


def test_lock_failure_executes_again_with_the_newer_state(
    open_client: Open, other: SyncClient[bytes]
) -> None:
    app = Recording()
    client = open_client(app)
    seen: list[int] = []

    def append_between() -> None:
        seen.append(len(app.applied))
        if len(seen) == 1:
            other.append(0, b"in between", write_locks=[waltz.Lock("row", 1)])

    context = Say(app.record, "locked", lock="row", during=append_between)
    client.submit(context)
    client.flush(10)
    assert seen == [0, 1]
    assert app.record.of("in between") == [("applied", 0)]
    assert app.record.of("locked") == [
        ("lock failure",),
        ("completion", True),
        ("applied", 1),
        ("application",),
    ]


def test_retry_returning_false_completes_with_false(
    open_client: Open, other: SyncClient[bytes]
) -> None:
    app = Recording()
    client = open_client(app)
    context = Say(app.record, "once", lock="row")

    def append_between() -> None:
        context.willing = context.executed == 1
        if context.willing:
            other.append(0, b"x", write_locks=[waltz.Lock("row", 1)])

    context.during = append_between
    client.submit(context)
    client.flush(10)
    assert app.record.of("once") == [("lock failure",), ("completion", False)]


def test_error_in_retry_is_reported_once(open_client: Open, other: SyncClient[bytes]) -> None:
    app = Recording()
    client = open_client(app)
    context = Say(app.record, "broken", lock="row")

    def append_between() -> None:
        if context.executed == 2:
            raise ZeroDivisionError
        other.append(0, b"x", write_locks=[waltz.Lock("row", 1)])

    context.during = append_between
    client.submit(context)
    client.flush(10)
    assert app.record.of("broken") == [("lock failure",), ("exception", "ZeroDivisionError")]
    assert not client.has_pending


def test_failed_apply_is_repeated_without_repeating_completion(open_client: Open) -> None:
    failures = iter(range(3))

    def before(transaction: waltz.Transaction[bytes]) -> None:
        if transaction.data == b"hard" and next(failures, None) is not None:
            raise OSError("the disk is full")

    app = Recording(before=before)
    client = open_client(app)
    for name in ("easy", "hard", "after"):
        client.submit(Say(app.record, name))
    client.flush(20)
    assert [(partition, i) for partition, i, _ in app.errors] == [(0, 1)] * 3
    assert all(isinstance(error, OSError) for _, _, error in app.errors)
    assert [each.id for each in app.applied] == [0, 1, 2]
    for name, number in (("easy", 0), ("hard", 1), ("after", 2)):
        assert app.record.of(name) == [("completion", True), ("applied", number), ("application",)]


def test_failing_partition_does_not_delay_others(open_client: Open) -> None:
    def before(transaction: waltz.Transaction[bytes]) -> None:
        if transaction.partition == 0:
            raise SystemExit

    app = Recording(before=before)
    client = open_client(app)
    client.submit(Say(app.record, "stuck", partition=0))
    client.submit(Say(app.record, "free", partition=1))
    until(lambda: app.record.of("free")[-1:] == [("application",)] and len(app.errors) >= 2)
    assert app.record.of("stuck") == [("completion", True)]
    assert client.has_pending
    with pytest.raises(TimedOut, match="partition 0: 1 transactions are still open"):
        client.flush(0.01)


def test_error_in_a_callback_has_no_effect_on_the_log(open_client: Open) -> None:
    class FailingCallbacks(Say):
        def on_completion(self, result: bool) -> None:
            raise ValueError("completion")

        def on_application(self) -> None:
            raise ValueError("application")

    app = Recording()
    client = open_client(app)
    client.submit(FailingCallbacks(app.record, "rude"))
    client.flush(10)
    assert [str(error) for _, _, error in app.errors] == ["completion", "application"]
    assert [each.id for each in app.applied] == [0]


@pytest.mark.parametrize("committed", [True, False])
def test_uncertain_append_is_reported_and_applying_continues(
    cluster: SyncCluster, open_client: Open, committed: bool
) -> None:
    app = Recording()
    client = open_client(app)
    cluster.fail_next_append(0, committed=committed)
    client.submit(Say(app.record, "lost"))
    client.flush(10)
    client.submit(Say(app.record, "next"))
    client.flush(10)
    until(lambda: len(app.applied) == 1 + committed)
    events = [event for event in app.record.of("lost") if event[0] != "applied"]
    assert events == [("exception", "AppendUncertain")]
    assert [each.data for each in app.applied] == ([b"lost"] if committed else []) + [b"next"]


def test_append_without_a_context_is_applied(open_client: Open) -> None:
    app = Recording()
    client = open_client(app)
    for number in range(20):
        client.submit(Say(app.record, f"context {number}"))
        client.log.append(0, b"direct")
    client.flush(10)
    until(lambda: len(app.applied) == 40)
    assert len([each for each in app.applied if each.data == b"direct"]) == 20


def test_submit_waits_for_room_among_open_contexts(cluster: SyncCluster, open_client: Open) -> None:
    app = Recording()
    client = open_client(app, max_in_flight=2, submit_timeout=0.05)
    cluster.suspend_feed(0)
    client.submit(Say(app.record, "a"))
    client.submit(Say(app.record, "b"))
    with pytest.raises(TimedOut, match="2 transactions are open"):
        client.submit(Say(app.record, "c"))
    client.submit(Say(app.record, "elsewhere", partition=1))
    cluster.resume_feed(0)
    client.flush(10)
    client.submit(Say(app.record, "c"))
    client.flush(10)
    assert {each.data for each in app.applied} == {b"a", b"b", b"c", b"elsewhere"}


def test_callback_may_submit_and_may_not_wait(open_client: Open) -> None:
    app = Recording()
    client = open_client(app, max_in_flight=1)
    refused: list[str] = []
    second = Say(app.record, "second")

    class First(Say):
        def on_application(self) -> None:
            for call in (client.flush, client.close, lambda: client.set_partitions([])):
                try:
                    call()
                except (InCallback, ValueError) as error:
                    refused.append(type(error).__name__)
            client.submit(second)

    client.submit(First(app.record, "first"))
    assert second.ended.wait(60)
    assert refused == ["InCallback", "InCallback", "ValueError"]


def test_set_partitions_changes_the_active_partitions(
    open_client: Open, other: SyncClient[bytes]
) -> None:
    app = Recording()
    client = open_client(app, auto_mount=False)
    with pytest.raises(PartitionInactive, match="set_partitions"):
        client.submit(Say(app.record, "x"))
    client.set_partitions([1])
    assert client.active_partitions == {1}
    other.append(0, b"unseen")
    client.submit(Say(app.record, "x", partition=1))
    client.flush(10)
    with pytest.raises(waltz.PartitionUnknown):
        client.set_partitions([2])
    app.marks[1] = 0
    client.set_partitions([0, 1])
    until(lambda: len(app.applied) == 2)
    client.set_partitions([0])
    with pytest.raises(PartitionInactive):
        client.mark(1)
    client.set_partitions([0, 1])
    client.submit(Say(app.record, "y", partition=1))
    client.flush(10)
    assert [each.data for each in app.applied] == [b"x", b"unseen", b"y"]
    with pytest.raises(ValueError, match="auto_mount=False"):
        open_client(Recording()).set_partitions([0])


def test_deactivated_partition_applies_no_further_transaction(
    open_client: Open, other: SyncClient[bytes]
) -> None:
    """All transactions have arrived in one batch when the partition is deactivated."""
    for number in range(10):
        other.append(0, b"%d" % number)
    applying, deactivated = threading.Event(), threading.Event()

    def wait_at_three(transaction: waltz.Transaction[bytes]) -> None:
        if transaction.id == 3:
            applying.set()
            assert deactivated.wait(60)

    app = Recording(before=wait_at_three)
    client = open_client(app, auto_mount=False)
    client.set_partitions([0])
    assert applying.wait(60)
    deactivating = threading.Thread(target=client.set_partitions, args=([],))
    deactivating.start()
    until(lambda: not client.active_partitions)
    client.log.high_water_mark(0)  # The event loop has had its next turn afterwards.
    deactivated.set()
    deactivating.join()
    assert [transaction.id for transaction in app.applied] == [0, 1, 2, 3]


def test_context_is_completed_after_its_partition_is_deactivated(
    cluster: SyncCluster, open_client: Open
) -> None:
    app = Recording()
    client = open_client(app, auto_mount=False)
    client.set_partitions([0])
    cluster.suspend_feed(0)
    client.submit(Say(app.record, "late"))
    client.set_partitions([])
    assert client.has_pending
    cluster.resume_feed(0)
    client.flush(10)
    assert app.record.of("late") == [("completion", True)]
    assert app.applied == []


def test_retry_in_a_deactivated_partition_ends(
    cluster: SyncCluster, open_client: Open, other: SyncClient[bytes]
) -> None:
    stuck = threading.Event()

    def before(transaction: waltz.Transaction[bytes]) -> None:
        stuck.set()
        raise OSError

    app = Recording(before=before)
    client = open_client(app, auto_mount=False)
    client.set_partitions([0])
    other.append(0, b"x", write_locks=[waltz.Lock("row", 1)])
    assert stuck.wait(60)
    client.submit(Say(app.record, "refused", lock="row"))
    until(lambda: app.record.of("refused") == [("lock failure",)])
    client.set_partitions([])
    client.flush(10)
    assert app.record.of("refused")[1:] == [("exception", "PartitionInactive")]


def test_close_ends_every_open_context(cluster: SyncCluster, open_client: Open) -> None:
    app = Recording()
    client = open_client(app)
    cluster.suspend_feed(0)
    client.submit(Say(app.record, "unknown"))
    until(lambda: cluster.transactions(0))
    client.close()
    client.close()
    assert app.record.of("unknown") == [("exception", "AppendUncertain")]
    with pytest.raises(waltz.ClientClosed):
        client.submit(Say(app.record, "late"))


def test_close_ends_contexts_whose_execute_runs_meanwhile(
    cluster: SyncCluster, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Recording()
    client = open_client(app)
    log_closed, all_submitted = threading.Event(), threading.Event()
    close_log = client.log.asyncio_client.close

    async def close_and_report() -> None:
        await close_log()
        log_closed.set()

    class First(Say):
        def on_exception(self, error: Exception) -> None:
            all_submitted.wait(60)

    class Later(Say):
        def on_exception(self, error: Exception) -> None:
            super().on_exception(error)
            # Hold the retry thread, so that the next context waits while `close` continues.
            with contextlib.suppress(AssertionError):
                until(lambda: client.log.thread.stopped, 0.1)

    monkeypatch.setattr(client.log.asyncio_client, "close", close_and_report)
    cluster.suspend_feed(0)
    client.submit(First(app.record, "first"))
    until(lambda: cluster.transactions(0))
    later = [Later(app.record, name, during=lambda: log_closed.wait(60)) for name in "abc"]
    submits = [threading.Thread(target=client.submit, args=(context,)) for context in later]
    for thread in submits:
        thread.start()
    until(lambda: all(context.executed for context in later))
    close = threading.Thread(target=client.close)
    close.start()
    for thread in submits:
        thread.join(60)
    all_submitted.set()
    close.join(60)
    assert [app.record.of(name) for name in "abc"] == [[("exception", "ClientClosed")]] * 3
    assert not client.has_pending


def test_context_whose_execute_returns_at_the_end_of_close_is_refused_or_ended(
    cluster: SyncCluster, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its append was started on an event loop that stopped: it stayed open without a callback."""
    app = Recording()
    client = open_client(app)
    ending, submitted = threading.Event(), threading.Event()
    stop, errors = client.log.thread.stop, list[Exception]()

    def submit() -> None:
        try:
            client.submit(Say(app.record, "late", during=lambda: ending.wait(60)))
        except waltz.ClientClosed as error:
            errors.append(error)
        submitted.set()

    def stop_later() -> None:
        async def hold() -> None:
            ending.set()
            assert submitted.wait(60)

        client.log.thread.start(hold())
        submitted.wait(60)
        stop()

    monkeypatch.setattr(client.log.thread, "stop", stop_later)
    thread = threading.Thread(target=submit)
    thread.start()
    until(lambda: client.has_pending)
    client.close()
    thread.join(60)
    assert len(errors) + len(app.record.of("late")) == 1
    assert not client.has_pending


def test_close_wakes_submits_that_wait_for_room(cluster: SyncCluster, open_client: Open) -> None:
    app = Recording()
    client = open_client(app, max_in_flight=1, submit_timeout=60)
    cluster.suspend_feed(0)
    client.submit(Say(app.record, "first"))
    ended: list[BaseException] = []

    def submit() -> None:
        try:
            client.submit(Say(app.record, "second"))
        except waltz.ClientClosed as error:
            ended.append(error)

    waiting = threading.Thread(target=submit)
    waiting.start()
    client.close()
    waiting.join(60)
    assert len(ended) == 1


def test_mark_of_another_log_raises_client_ahead(
    open_client: Open, other: SyncClient[bytes]
) -> None:
    app = Recording(marks={0: 5})
    client = open_client(app)
    until(lambda: app.errors)
    assert app.errors[0][:2] == (0, 6)
    with pytest.raises(waltz.ClientAhead):
        client.submit(Say(app.record, "x"))
    client.submit(Say(app.record, "x", partition=1))
    client.flush(10)


def test_failed_client_is_reported_once(cluster: SyncCluster, open_client: Open) -> None:
    """The client cannot follow the servers any more: the cluster was deleted in ZooKeeper."""
    app = Recording()
    client = open_client(app)
    cluster.kill_server()
    cluster.call(cluster.asyncio_cluster.zookeeper.clear)
    until(lambda: len(app.errors) == 2)
    with pytest.raises(waltz.ClientFailed, match="there is no Waltz cluster"):
        client.submit(Say(app.record, "x"))
    client.close()
    assert [type(error) for _, _, error in app.errors] == [waltz.ClientFailed] * 2


def test_submit_in_the_report_of_a_failed_client_raises_the_failure(
    cluster: SyncCluster, open_client: Open
) -> None:
    refusals: list[type[Exception]] = []

    class Submitting(Recording):
        @override
        def uncaught_exception(self, partition: int, transaction_id: int, error: Exception) -> None:
            try:
                client.submit(Say(self.record, "x", partition=partition))
            except waltz.ClientFailed as refused:
                refusals.append(type(refused))
            super().uncaught_exception(partition, transaction_id, error)

    app = Submitting()
    client = open_client(app)
    cluster.kill_server()
    cluster.call(cluster.asyncio_cluster.zookeeper.clear)
    until(lambda: len(app.errors) == 2)
    assert refusals == [waltz.ClientFailed] * 2


def end_process(*_: object) -> None:
    raise SystemExit


@pytest.mark.parametrize("callback", ["on_application", "on_lock_failure"])
def test_system_exit_in_a_callback_is_reported_and_has_no_other_effect(
    open_client: Open, other: SyncClient[bytes], monkeypatch: pytest.MonkeyPatch, callback: str
) -> None:
    app = Recording()
    client = open_client(app)
    context = Say(app.record, "ending", lock="row")

    def append_between() -> None:
        if context.executed == 1:
            other.append(0, b"x", write_locks=[waltz.Lock("row", 1)])

    context.during = append_between
    monkeypatch.setattr(context, callback, end_process)
    client.submit(context)
    client.flush(10)
    assert not client.has_pending
    assert [each.data for each in app.applied] == [b"x", b"ending"]
    assert [str(error) for _, _, error in app.errors] == ["a callback raised SystemExit"]


def test_system_exit_in_on_exception_is_reported_and_leaves_no_context_pending(
    cluster: SyncCluster, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Recording()
    client = open_client(app)
    cluster.fail_next_append(0, committed=False)
    context = Say(app.record, "x")
    monkeypatch.setattr(context, "on_exception", end_process)
    client.submit(context)
    client.flush(10)
    assert not client.has_pending
    assert [str(error) for _, _, error in app.errors] == ["a callback raised SystemExit"]


def test_system_exit_in_on_completion_of_a_deactivated_partition_ends_every_context(
    cluster: SyncCluster, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Recording()
    client = open_client(app, auto_mount=False)
    client.set_partitions([0])
    cluster.suspend_feed(0)
    contexts = [Say(app.record, name) for name in ("ending", "next")]
    monkeypatch.setattr(contexts[0], "on_completion", end_process)
    for context in contexts:
        client.submit(context)
    client.set_partitions([])
    cluster.resume_feed(0)
    client.flush(10)
    assert not client.has_pending
    assert app.record.of("next") == [("completion", True)]
    assert [str(error) for _, _, error in app.errors] == ["a callback raised SystemExit"]


def test_interruption_in_a_callback_on_the_submitting_thread_is_raised(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Recording()
    client = open_client(app)
    context = Say(app.record, "none", willing=False)

    def interrupt(_: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(context, "on_completion", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.submit(context)
    assert not client.has_pending
    assert app.errors == []


def test_error_in_get_client_high_water_mark_closes_the_client(cluster: SyncCluster) -> None:
    class Broken(Recording):
        def get_client_high_water_mark(self, partition: int) -> int:
            raise OSError("no database")

    before = set(threading.enumerate())
    with pytest.raises(OSError, match="no database"):
        CallbackClient(opened(cluster.connect()), Broken())
    assert set(threading.enumerate()) <= before


def test_wait_applied_returns_after_the_transaction_is_applied(
    open_client: Open, other: SyncClient[bytes]
) -> None:
    app = Recording()
    client = open_client(app)
    tx = other.append(0, b"theirs")
    client.wait_applied(0, tx, 10)
    assert [each.id for each in app.applied] == [tx]
    with pytest.raises(TimedOut, match="was applied up to transaction 0, not to 5"):
        client.wait_applied(0, 5, 0.01)
    wrong: Any = "x"
    for arguments in ((0, wrong), (0, 5, wrong)):
        with pytest.raises(TypeError, match=r"^(transaction_id|timeout) is 'x': it must be "):
            client.wait_applied(*arguments)


def test_flush_with_a_wrong_timeout_is_refused(open_client: Open) -> None:
    client = open_client(Recording())
    with pytest.raises(ValueError, match="timeout is -1: it must be a number of seconds"):
        client.flush(-1)


def test_callback_metrics_show_latencies_and_activity(open_client: Open) -> None:
    app = Recording()
    client = open_client(app)
    client.submit(Say(app.record, "x"))
    client.flush(10)
    form = client.log.metrics()
    group = "waltz-client-stream.partition-0"
    assert form["timers"][f"{group}.on-completion-latency"]["count"] == 1
    assert form["timers"][f"{group}.on-application-latency"]["count"] == 1
    assert form["gauges"][f"{group}.is-partition-active"]["value"] is True


def test_random_faults_lose_and_repeat_no_callback() -> None:
    faults = Faults(delay_seconds=(0, 0.002), lost=0.1, conflict=0.1)
    flaky = iter(range(10_000))

    def before(transaction: waltz.Transaction[bytes]) -> None:
        if next(flaky) % 37 == 0:
            raise OSError

    with SyncCluster(2, seed=5, faults=faults) as cluster:
        apps = [Recording(before=before) for _ in range(2)]
        clients = [CallbackClient(opened(cluster.connect()), app, retry_threads=3) for app in apps]
        names = [f"{number}/{index}" for index in range(2) for number in range(60)]
        for index, (app, client) in enumerate(zip(apps, clients, strict=True)):
            for number in range(60):
                context = Say(app.record, f"{number}/{index}", partition=number % 2, lock="row")
                client.submit(context)
        for client in clients:
            client.flush(60)
        logs = [[each.id for each in cluster.transactions(partition)] for partition in range(2)]
        until(lambda: all(len(app.applied) == 120 for app in apps))
        for client in clients:
            client.close()
        for app in apps:
            for partition in range(2):
                assert [each.id for each in app.applied if each.partition == partition] == logs[
                    partition
                ]
            assert sorted(each.data.decode() for each in app.applied) == sorted(names)
        for index, app in enumerate(apps):
            for name in (name for name in names if name.endswith(f"/{index}")):
                events = [event[0] for event in app.record.of(name) if event[0] != "lock failure"]
                assert events == ["completion", "applied", "application"]


def test_change_of_the_client_in_get_client_high_water_mark_is_refused(
    cluster: SyncCluster,
) -> None:
    """The call would wait for the end of the change of partitions that needs the mark."""
    refused: list[str] = []

    class Changing(Recording):
        def get_client_high_water_mark(self, partition: int) -> int:
            calls: list[Callable[[], None]] = [lambda: client.set_partitions([]), client.close]
            for call in calls:
                try:
                    call()
                except InCallback as error:
                    refused.append(str(error).partition(" ")[0])
            return super().get_client_high_water_mark(partition)

    # Not `open_client`: if the call waits, so does the close of the client.
    client = CallbackClient(opened(cluster.connect()), Changing(), auto_mount=False)
    changing = threading.Thread(target=client.set_partitions, args=([0],), daemon=True)
    changing.start()
    changing.join(10)
    assert refused == ["set_partitions", "close"]
    changing.join()
    assert client.active_partitions == {0}
    client.close()


def test_callback_may_not_change_the_active_partitions(open_client: Open) -> None:
    """It would wait for the end of the partition whose callback it is."""
    app = Recording()
    client = open_client(app, auto_mount=False)
    client.set_partitions([0])
    refused: list[str] = []

    class Changing(Say):
        def on_application(self) -> None:
            try:
                client.set_partitions([])
            except InCallback as error:
                refused.append(str(error))
            called.set()

    called = threading.Event()
    client.submit(Changing(app.record, "x"))
    assert called.wait(60)
    assert len(refused) == 1
    assert "set_partitions" in refused[0]
    assert client.active_partitions == {0}
