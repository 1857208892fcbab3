"""Show a cluster as if a user had applied a file, and refuse all writes. Touches the API server.

The preview of a plan (``waltz-operator plan``) uses `RequestedKube` instead of the API server. Its
reads return the resources of the file in the place of those that exist, and everything else from
the API server. It refuses writes, so a preview changes nothing in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import yaml

from waltz_operator.core.names import CLUSTER_LABEL
from waltz_operator.core.observed import LiveObject
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.core.resources.model import RULES_EXTENSION
from waltz_operator.shell.crds import structural_schema
from waltz_operator.shell.kube_api import Kube, KubeError

_MODELS: Mapping[str, type[WaltzCluster | StoragePool]] = {
    "WaltzCluster": WaltzCluster,
    "StoragePool": StoragePool,
}
_NEW_UID = "00000000-0000-0000-0000-000000000000"
"""The uid of a resource that does not exist yet."""

Requested = Mapping[tuple[str, str, str], LiveObject]
"""The resources as they would be after an apply of the file, by kind, namespace and name."""


class RequestRefused(Exception):
    """A file cannot be previewed. The message says which resource is wrong, and the remedy."""


def read_resources(text: str, namespace: str) -> list[LiveObject]:
    """Return the resources of a YAML or JSON file, also those of a ``List``.

    ``namespace`` is that of resources that name none. Raises RequestRefused.
    """
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as malformed:
        raise RequestRefused(f"the file is not YAML: {malformed}") from malformed
    resources = []
    for document in documents:
        is_list = isinstance(document, dict) and document.get("kind") == "List"
        items = document.get("items") if is_list else [document]
        if not isinstance(items, list):
            raise RequestRefused("the List of the file has no items: add WaltzClusters or pools")
        resources += [_check_resource(item, namespace) for item in items]
    if not resources:
        raise RequestRefused("the file has no resource: give a WaltzCluster or a StoragePool")
    return resources


def _check_resource(item: object, namespace: str) -> LiveObject:
    """Return ``item`` as a resource with a namespace. Raises RequestRefused if it is none."""
    resource = item if isinstance(item, dict) else {}
    kind, metadata = resource.get("kind"), resource.get("metadata")
    if not isinstance(kind, str) or kind not in _MODELS:
        raise RequestRefused(f"{kind or 'a document'} is no WaltzCluster or StoragePool: remove it")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        raise RequestRefused(f"a {kind} of the file has no metadata.name: add it")
    for part in ("labels", "annotations"):
        if not isinstance(metadata.get(part) or {}, dict):
            raise RequestRefused(f"metadata.{part} of {kind} {name} is no map: correct it")
    if not isinstance(resource.get("spec"), dict):
        raise RequestRefused(f"{kind} {name} has no spec: add it")
    return {**resource, "metadata": {"namespace": namespace, **metadata}}


async def merge_resources(kube: Kube, resources: Iterable[LiveObject]) -> Requested:
    """Return the resources of a file as they would be after an apply of the file.

    Raises KubeError, and RequestRefused if a field changes that must not change.
    """
    merged = {}
    for each in resources:
        kind, metadata = each["kind"], each["metadata"]
        key = (kind, metadata["namespace"], metadata["name"])
        live = await kube.get(*key)
        merged[key] = _merge(each, live)
        if live is not None:
            schema = structural_schema(_MODELS[kind])["properties"]["spec"]
            problem = _forbidden_change(schema, live["spec"], each["spec"])
            if problem is not None:
                raise RequestRefused(f"{kind} {metadata['name']} cannot change: {problem}")
    return merged


def _merge(requested: LiveObject, live: LiveObject | None) -> LiveObject:
    """Return a resource with the spec, the annotations and the labels of ``requested``.

    The other metadata and the status are those of ``live``. Annotations and labels that only
    ``live`` has are kept. A real apply would remove some of them, namely those that an earlier
    apply has set, but this function cannot know which ones these are.
    """
    if live is None:
        return {**requested, "metadata": {"uid": _NEW_UID, **requested["metadata"]}}
    metadata, new = dict(live["metadata"]), requested["metadata"]
    for part in ("annotations", "labels"):
        metadata[part] = {**(metadata.get(part) or {}), **(new.get(part) or {})}
    return {**live, "metadata": metadata, "spec": requested["spec"]}


def _forbidden_change(schema: Mapping[str, Any], old: Any, new: Any) -> str | None:
    """Return the CRD's message about the first field that differs and must not change.

    The result is None if there is no such field. Other rules of the CRD are not checked here: only
    the API server evaluates them. A field that ``new`` omits has its default.
    """
    for rule in schema.get(RULES_EXTENSION, ()):
        # `core.resources.model.immutable` makes this rule for a field that must not change.
        if rule["rule"] == "self == oldSelf" and old != new:
            return str(rule["message"])
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return None
    for name, field in schema.get("properties", {}).items():
        if name in old and (name in new or "default" in field):
            message = _forbidden_change(field, old[name], new.get(name, field.get("default")))
            if message is not None:
                return message
    return None


class RequestedKube:
    """A `Kube` whose reads show the resources of a file, and whose writes raise KubeError."""

    def __init__(self, kube: Kube, requested: Requested) -> None:
        self._kube = kube
        self._requested = requested

    async def get(self, kind: str, namespace: str, name: str) -> LiveObject | None:
        """See Kube."""
        requested = self._requested.get((kind, namespace, name))
        return requested if requested is not None else await self._kube.get(kind, namespace, name)

    async def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[LiveObject]:
        """See Kube.

        A resource of the file is found by its labels in the file, even if it does not exist yet.
        Its labels at the API server do not count.
        """
        objects = {
            (live["metadata"].get("namespace", namespace), live["metadata"]["name"]): live
            for live in await self._kube.find(kind, namespace, labels)
        }
        for (resource_kind, resource_namespace, name), resource in self._requested.items():
            if resource_kind != kind or namespace not in ("", resource_namespace):
                continue
            objects.pop((resource_namespace, name), None)
            if labels.items() <= (resource["metadata"].get("labels") or {}).items():
                objects[resource_namespace, name] = resource
        return [objects[key] for key in sorted(objects)]

    async def create(self, body: Mapping[str, Any]) -> NoReturn:
        """See Kube."""
        self._refuse()

    async def apply(self, body: Mapping[str, Any]) -> NoReturn:
        """See Kube."""
        self._refuse()

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> NoReturn:
        """See Kube."""
        self._refuse()

    async def patch_refusal(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any]
    ) -> str | None:
        """See Kube. This is not refused, because it is a dry run, which changes nothing."""
        return await self._kube.patch_refusal(kind, namespace, name, change)

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str, *, orphan: bool = False
    ) -> NoReturn:
        """See Kube."""
        self._refuse()

    @staticmethod
    def _refuse() -> NoReturn:
        raise KubeError("a preview changes nothing: the write was not sent")


async def clusters_of(kube: Kube, requested: Requested) -> list[tuple[str, str]]:
    """Return the namespace and name of each cluster that the resources of a file concern.

    A WaltzCluster of the file concerns itself. A pool of the file concerns the cluster that has
    claimed it or, if none has, the clusters whose spec names it. Raises KubeError.
    """
    # A dictionary instead of a set, because it keeps the order of the file.
    clusters: dict[tuple[str, str], None] = {}
    for (kind, namespace, name), resource in requested.items():
        owner = (resource["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
        if kind == "WaltzCluster":
            clusters[namespace, name] = None
        elif owner:
            clusters[namespace, owner] = None
        else:
            for cluster in await kube.find("WaltzCluster", namespace, {}):
                if name in (cluster["spec"].get("pools") or ()):
                    clusters[namespace, cluster["metadata"]["name"]] = None
    return list(clusters)
