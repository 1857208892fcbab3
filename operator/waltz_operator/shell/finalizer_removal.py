"""Remove the operator's finalizers: ``python -m waltz_operator.shell.finalizer_removal``.

A finalizer makes Kubernetes keep a deleted resource until the operator has removed the finalizer.
The chart runs this program as a Job when the operator is uninstalled. Without the Job, the deletion
of a cluster would wait forever for an operator that no longer runs. The program changes nothing
else. If a cluster is deleted later, Kubernetes deletes its objects and keeps its volumes. If the
operator is installed again, it adds its finalizers again. Touches the API server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from waltz.runtime.process import set_up_logging
from waltz_operator.core.names import FINALIZER
from waltz_operator.shell.api_login import NoKubeConfig
from waltz_operator.shell.kube_api import Conflict, Kube, KubeError, NotFound, connected_api_server

log = logging.getLogger(__name__)

_KINDS = ("WaltzCluster", "StoragePool")
_ATTEMPTS = 5
"""How many times the resources of a kind are listed and patched before a conflict is an error."""


async def remove_finalizers(kube: Kube, namespace: str) -> None:
    """Remove the finalizer from all WaltzClusters and StoragePools of a namespace.

    An empty ``namespace`` means all namespaces. Raises KubeError.
    """
    for kind in _KINDS:
        for attempt in range(_ATTEMPTS):
            try:
                await _remove_from_kind(kube, kind, namespace)
                break
            except Conflict:
                # A resource changed between the list and the patch: list again.
                if attempt == _ATTEMPTS - 1:
                    raise


async def _remove_from_kind(kube: Kube, kind: str, namespace: str) -> None:
    """Remove the finalizer from all resources of a kind.

    Raises Conflict if one of them changes meanwhile, and KubeError.
    """
    for live in await kube.find(kind, namespace, {}):
        metadata = live["metadata"]
        finalizers = metadata.get("finalizers") or []
        if FINALIZER not in finalizers:
            continue
        # The version makes this a compare-and-set: a finalizer that another controller adds at the
        # same moment is not lost. Shown by test_conflicts_are_retried_a_bounded_number_of_times.
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "finalizers": [each for each in finalizers if each != FINALIZER],
        }
        namespace_and_name = metadata["namespace"], metadata["name"]
        try:
            await kube.patch(kind, *namespace_and_name, {"metadata": change})
        except NotFound:
            # The operator may still run. It has removed the finalizer since the list was read, and
            # Kubernetes has deleted the resource.
            log.info("%s %s/%s: already deleted", kind, *namespace_and_name)
            continue
        log.info("%s %s/%s: finalizer removed", kind, *namespace_and_name)


async def _run(namespace: str) -> None:
    async with connected_api_server() as kube:
        await remove_finalizers(kube, namespace)


def main() -> None:
    """Remove the finalizers in the namespace that the environment names, or in all namespaces."""
    set_up_logging(verbose=False)
    try:
        asyncio.run(_run(os.environ.get("WALTZ_OPERATOR_WATCHED_NAMESPACE", "")))
    except (KubeError, NoKubeConfig) as problem:
        log.error(
            "finalizer %s: not removed from every resource, the job failed: %s; remove it from the "
            "remaining resources with kubectl edit",
            FINALIZER,
            problem,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
