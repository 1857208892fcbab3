"""Parts of the operator's process: controller, event recorder, watches, metrics, certificates."""

from __future__ import annotations

import asyncio
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from tests.support.eventually import eventually
from tests.support.operator_faults import Faults, FaultyKube
from tests.support.operator_world import World, cluster_resource
from tests.support.virtual_time import on_virtual_time
from waltz.runtime.metrics import exposition
from waltz.testing import run
from waltz_operator.core.names import CLUSTER_LABEL, MANAGER, MANAGER_LABEL
from waltz_operator.core.observed import LiveObject
from waltz_operator.core.resources import WaltzCluster
from waltz_operator.core.steps import AddFinalizer, ReleasePool
from waltz_operator.main import OperatorConfig, _operate, read_settings
from waltz_operator.shell.certificates import days_left, issue, make_authority
from waltz_operator.shell.controller import Controller, ReconcileResult
from waltz_operator.shell.event_recorder import MAX_QUEUED_EVENTS, KubeEventRecorder
from waltz_operator.shell.handlers import release_orphaned_pool, watch_owned
from waltz_operator.shell.kube_api import ApiServer, KubeError
from waltz_operator.shell.metrics import HELP, OperatorMetrics

ROOT = Path(__file__).parents[3]


@on_virtual_time
async def test_controller_enqueued_clusters_are_reconciled_and_never_twice_at_once() -> None:
    reconciled: list[str] = []
    under_way = 0

    async def reconcile(namespace: str, name: str) -> ReconcileResult | None:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        await asyncio.sleep(0)
        reconciled.append(f"{namespace}/{name}")
        under_way -= 1
        ready = len(reconciled) == 2
        return ReconcileResult(3600.0, ready=ready) if len(reconciled) < 3 else None

    controller = Controller(reconcile)
    controller.enqueue("x", "log")
    assert controller.ready == {}
    await eventually(lambda: controller.ready == {("x", "log"): False})
    controller.enqueue("x", "log")
    await eventually(lambda: controller.ready == {("x", "log"): True})
    assert controller.num_clusters == 1
    controller.enqueue("x", "log")
    await eventually(lambda: controller.num_clusters == 0)
    assert controller.ready == {}
    assert controller.metrics.reconciles == 3


@on_virtual_time
async def test_controller_api_server_error_is_counted_and_retried() -> None:
    failures = 1

    async def reconcile(_namespace: str, _name: str) -> ReconcileResult | None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise KubeError("connection refused")
        return None

    controller = Controller(reconcile)
    controller.enqueue("x", "log")
    await eventually(lambda: controller.metrics.failures == 1)
    controller.enqueue("x", "log")
    await eventually(lambda: controller.num_clusters == 0)
    await controller.close()


def owned_object(uid: str, version: str, *, owner: str = "log") -> LiveObject:
    labels = {CLUSTER_LABEL: owner}
    metadata = {"namespace": "x", "uid": uid, "resourceVersion": version, "labels": labels}
    return {"metadata": metadata}


class DroppedWatches:
    """Yields one object per watch. Of three watches one is refused and one breaks."""

    def __init__(self) -> None:
        self.watches = 0

    async def changes(
        self, kind: str, namespace: str, labels: Mapping[str, str]
    ) -> AsyncIterator[LiveObject]:
        assert (kind, labels) == ("Pod", {MANAGER_LABEL: MANAGER})
        self.watches += 1
        if self.watches % 3 == 1:
            raise KubeError("the watch was refused")
        yield owned_object(str(self.watches), "1", owner=f"log-{self.watches}")
        yield {"metadata": {"namespace": "x"}}
        if self.watches % 3 == 2:
            raise KubeError("the watch broke")


