"""Observe the cluster's own certificate authority. Touches the network during a rotation.

During a rotation the observer connects to every pod of servers and storages. It sees whether the
process there presents the certificate that is now in the secret of the processes. The next phase
begins only when all of them do (`core.planning.rotation`), because a process refuses the
certificates of a peer that is two phases ahead.

The certificate shows which authorities the process trusts. Kubernetes replaces all files of a
mounted secret together. A process reads the files again as soon as one of them has changed: first
its certificate and key, last the authorities. So the authorities that a process trusts come from
the same version of the secret as its certificate, or from a later version.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from waltz_operator.core import names
from waltz_operator.core.authority import ObservedAuthority, RotationPhase
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import COMPONENT_LABEL, POOL_LABEL, Component
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.observed import LiveObject
from waltz_operator.core.resources import TlsMode
from waltz_operator.shell.authority import authority_problem, read_authority, serial_of_processes
from waltz_operator.shell.environment import Environment


@dataclass(frozen=True, slots=True)
class _Process:
    """A pod of the cluster, and where it accepts connections; ``host`` is empty if unknown."""

    pod: str
    component: Component
    host: str
    port: int


async def observe_authority(
    desired: DesiredCluster,
    objects: Mapping[ObjectKey, LiveObject],
    environment: Environment,
    now: datetime.datetime,
) -> ObservedAuthority | None:
    """Return the cluster's own authority; None if the cluster has none that can be decoded.

    During a rotation, ``issued.not_loaded`` of the result has the pods that do not present the
    certificate in the secret of the processes. Raises KubeError.
    """
    if desired.cluster.spec.tls.mode is not TlsMode.OPERATOR:
        return None
    authority_secret = objects.get(ObjectKey("Secret", names.authority_secret(desired.name)))
    process_secret = objects.get(ObjectKey("Secret", names.tls_secret(desired.name)))
    client_secret = objects.get(ObjectKey("Secret", names.client_tls_secret(desired.name)))
    authority = read_authority(authority_secret, process_secret, client_secret, now)
    if authority is None or authority.issued is None or authority.phase is RotationPhase.SETTLED:
        return authority
    processes = list(_processes(desired, objects))
    wanted_serial = serial_of_processes(process_secret)
    presented_serials = await asyncio.gather(
        *(_presented_serial(desired, environment, process) for process in processes)
    )
    # A process that does not answer presents no serial number (None). It counts as a process that
    # has not loaded the certificate, even if ``wanted_serial`` is None, too.
    not_loaded = tuple(
        process.pod
        for process, serial in zip(processes, presented_serials, strict=True)
        if serial is None or serial != wanted_serial
    )
    return replace(authority, issued=replace(authority.issued, not_loaded=not_loaded))


def observe_authority_problem(
    desired: DesiredCluster, objects: Mapping[ObjectKey, LiveObject]
) -> str:
    """Return why the secret of the cluster's own authority cannot be used, for ObservedCluster.

    The text is empty if the secret can be used, is not needed, or belongs to another owner.
    """
    secret = objects.get(ObjectKey("Secret", names.authority_secret(desired.name)))
    if desired.cluster.spec.tls.mode is not TlsMode.OPERATOR:
        return ""
    # The plan reports the secret of another owner as a problem of its own.
    return "" if secret is None or not is_ours(secret, desired.name) else authority_problem(secret)


async def _presented_serial(
    desired: DesiredCluster, environment: Environment, process: _Process
) -> int | None:
    """Return the serial number of the certificate that a process presents.

    The result is None if the process does not answer, or if its address is unknown. Raises
    KubeError.
    """
    if not process.host:
        return None
    return await environment.presented_serial(
        desired, process.component, process.host, process.port
    )


def _processes(
    desired: DesiredCluster, objects: Mapping[ObjectKey, LiveObject]
) -> Iterator[_Process]:
    """Yield the pods of servers and storages; pods that have ended are left out."""
    admin_ports = {pool.metadata.name: pool.spec.admin_port for pool in desired.own_pools}
    for key, live in sorted(objects.items(), key=lambda item: item[0]):
        labels = live["metadata"].get("labels") or {}
        status = live.get("status") or {}
        # A pod that has ended holds no certificate, and is never started again.
        has_ended = status.get("phase") in ("Succeeded", "Failed")
        if key.kind != "Pod" or has_ended or not is_ours(live, desired.name):
            continue
        host = status.get("podIP") or ""
        component = labels.get(COMPONENT_LABEL)
        if component == Component.SERVER:
            yield _Process(key.name, Component.SERVER, host, desired.cluster.spec.servers.port)
        elif component == Component.STORAGE:
            port = admin_ports.get(labels.get(POOL_LABEL, ""))
            # A storage may still run although its pool is no longer one of the cluster's. Then its
            # port is unknown. It gets no host here, so it counts as a process that does not answer,
            # and the rotation waits for it.
            known_host = "" if port is None else host
            yield _Process(key.name, Component.STORAGE, known_host, port or 0)
