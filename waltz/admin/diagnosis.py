"""Find out what is wrong with a cluster, even if processes do not answer.

Touches ZooKeeper, and the ports of all servers and storages; changes nothing. If ZooKeeper answers,
`waltz.admin.core.health` makes the statements on what is wrong; otherwise this module makes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from waltz.admin.core.health import (
    MIN_DISK_FREE,
    Health,
    Severity,
    Statement,
    judge,
    unknown_health,
)
from waltz.admin.core.replica_states import view_partition
from waltz.admin.core.sample_checks import check_sample
from waltz.admin.inspection import query_servers
from waltz.admin.monitoring import Monitor
from waltz.client.outside import network_for
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.kazoo_store import ConnectFailed
from waltz.metadata.store import StoreError
from waltz.metadata.transport import tls_of_cluster
from waltz.metadata.zookeeper_access import AccessDenied, BadCredentials
from waltz.metadata.zookeeper_probe import probe_zookeeper
from waltz.net import TCP, Network, TlsConfig

OpenCluster = Callable[[], AbstractAsyncContextManager[Cluster]]
"""Opens a session with ZooKeeper; the context manager ends the session."""


async def diagnose(
    open_cluster: OpenCluster,
    zookeeper: str,
    tls: TlsConfig | None,
    *,
    timeout_seconds: float,
    min_disk_free: float = MIN_DISK_FREE,
    access: Access = "inside",
    network: Network = TCP,
) -> Health:
    """Return the health of a cluster.

    ``open_cluster`` opens a session with the ZooKeeper at ``zookeeper``. A process has
    ``timeout_seconds`` for an answer. Without ``tls``, the servers' declaration in ZooKeeper says
    whether ports use TLS. ``access`` says whether processes are dialed at their registered or at
    their outside addresses. ``min_disk_free`` is the percentage of a disk that must be free. Raises
    BadRoot, TlsConfigError and BadCredentials, which are about the caller's own settings.
    """
    has_session = False
    # The queries of `Monitor.sample` take at most twice `timeout_seconds`, and do so while the
    # sample is read from ZooKeeper. The rest is for the session: only ZooKeeper can be too late.
    limit_seconds = timeout_seconds * 4 + 2
    try:
        async with asyncio.timeout(limit_seconds) as limit, open_cluster() as cluster:
            has_session = True
            dialing = network_for(cluster, access, network)
            return await _diagnose(cluster, tls, timeout_seconds, min_disk_free, dialing, limit)
    except BadCredentials:
        raise  # It is a StoreError, but says nothing of ZooKeeper, which was not contacted.
    except ConnectFailed as problem:
        reason = f"ZooKeeper does not answer: {problem.summary}."
        return unknown_health(_without_zookeeper(reason, problem.answers))
    except (NoCluster, MalformedMetadata, StoreError, TimeoutError) as problem:
        if (statement := unusable_cluster(problem)) is not None:
            return unknown_health(statement)
        failure = "ZooKeeper stopped answering" if has_session else "ZooKeeper does not answer"
        reason = str(problem) or f"no answer within {limit_seconds:g} s"
        answers = await probe_zookeeper(zookeeper, timeout_seconds=timeout_seconds)
        return unknown_health(_without_zookeeper(f"{failure}: {reason}.", answers))


def unusable_cluster(problem: Exception) -> Statement | None:
    """Return the statement on an error after which the cluster in ZooKeeper cannot be read.

    Return None if ``problem`` means that ZooKeeper itself does not answer.
    """
    match problem:
        case NoCluster():
            remedy = "Check the path, or create the cluster. To see what ZooKeeper has there"
            return _critical(f"{problem}.", remedy, "waltz cluster show")
        case MalformedMetadata():
            remedy = "Look at what a rescue from the storages would write"
            return _critical(f"{problem}.", remedy, "waltz cluster rescue --dry-run")
        case AccessDenied():
            return _critical(f"{problem}.", "Correct the credentials")
        case _:
            return None


async def _diagnose(
    cluster: Cluster,
    own_tls: TlsConfig | None,
    timeout_seconds: float,
    min_disk_free: float,
    network: Network,
    limit: asyncio.Timeout,
) -> Health:
    """Return the health of a cluster whose ZooKeeper answers; ``own_tls`` is the caller's TLS.

    ``limit`` bounds the time for ZooKeeper, and is removed after the last read.
    """
    try:
        tls = await tls_of_cluster(cluster, own_tls)
    except MalformedMetadata as problem:
        remedy = "Until the declaration is corrected, give --tls on or --tls off"
        return unknown_health(_critical(f"{problem}.", remedy))
    async with Monitor(
        cluster, tls, timeout_seconds=timeout_seconds, details=True, network=network
    ) as monitor:
        now = await monitor.sample()
    # `query_servers` bounds each request. If servers are slow, ZooKeeper is not the cause.
    limit.reschedule(None)
    members = now.membership.servers().values()
    reports = await query_servers(members, tls, timeout_seconds=timeout_seconds, network=network)
    reached = {
        server: dict(report.storages)
        for server, report in reports.items()
        if report.problem is None
    }
    # There is no earlier sample for a rate of transactions: no statement needs one.
    partitions = [view_partition(None, now, p) for p in range(now.num_partitions)]
    findings = check_sample(now, reached)
    return judge(now, partitions, findings, min_disk_free=min_disk_free)


def _without_zookeeper(problem: str, answers: Mapping[str, str]) -> Statement:
    """Return the statement that ZooKeeper does not serve.

    ``answers`` has, by address, what each server of ZooKeeper answered to a probe.
    """
    servers = "; ".join(f"{address} {answer}" for address, answer in answers.items())
    return Statement(
        Severity.CRITICAL,
        f"{problem} {servers}." if servers else problem,
        "Start a majority of ZooKeeper's servers, and check the address. Open partitions continue "
        "meanwhile",
        # The first address: a local cluster, whose processes are found by it, has only one.
        process=next(iter(answers), None),
    )


def _critical(text: str, remedy: str, command: str | None = None) -> Statement:
    return Statement(Severity.CRITICAL, text, remedy, command)
