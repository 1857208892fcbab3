"""Parts of the operator's process: looks, events, certificates, handlers; what it imports."""

from __future__ import annotations

import asyncio
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.eventually import eventually
from tests.operator.operator_faults import Faults, FaultyKube
from tests.operator.operator_world import World, cluster_resource
from waltz_operator.core.names import CLUSTER_LABEL, MANAGER, MANAGER_LABEL
from waltz_operator.core.observed import Live
from waltz_operator.core.resources import WaltzCluster
from waltz_operator.core.steps import Guard
from waltz_operator.main import settings
from waltz_operator.shell.certificates import days_left, issue, make_authority
from waltz_operator.shell.controller import Lookout, Seen
from waltz_operator.shell.event_recorder import EventDiary
from waltz_operator.shell.handlers import watch_owned
from waltz_operator.shell.http import as_text
from waltz_operator.shell.kube_api import KubeError
from waltz_operator.shell.metrics import MEANINGS, measure


async def test_a_cluster_is_looked_at_after_hints_and_in_time_and_never_twice_at_once() -> None:
    looks: list[str] = []
    under_way = 0

    async def look(namespace: str, name: str) -> Seen | None:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        await asyncio.sleep(0)
        looks.append(f"{namespace}/{name}")
        under_way -= 1
        return Seen(3600.0, ready=len(looks) == 2) if len(looks) < 3 else None

    lookout = Lookout(look)
    lookout.hint("x", "log")
    assert lookout.ready == {}
    await eventually(lambda: lookout.ready == {("x", "log"): False})
    lookout.hint("x", "log")
    await eventually(lambda: lookout.ready == {("x", "log"): True})
    assert lookout.clusters == 1
    lookout.hint("x", "log")
    await eventually(lambda: lookout.clusters == 0)
    assert lookout.ready == {}
    assert lookout.measures.looks == 3


async def test_an_api_server_that_fails_is_asked_again() -> None:
    failures = 1

    async def look(_namespace: str, _name: str) -> Seen | None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise KubeError("nobody answers")
        return None

    lookout = Lookout(look)
    lookout.hint("x", "log")
    await eventually(lambda: lookout.measures.failures == 1)
    lookout.hint("x", "log")
    await eventually(lambda: lookout.clusters == 0)
    await lookout.close()


class DroppedWatches:
    """Tells of one object a watch; between the watches that end well, some break."""

    def __init__(self) -> None:
        self.watches = 0

    async def changes(
        self, kind: str, namespace: str, labels: Mapping[str, str]
    ) -> AsyncIterator[Live]:
        assert (kind, labels) == ("Pod", {MANAGER_LABEL: MANAGER})
        self.watches += 1
        if self.watches % 3 == 1:
            raise KubeError("the watch was refused")
        yield {"metadata": {"namespace": "x", "labels": {CLUSTER_LABEL: f"log-{self.watches}"}}}
        yield {"metadata": {"namespace": "x"}}
        if self.watches % 3 == 2:
            raise KubeError("the watch broke")


async def test_watches_that_end_or_break_are_begun_again() -> None:
    hinted: list[str] = []

    class Hints:
        def hint(self, namespace: str, name: str) -> None:
            hinted.append(name)

    watching = asyncio.create_task(watch_owned(DroppedWatches(), "Pod", "", Hints(), pause=0.0))
    await eventually(lambda: len(hinted) >= 4)
    watching.cancel()
    assert hinted[:4] == ["log-2", "log-3", "log-5", "log-6"]


async def test_steps_become_events_and_the_same_failure_is_told_once() -> None:
    world = World(cluster_resource(), [])
    diary = EventDiary(FaultyKube(world, Faults()))
    posting = diary.start()
    cluster = WaltzCluster.model_validate(world.cluster)
    diary.did(cluster, Guard())
    for _ in range(3):
        diary.failed(cluster, "ZooKeeper does not answer")
    await eventually(lambda: len(world.objects) == 2)
    posting.cancel()
    events = list(world.objects.values())
    assert {each["reason"] for each in events} == {"Guard", "StepFailed"}
    assert all(each["involvedObject"]["name"] == "log" for each in events)
    assert (diary.steps, diary.failed_steps) == (1, 3)


async def test_every_measure_has_a_meaning_and_readiness_is_told_by_cluster() -> None:
    async def look(_namespace: str, name: str) -> Seen:
        return Seen(3600.0, ready=name == "well")

    lookout = Lookout(look)
    for name in ("well", "ill"):
        lookout.hint("x", name)
    await eventually(lambda: len(lookout.ready) == 2)
    measured = measure(
        lookout, EventDiary(FaultyKube(World(cluster_resource(), []), Faults())), leads=True
    )
    await lookout.close()
    assert measured.keys() == MEANINGS.keys()
    text = as_text(measured)
    assert "# TYPE waltz_operator_cluster_ready gauge" in text
    assert 'waltz_operator_cluster_ready{namespace="x",waltz_cluster="well"} 1\n' in text
    assert 'waltz_operator_cluster_ready{namespace="x",waltz_cluster="ill"} 0\n' in text
    assert "\nwaltz_operator_clusters 2\n" in text


def test_certificates_are_good_for_the_clusters_name_on_both_sides(tmp_path: Path) -> None:
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
    shake_hands(listening, dialing, "log.logs.waltz")
    assert 360 < days_left(issued.certificate) < 366


def shake_hands(listening: ssl.SSLContext, dialing: ssl.SSLContext, name: str) -> None:
    """Have two ends verify each other in memory; raises ssl.SSLError."""
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


def test_settings_come_from_the_environment() -> None:
    one = settings({"WALTZ_OPERATOR_NAMESPACE": "ops", "WALTZ_OPERATOR_WATCHED_NAMESPACE": "logs"})
    assert (one.namespace, one.watched_namespace, one.http_port) == ("ops", "logs", 8080)
    assert settings({}).identity != settings({}).identity
    assert settings({"WALTZ_OPERATOR_POD": "waltz-1"}).identity == "waltz-1"


def test_an_operator_that_shall_die_after_two_steps_is_killed_after_the_second() -> None:
    program = (
        "from types import SimpleNamespace as Any\n"
        "from waltz_operator.shell.fault_injection import LastDiary\n"
        "diary = LastDiary(Any(did=lambda *told: print(*told, flush=True)), 2)\n"
        "for step in ('first', 'second', 'third'): diary.did('log', step)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert ran.stdout == "log first\nlog second\n"


def test_kubernetes_generated_models_are_not_imported() -> None:
    """They would be most of the operator's memory at rest."""
    program = (
        "import sys, waltz_operator.main; "
        "print(sum(name.startswith('kubernetes.aio.client.models.') for name in sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 10