async def test_watch_that_ends_or_fails_is_restarted() -> None:
    enqueued: list[str] = []
    begun: list[str] = []

    class Queue:
        def enqueue(self, namespace: str, name: str) -> None:
            enqueued.append(name)

    watching = asyncio.create_task(
        watch_owned(DroppedWatches(), "Pod", "", Queue(), begun.append, pause=0.0)
    )
    await eventually(lambda: len(enqueued) >= 7)
    watching.cancel()
    # The end of the third and of the sixth watch shows that earlier objects were deleted meanwhile.
    assert enqueued[:7] == ["log-2", "log-3", "log-2", "log-5", "log-6", "log-3", "log-5"]
    assert len(begun) >= 6
    assert set(begun) == {"Pod"}


class ScriptedWatches:
    """Yields the objects of one list per watch; an exception in a list breaks the watch."""

    def __init__(self, *watches: list[LiveObject | KubeError]) -> None:
        self._watches = list(watches)
        self.ended = asyncio.Event()

    async def changes(
        self, kind: str, namespace: str, labels: Mapping[str, str]
    ) -> AsyncIterator[LiveObject]:
        if not self._watches:
            self.ended.set()
            await asyncio.Event().wait()
        for each in self._watches.pop(0):
            if isinstance(each, KubeError):
                raise each
            yield each


async def enqueued_by(*watches: list[LiveObject | KubeError]) -> list[str]:
    """Return the clusters that a sequence of watches enqueues."""
    enqueued: list[str] = []

    class Queue:
        def enqueue(self, namespace: str, name: str) -> None:
            enqueued.append(f"{namespace}/{name}")

    source = ScriptedWatches(*watches)
    watching = asyncio.create_task(
        watch_owned(source, "Pod", "", Queue(), lambda _: None, pause=0.0)
    )
    await asyncio.wait_for(source.ended.wait(), 5)
    watching.cancel()
    return enqueued


async def test_restarted_watch_enqueues_only_clusters_whose_objects_have_changed() -> None:
    """Otherwise every restart would cause a reconcile of every cluster."""
    first = [owned_object("1", "1", owner="a"), owned_object("2", "1", owner="b")]
    assert await enqueued_by([*first], [*first]) == ["x/a", "x/b"]
    changed = [first[0], owned_object("2", "2", owner="b")]
    assert await enqueued_by([*first], [*changed], [*changed]) == ["x/a", "x/b", "x/b"]
    again = [owned_object("3", "1", owner="a"), first[1]]
    assert await enqueued_by([*first], [*again]) == ["x/a", "x/b", "x/a", "x/a"]


async def test_object_deleted_between_two_watches_enqueues_its_cluster() -> None:
    first = [owned_object("1", "1", owner="a"), owned_object("2", "1", owner="b")]
    assert await enqueued_by([*first], [first[1]], [first[1]]) == ["x/a", "x/b", "x/a"]


async def test_objects_missing_from_a_watch_that_broke_are_not_enqueued_as_deleted() -> None:
    first = [owned_object("1", "1", owner="a"), owned_object("2", "1", owner="b")]
    broken = KubeError("the watch broke")
    assert await enqueued_by([*first], [broken], [first[1], broken], [*first]) == ["x/a", "x/b"]


async def test_event_recorder_posts_every_step_and_a_repeated_failure_once() -> None:
    world = World(cluster_resource(), [])
    recorder = KubeEventRecorder(FaultyKube(world, Faults()))
    posting = recorder.start()
    cluster = WaltzCluster.model_validate(world.cluster)
    recorder.record_steps(cluster, [AddFinalizer()])
    recorder.record_steps(cluster, [])
    for _ in range(3):
        recorder.record_failed_step(cluster, "ZooKeeper does not answer")
    await eventually(lambda: len(world.objects) == 2)
    posting.cancel()
    events = list(world.objects.values())
    assert {each["reason"] for each in events} == {"AddFinalizer", "StepFailed"}
    assert all(each["involvedObject"]["name"] == "log" for each in events)
    assert (recorder.steps, recorder.failed_steps) == (1, 3)


