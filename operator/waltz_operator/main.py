"""Run the operator's process, ``waltz-operator``.

The process acquires the Lease (`shell.leader_election`), then reconciles clusters until it is
stopped or loses the Lease. Its settings come from environment variables, which the chart sets.
Touches the environment, files and the network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import kopf

from waltz.runtime.memory import collect_every, favour_size
from waltz.runtime.process import (
    fail_stop_on_error,
    run_loop,
    run_until_done,
    set_up_logging,
    stop_signal,
)
from waltz_operator.shell.api_login import NoKubeConfig
from waltz_operator.shell.controller import Controller
from waltz_operator.shell.environment import NetworkEnvironment
from waltz_operator.shell.event_recorder import KubeEventRecorder
from waltz_operator.shell.fencing import LeaderEnvironment, LeaderKube
from waltz_operator.shell.handlers import WATCHED_KINDS, make_registry, watch_owned
from waltz_operator.shell.http import serve_http
from waltz_operator.shell.kube_api import ApiServer, connected_api_server
from waltz_operator.shell.leader_election import LeaderElection
from waltz_operator.shell.liveness import Liveness
from waltz_operator.shell.metrics import OperatorMetrics
from waltz_operator.shell.reconciler import Reconciler

log = logging.getLogger(__name__)

_EXIT_LEASE_LOST = 1
"""The exit code: Kubernetes restarts the container, which then waits for the Lease again."""
_COLLECT_SECONDS = 10.0
"""How often the garbage collector runs in addition to Python's own runs (see `collect_every`)."""


