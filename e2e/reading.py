"""Read objects of Kubernetes from its API server. Touches the network, reads the kubeconfig.

Tests read an object once a second while they wait for it. Each start of ``kubectl`` needs a tenth
of a second of CPU time, which the pods of all tests then lack, so these reads share a connection.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from kubernetes import client, config
from urllib3.exceptions import HTTPError

_CORE = "/api/v1"
_WALTZ = "/apis/waltz.dev/v1alpha1"
_RESOURCES = {
    "deployment": ("/apis/apps/v1", "deployments"),
    "lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "persistentvolumeclaim": (_CORE, "persistentvolumeclaims"),
    "pod": (_CORE, "pods"),
    "poddisruptionbudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "secret": (_CORE, "secrets"),
    "service": (_CORE, "services"),
    "statefulset": ("/apis/apps/v1", "statefulsets"),
    "storagepool": (_WALTZ, "storagepools"),
    "waltzcluster": (_WALTZ, "waltzclusters"),
}
"""The path of the API group and the name of the resource, for each kind that can be read."""

KINDS = _RESOURCES.keys()
"""The kinds that can be read, all of which have a namespace."""


class ReadFailed(Exception):
    """The API server could not be asked, or did not answer with what was asked for."""


def read_object(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
    """Return an object, None if it does not exist. Raises ReadFailed."""
    return _read(f"{_path(kind, namespace)}/{name}", {})


def read_objects(kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
    """Return the objects of a kind that ``selector`` selects by label. Raises ReadFailed."""
    listed = _read(_path(kind, namespace), {"labelSelector": selector})
    if listed is None:
        raise ReadFailed(f"the API server has no resource for the kind {kind}")
    items: list[dict[str, Any]] = listed["items"]
    return items


def _path(kind: str, namespace: str) -> str:
    group, plural = _RESOURCES[kind]
    return f"{group}/namespaces/{namespace}/{plural}"


def _read(path: str, query: dict[str, str]) -> dict[str, Any] | None:
    """Return the decoded answer to a GET, None after the status 404. Raises ReadFailed."""
    api = _connect()
    request = api.param_serialize(
        "GET", path, query_params=[*query.items()], auth_settings=["BearerToken"]
    )
    try:
        answer = api.call_api(*request, _request_timeout=60)
        body: bytes = answer.read()  # type: ignore[no-untyped-call]
    except (HTTPError, client.ApiException) as failed:
        raise ReadFailed(f"{path}: {failed}") from failed
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise ReadFailed(f"{path}: {answer.status} {body.decode(errors='replace')}")
    decoded: dict[str, Any] = json.loads(body)
    return decoded


@cache
def _connect() -> client.ApiClient:
    """Return the client of the kubeconfig's current context, which is created only once."""
    config.load_kube_config()  # type: ignore[no-untyped-call]
    return client.ApiClient()