async def test_events_that_do_not_fit_the_queue_are_dropped_and_fail_no_step() -> None:
    world = World(cluster_resource(), [])
    recorder = KubeEventRecorder(FaultyKube(world, Faults()))
    cluster = WaltzCluster.model_validate(world.cluster)
    for number in range(MAX_QUEUED_EVENTS + 100):
        recorder.record_failed_step(cluster, f"problem {number}")
    assert recorder.failed_steps == MAX_QUEUED_EVENTS + 100
    posting = recorder.start()
    await eventually(lambda: len(world.objects) == MAX_QUEUED_EVENTS)
    posting.cancel()
    assert len(world.objects) == MAX_QUEUED_EVENTS


async def test_event_of_many_steps_has_their_number_and_names_the_first_ones() -> None:
    world = World(cluster_resource(), [])
    recorder = KubeEventRecorder(FaultyKube(world, Faults()))
    posting = recorder.start()
    cluster = WaltzCluster.model_validate(world.cluster)
    claims = [ReleasePool(str(number)) for number in range(64)]
    recorder.record_steps(cluster, [*claims[:32], AddFinalizer(), *claims[32:]])
    await eventually(lambda: len(world.objects) == 2)
    posting.cancel()
    messages = {each["reason"]: each["message"] for each in world.objects.values()}
    assert messages == {
        "ReleasePool": "64 steps, the first 3: StoragePool 0 is released; "
        "StoragePool 1 is released; StoragePool 2 is released",
        "AddFinalizer": "finalizer added",
    }
    assert recorder.steps == 65


async def test_event_recorder_keeps_failures_of_at_most_1000_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Only failures that are queued are kept, and this test posts none.
    monkeypatch.setattr("waltz_operator.shell.event_recorder.MAX_QUEUED_EVENTS", 2001)
    world = World(cluster_resource(), [])
    recorder = KubeEventRecorder(FaultyKube(world, Faults()))
    for uid in range(2000):
        resource = cluster_resource()
        resource["metadata"]["uid"] = str(uid)
        recorder.record_failed_step(WaltzCluster.model_validate(resource), "no answer")
    assert list(recorder._last_failure) == [str(uid) for uid in range(1000, 2000)]
    recorder.record_failed_step(WaltzCluster.model_validate(resource), "another reason")
    assert len(recorder._last_failure) == 1000


class FailingReleases:
    """A reconciler whose release of pool ``a`` fails twice."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    async def release_orphaned_pool(self, namespace: str, name: str) -> None:
        self.calls.append((namespace, name))
        if len(self.calls) < 3:
            raise KubeError("the API server did not answer")


def test_failed_release_of_a_deleted_pool_is_retried_until_it_succeeds() -> None:
    releases = FailingReleases()

    async def release() -> float:
        await release_orphaned_pool(releases, "logs", "a")
        return asyncio.get_running_loop().time()

    assert run(release()) == pytest.approx(2.0 + 4.0)
    assert releases.calls == [("logs", "a")] * 3


async def test_metrics_have_help_and_readiness_by_cluster() -> None:
    async def reconcile(_namespace: str, name: str) -> ReconcileResult:
        return ReconcileResult(3600.0, ready=name == "ready")

    controller = Controller(reconcile)
    for name in ("ready", "unready"):
        controller.enqueue("x", name)
    await eventually(lambda: len(controller.ready) == 2)
    recorder = KubeEventRecorder(FaultyKube(World(cluster_resource(), []), Faults()))
    collected = OperatorMetrics(controller, recorder, lambda: True).collect()
    await controller.close()
    text = exposition(collected, "text/plain")[0].decode()
    assert all(f"# HELP {name} {meaning}\n" in text for name, meaning in HELP.items())
    assert "# TYPE waltz_operator_cluster_ready gauge" in text
    assert 'waltz_operator_cluster_ready{namespace="x",waltz_cluster="ready"} 1.0\n' in text
    assert 'waltz_operator_cluster_ready{namespace="x",waltz_cluster="unready"} 0.0\n' in text
    assert "\nwaltz_operator_clusters 2.0\n" in text


def test_certificate_of_the_cluster_name_is_accepted_by_client_and_server(tmp_path: Path) -> None:
    authority = make_authority("log")
    issued = issue(authority, "log.logs.waltz")
    for name, content in {
        "ca.crt": authority.certificate,
        "tls.crt": issued.certificate,
        "tls.key": issued.key,
    }.items():
        (tmp_path / name).write_bytes(content)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    dialing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (listening, dialing):
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
        context.load_verify_locations(tmp_path / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    complete_handshake(listening, dialing, "log.logs.waltz")
    assert 360 < days_left(issued.certificate) < 366


def complete_handshake(listening: ssl.SSLContext, dialing: ssl.SSLContext, name: str) -> None:
    """Complete a TLS handshake in memory; raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = listening.wrap_bio(to_server, to_client, server_side=True)
    client = dialing.wrap_bio(to_client, to_server, server_hostname=name)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for end in (client, server):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                continue
    assert len(done) == 2


