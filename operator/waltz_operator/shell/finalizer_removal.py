"""Takes the operator's finalizers away: ``python -m waltz_operator.shell.finalizer_removal``.

The chart runs it when the operator was uninstalled: nobody would answer a finalizer then, and
whoever deletes a cluster would wait for ever. Nothing else is changed. What is deleted afterwards
is collected by Kubernetes itself, which leaves volumes. An operator that comes back sets its
finalizers again. Touches the API server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient

from waltz.runtime.process import set_up_logging
from waltz_operator.core.names import FINALIZER
from waltz_operator.shell.kube_api import ApiServer, Conflict, Kube, KubeError

log = logging.getLogger(__name__)

_KINDS = ("WaltzCluster", "StoragePool")
_ATTEMPTS = 5


async def release_all(kube: Kube, namespace: str) -> None:
    """Take the finalizer from all resources of a namespace; of all namespaces if it is empty.

    Raises KubeError.
    """
    for kind in _KINDS:
        for attempt in range(_ATTEMPTS):
            try:
                await _release(kube, kind, namespace)
                break
            except Conflict:
                # Somebody changed one of them: look again.
                if attempt == _ATTEMPTS - 1:
                    raise


async def _release(kube: Kube, kind: str, namespace: str) -> None:
    for found in await kube.find(kind, namespace, {}):
        metadata = found["metadata"]
        finalizers = metadata.get("finalizers") or []
        if FINALIZER not in finalizers:
            continue
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "finalizers": [each for each in finalizers if each != FINALIZER],
        }
        which = metadata["namespace"], metadata["name"]
        await kube.patch(kind, *which, {"metadata": change})
        log.info("%s %s/%s is released", kind, *which)


async def _run(namespace: str) -> None:
    await kube_config.load_config()  # type: ignore[no-untyped-call]
    async with ApiClient() as client:
        await release_all(ApiServer(client), namespace)


def main() -> None:
    """Release the resources of the namespace that the environment names, or of all."""
    set_up_logging(verbose=False)
    try:
        asyncio.run(_run(os.environ.get("WALTZ_OPERATOR_WATCHED_NAMESPACE", "")))
    except KubeError as problem:
        log.error("resources keep their finalizers: %s", problem)
        sys.exit(1)


if __name__ == "__main__":
    main()