class BadVariable(ValueError):
    """An environment variable cannot be used; the text names it and says what it must be."""


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The operator's settings.

    ``namespace`` is the namespace of the operator and of its Lease. The operator manages the
    clusters of ``watched_namespace``, or of all namespaces if it is empty. ``lease`` is the name of
    the Lease: operators with the same Lease elect one leader. ``identity`` names this process in
    the Lease. The chart sets ``identity`` to the name of the pod. A restarted container has the
    same name, so it may take the Lease that it held before, and leads again at once.
    ``http_port`` serves health and metrics; the system chooses a port for 0.
    """

    namespace: str
    watched_namespace: str
    identity: str
    http_port: int
    lease: str = "waltz-operator"


def read_settings(variables: Mapping[str, str]) -> OperatorConfig:
    """Return the settings that environment variables give. Raises BadVariable."""
    return OperatorConfig(
        namespace=variables.get("WALTZ_OPERATOR_NAMESPACE", "default"),
        watched_namespace=variables.get("WALTZ_OPERATOR_WATCHED_NAMESPACE", ""),
        identity=variables.get("WALTZ_OPERATOR_POD")
        or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}",
        http_port=_port(variables, "WALTZ_OPERATOR_HTTP_PORT", "8080"),
        lease=variables.get("WALTZ_OPERATOR_LEASE") or "waltz-operator",
    )


def _port(variables: Mapping[str, str], name: str, default: str) -> int:
    """Return the port that a variable has. Raises BadVariable."""
    value = variables.get(name) or default
    is_number = value.isascii() and value.isdecimal() and len(value) <= 5
    if not is_number or int(value) > 65535:
        raise BadVariable(f"{name} is {value!r}: it must be a port, a number from 0 to 65535")
    return int(value)


def main() -> None:
    """Entry point of the console script."""
    set_up_logging(verbose=False)
    # kazoo logs every retry of a connection; the cluster's status reports the problem once.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    # kopf logs every change that it sees.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        run_loop(_run(read_settings(os.environ)), tune_memory=favour_size)
    except (BadVariable, NoKubeConfig) as problem:
        sys.exit(f"waltz-operator: {problem}")


async def _run(settings: OperatorConfig) -> None:
    """Connect to the API server of Kubernetes, then operate clusters until the process ends."""
    async with connected_api_server() as kube:
        # An operator removes the folders of its own identity only: other operators may use the same
        # directory for temporary files. The identity is quoted, because it may contain a slash.
        prefix = f"waltz-operator-{quote(settings.identity, safe='')}"
        _remove_folders(prefix)
        collecting = asyncio.create_task(collect_every(_COLLECT_SECONDS))
        with tempfile.TemporaryDirectory(prefix=f"{prefix}-") as folder:
            await _operate(settings, kube, Path(folder))
        collecting.cancel()


def _remove_folders(prefix: str) -> None:
    """Remove the folders that earlier processes of this operator have left.

    The folders contain private keys. A process that is killed or loses the Lease cannot remove its
    folder. The volume for temporary files outlives the container, so it would become full.
    """
    for folder in Path(tempfile.gettempdir()).glob("waltz-operator-*"):
        # The part that `tempfile` adds has no hyphen.
        if folder.name.rpartition("-")[0] == prefix:
            shutil.rmtree(folder, ignore_errors=True)


async def _operate(settings: OperatorConfig, kube: ApiServer, folder: Path) -> None:
    """Wait for the Lease, then reconcile clusters until the process is stopped.

    ``folder`` is for the files of certificates and credentials.
    """
    election = LeaderElection(
        kube, settings.namespace, settings.lease, settings.identity, clock=time.monotonic
    )
    leader_kube = LeaderKube(kube, election.may_write)
    # `controller` is assigned below, because it needs the environment. The lambda is called only by
    # steps, and no step runs before the assignment.
    environment = NetworkEnvironment(
        leader_kube,
        folder,
        on_progress=lambda namespace, name: controller.note_progress(namespace, name),
    )
    recorder = KubeEventRecorder(leader_kube)
    reconciler = Reconciler(
        leader_kube,
        LeaderEnvironment(environment, election.may_write),
        recorder,
        operator_namespace=settings.namespace,
    )
    controller = Controller(reconciler.reconcile, reconciler.check)
    liveness = Liveness(controller)
    stop = stop_signal()

    async with serve_http(
        None,  # All addresses.
        settings.http_port,
        liveness.problem,
        OperatorMetrics(controller, recorder, is_leader=lambda: election.is_leader),
    ):
        # An error of `acquire` ends the process, so that it never leads without the Lease.
        await run_until_done(election.acquire(), stop)
        if not stop.is_set():
            tasks = [recorder.start(), asyncio.ensure_future(_exit_when_lease_is_lost(election))]
            for kind in WATCHED_KINDS:
                watch = watch_owned(
                    kube, kind, settings.watched_namespace, controller, liveness.progress
                )
                tasks.append(fail_stop_on_error(asyncio.ensure_future(watch)))
            await _run_kopf(settings, controller, reconciler, stop)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        # From here on the Lease is not renewed. Reconciles end before the Lease is released,
        # because another operator may lead directly afterwards. If they do not end before the
        # deadline of the Lease, `fencing` refuses their writes.
        await controller.close()
        await environment.close()
        await election.release()


async def _run_kopf(
    settings: OperatorConfig, controller: Controller, reconciler: Reconciler, stop: asyncio.Event
) -> None:
    """Let kopf watch the resources and call the handlers, until ``stop`` is set."""
    # ``standalone`` turns kopf's own leader election off: with that election, two operators of
    # equal priority both pause. The Lease has already elected this operator.
    await kopf.operator(
        registry=make_registry(controller, reconciler, settings.watched_namespace),
        standalone=True,
        clusterwide=not settings.watched_namespace,
        namespaces=[settings.watched_namespace] if settings.watched_namespace else [],
        # Without an identity kopf looks up the user's name, but the user of a container has none.
        identity=settings.identity,  # type: ignore[arg-type]
        stop_flag=stop,
    )


async def _exit_when_lease_is_lost(election: LeaderElection) -> None:
    """End the process at once when the Lease is lost: another operator may become active.

    An unexpected exception ends the process, too, because it ends the renewals of the Lease.
    """
    try:
        await election.renew_until_lost()
    except Exception:
        log.critical("lease: renewals failed unexpectedly; ending the process", exc_info=True)
    logging.shutdown()
    os._exit(_EXIT_LEASE_LOST)
