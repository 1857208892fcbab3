"""The operator's process: ``waltz-operator``. Wins the Lease, then works until it is lost.

Touches everything. Settings are read from the environment, as the chart sets them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import kopf
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient

from waltz.runtime.process import run_loop, set_up_logging, stop_signal, watched
from waltz_operator.shell.controller import Lookout
from waltz_operator.shell.environment import RealSurroundings
from waltz_operator.shell.event_recorder import EventDiary
from waltz_operator.shell.fault_injection import LastDiary
from waltz_operator.shell.handlers import WATCHED_KINDS, make_registry, watch_owned
from waltz_operator.shell.http import serve_http
from waltz_operator.shell.kube_api import ApiServer
from waltz_operator.shell.leader_election import Election
from waltz_operator.shell.metrics import measure
from waltz_operator.shell.reconciler import Reconciler

log = logging.getLogger(__name__)

_LEASE = "waltz-operator"
_EXIT_LOST = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """How the operator runs. ``watched_namespace`` empty: it looks after all of them.

    ``identity`` is that of this process among operators; one that is given, the name of the pod,
    lets a container that is started anew go on at once. ``dies_after_steps`` 0: it does not.
    """

    namespace: str
    watched_namespace: str
    identity: str
    http_port: int
    dies_after_steps: int = 0


def settings(environment: Mapping[str, str]) -> Settings:
    """Return what the environment says."""
    return Settings(
        namespace=environment.get("WALTZ_OPERATOR_NAMESPACE", "default"),
        watched_namespace=environment.get("WALTZ_OPERATOR_WATCHED_NAMESPACE", ""),
        identity=environment.get("WALTZ_OPERATOR_POD")
        or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        http_port=int(environment.get("WALTZ_OPERATOR_HTTP_PORT", "8080")),
        dies_after_steps=int(environment.get("WALTZ_OPERATOR_DIES_AFTER_STEPS", "0")),
    )


def main() -> None:
    """Entry point of the console script."""
    set_up_logging(verbose=False)
    # A ZooKeeper that is not there yet is told in a cluster's status, not in every retry.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    # It tells of every change that it has seen.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    run_loop(_run(settings(os.environ)))


async def _run(wanted: Settings) -> None:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        kube_config.load_incluster_config()  # type: ignore[no-untyped-call]
    else:
        await kube_config.load_config()  # type: ignore[no-untyped-call]
    async with ApiClient() as client:
        with tempfile.TemporaryDirectory() as folder:
            await _operate(wanted, ApiServer(client), Path(folder))


async def _operate(wanted: Settings, kube: ApiServer, folder: Path) -> None:
    surroundings = RealSurroundings(kube, folder)
    diary = EventDiary(kube)
    told = LastDiary(diary, wanted.dies_after_steps) if wanted.dies_after_steps else diary
    reconciler = Reconciler(kube, surroundings, told, operator_namespace=wanted.namespace)
    lookout = Lookout(reconciler.reconcile)
    election = Election(kube, wanted.namespace, _LEASE, wanted.identity, clock=time.monotonic)
    stop = stop_signal()

    async with serve_http(
        None,
        wanted.http_port,
        lambda: None,
        lambda: measure(lookout, diary, leads=election.leads),
    ):
        winning = asyncio.ensure_future(election.win())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((winning, stopping), return_when=asyncio.FIRST_COMPLETED)
        winning.cancel()
        if not stop.is_set():
            tasks = [diary.start(), asyncio.ensure_future(_exit_when_lost(election))]
            tasks += [
                watched(asyncio.ensure_future(watch))
                for watch in (
                    watch_owned(kube, kind, wanted.watched_namespace, lookout)
                    for kind in WATCHED_KINDS
                )
            ]
            await _run_kopf(wanted, lookout, reconciler, stop)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await lookout.close()
        await surroundings.close()
        await election.resign()


async def _run_kopf(
    wanted: Settings, lookout: Lookout, reconciler: Reconciler, stop: asyncio.Event
) -> None:
    # Its own leader election would freeze two equals; the Lease has decided already.
    await kopf.operator(
        registry=make_registry(lookout, reconciler, wanted.watched_namespace),
        standalone=True,
        clusterwide=not wanted.watched_namespace,
        namespaces=[wanted.watched_namespace] if wanted.watched_namespace else [],
        # Without one it asks who the user is, whom a container's image does not know.
        identity=wanted.identity,  # type: ignore[arg-type]
        stop_flag=stop,
    )


async def _exit_when_lost(election: Election) -> None:
    """End the process at once: another operator may begin any moment."""
    await election.lose()
    logging.shutdown()
    os._exit(_EXIT_LOST)
