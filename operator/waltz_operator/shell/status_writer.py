"""Write the status of a WaltzCluster or a StoragePool. Touches the API server."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from waltz_operator.core.resources import ObjectMeta
from waltz_operator.shell.kube_api import Conflict, Kube, KubeError

log = logging.getLogger(__name__)


async def write_status(
    kube: Kube, kind: str, metadata: ObjectMeta, status: Mapping[str, Any]
) -> bool:
    """Merge ``status`` into that of a resource; return whether this succeeded.

    ``metadata`` is that of the resource as observed. Nothing is written if the resource no longer
    exists, also if a new one has its name. A new cluster with the status of the deleted one, and so
    with its key, would count as a cluster whose metadata are lost, and would never be created.

    A failure is at most logged, because the next reconcile writes the status again.
    """
    try:
        live = await kube.get(kind, metadata.namespace, metadata.name)
        if live is None or live["metadata"].get("uid", "") != metadata.uid:
            return False
        # The API server ignores a uid in the patch of a status. The version makes the patch a
        # compare-and-set, so that it fails if the resource is replaced after this read. The version
        # that was observed before the steps would not do: steps change the metadata of the
        # resource.
        version = {"resourceVersion": live["metadata"].get("resourceVersion", "")}
        change = {"metadata": version, "status": status}
        await kube.patch(kind, metadata.namespace, metadata.name, change, part="status")
    except Conflict:
        # The resource changed after the read; the next reconcile writes its status.
        return False
    except KubeError as problem:
        log.warning(
            "%s %s/%s: failed to write the status, the next reconcile writes it again: %s",
            kind,
            metadata.namespace,
            metadata.name,
            problem,
        )
        return False
    return True