class BrokenKube(FaultyKube):
    """An API server whose client has a defect."""

    async def get(self, kind: str, namespace: str, name: str) -> object:
        raise ValueError("unexpected")


async def test_operator_whose_election_fails_unexpectedly_ends_without_leading(
    tmp_path: Path,
) -> None:
    kube = cast(ApiServer, BrokenKube(World(cluster_resource(), []), Faults()))
    with pytest.raises(ValueError, match="unexpected"):
        async with asyncio.timeout(60):
            await _operate(OperatorConfig("ops", "logs", "me", 0), kube, tmp_path)


@pytest.mark.parametrize("failure", ["None", "ValueError('unexpected')", "OSError('unexpected')"])
def test_process_whose_renewals_end_in_any_way_ends(failure: str) -> None:
    program = (
        "import asyncio\n"
        "from waltz_operator.main import _exit_when_lease_is_lost\n"
        "class Election:\n"
        "    async def renew_until_lost(self):\n"
        f"        failure = {failure}\n"
        "        if failure: raise failure\n"
        "async def lead():\n"
        "    task = asyncio.ensure_future(_exit_when_lease_is_lost(Election()))\n"
        "    await asyncio.sleep(1)\n"
        "    print('still leading', task)\n"
        "asyncio.run(lead())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (1, "")


def test_settings_are_read_from_environment_variables() -> None:
    one = read_settings(
        {"WALTZ_OPERATOR_NAMESPACE": "ops", "WALTZ_OPERATOR_WATCHED_NAMESPACE": "logs"}
    )
    assert (one.namespace, one.watched_namespace, one.http_port) == ("ops", "logs", 8080)
    assert read_settings({}).identity != read_settings({}).identity
    assert read_settings({"WALTZ_OPERATOR_POD": "waltz-1"}).identity == "waltz-1"
    assert read_settings({"WALTZ_OPERATOR_LEASE": "orders"}).lease == "orders"
    assert read_settings({"WALTZ_OPERATOR_LEASE": ""}).lease == "waltz-operator"


def test_killed_operator_of_two_steps_ends_after_the_second() -> None:
    program = (
        "import asyncio\n"
        "from e2e.killed_operator import kill_after\n"
        "class Performer:\n"
        "    async def perform(self, step): print(step, flush=True)\n"
        "kill_after(2, Performer)\n"
        "for step in ('first', 'second', 'third'): asyncio.run(Performer().perform(step))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert ran.stdout == "first\nsecond\n"


def test_operator_does_not_import_kubernetes_generated_models() -> None:
    """They would be most of the memory of an idle operator."""
    program = (
        "import sys, waltz_operator.main; "
        "print(sum(name.startswith('kubernetes.aio.client.models.') for name in sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 10
