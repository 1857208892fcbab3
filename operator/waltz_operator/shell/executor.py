"""Does the steps of a plan. Touches the API server, ZooKeeper and storages' admin ports.

Every step may be done by somebody who has been replaced meanwhile: what Kubernetes keeps of a
cluster or a pool itself is changed by compare-and-set, objects are deleted only if they are those
that were seen, and the library's changes are compare-and-set as well.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from waltz.metadata import ChangeRefused, StoreError, create_cluster, delete_cluster
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.lifecycle import ClusterExists, NotThatCluster
from waltz.net import ConnectionLost, DialFailed, RemoteFailure
from waltz_operator.core import names
from waltz_operator.core.desired import Desired
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER, Component
from waltz_operator.core.objects.manifest import manifest
from waltz_operator.core.observed import Live
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.core.steps import (
    Apply,
    Claim,
    CreateMetadata,
    Delete,
    DeleteMetadata,
    Guard,
    IssueCertificates,
    KubernetesStep,
    LetGo,
    MetadataStep,
    Release,
    Step,
)
from waltz_operator.shell.certificates import KeyPair, issue, make_authority
from waltz_operator.shell.environment import Surroundings
from waltz_operator.shell.kube_api import Kube, KubeError

_STEP_SECONDS = 30.0

_TRANSIENT = (
    ClusterExists,
    ConnectionLost,
    DialFailed,
    KubeError,
    MalformedMetadata,
    NoCluster,
    NotThatCluster,
    ChangeRefused,
    RemoteFailure,
    StoreError,
    TimeoutError,
)
"""What may be otherwise when one looks again."""


class StepFailed(Exception):
    """A step could not be done, or perhaps was; looking again tells. The text says why."""


class Executor:
    """Does steps for one cluster, as ``desired`` described it when they were planned."""

    def __init__(self, desired: Desired, kube: Kube, surroundings: Surroundings) -> None:
        self._desired = desired
        self._kube = kube
        self._surroundings = surroundings

    async def perform(self, step: Step) -> None:
        """Do one step. Raises StepFailed."""
        try:
            async with asyncio.timeout(_STEP_SECONDS):
                match step:
                    case CreateMetadata() | DeleteMetadata():
                        await self._in_zookeeper(step)
                    case (
                        Apply()
                        | Claim()
                        | Delete()
                        | Guard()
                        | IssueCertificates()
                        | LetGo()
                        | Release()
                    ):
                        await self._in_kubernetes(step)
                    case _:
                        # Every change of storages and replicas is a step of `waltz.admin`.
                        port = await self._surroundings.replicas(
                            self._desired, await self._cluster()
                        )
                        await port.perform(step)
        except _TRANSIENT as problem:
            reason = str(problem) or f"no answer within {_STEP_SECONDS:g} s"
            raise StepFailed(f"{step}: {reason}") from problem

    async def _cluster(self) -> Cluster:
        return Cluster(await self._surroundings.store(self._desired), self._desired.root)

    async def _in_zookeeper(self, step: MetadataStep) -> None:
        cluster, root = await self._cluster(), self._desired.root
        match step:
            case CreateMetadata(name, num_partitions, key):
                await create_cluster(cluster.store, root, name, num_partitions, key=key)
            case DeleteMetadata(name):
                await delete_cluster(cluster.store, root, name)

    async def _in_kubernetes(self, step: KubernetesStep) -> None:
        namespace, cluster = self._desired.namespace, self._desired.cluster
        match step:
            case Apply(wanted, _):
                await self._kube.apply(wanted.body)
            case Delete(key, uid):
                await self._kube.delete(key.kind, namespace, key.name, uid)
            case Guard():
                await self._change(cluster, finalizers=[*cluster.metadata.finalizers, FINALIZER])
            case LetGo():
                await self._surroundings.forget(self._desired)
                await self._change(cluster, finalizers=_without_ours(cluster))
            case Claim(pool):
                held = self._pool(pool)
                finalizers = [*_without_ours(held), FINALIZER]
                await self._change(held, finalizers, {CLUSTER_LABEL: self._desired.name})
            case Release(pool):
                held = self._pool(pool)
                await self._change(held, _without_ours(held), {CLUSTER_LABEL: None})
            case IssueCertificates():
                await self._issue()

    def _pool(self, name: str) -> StoragePool:
        return next(pool for pool in self._desired.pools if pool.metadata.name == name)

    async def _change(
        self,
        resource: WaltzCluster | StoragePool,
        finalizers: list[str],
        labels: Mapping[str, str | None] | None = None,
    ) -> None:
        metadata = resource.metadata
        change: dict[str, Any] = {
            "resourceVersion": metadata.resource_version,
            "finalizers": finalizers,
        }
        if labels is not None:
            change["labels"] = dict(labels)
        kind = type(resource).__name__
        await self._kube.patch(kind, metadata.namespace, metadata.name, {"metadata": change})

    async def _issue(self) -> None:
        cluster, name, namespace = (
            self._desired.cluster,
            self._desired.name,
            self._desired.namespace,
        )
        secret_name = names.authority_secret(name)
        found = await self._kube.get("Secret", namespace, secret_name)
        if found is None:
            authority = make_authority(name)
            data = {"tls.crt": authority.certificate, "tls.key": authority.key}
            await self._kube.create(_secret(cluster, secret_name, data))
        else:
            authority = _key_pair(found)
        issued = issue(authority, names.tls_name(name, namespace))
        data = {
            "ca.crt": authority.certificate,
            "tls.crt": issued.certificate,
            "tls.key": issued.key,
        }
        await self._kube.apply(_secret(cluster, names.tls_secret(name), data))


def _secret(cluster: WaltzCluster, name: str, data: Mapping[str, bytes]) -> Mapping[str, Any]:
    encoded = {part: base64.b64encode(content).decode() for part, content in data.items()}
    found_by = names.labels(cluster.metadata.name, Component.CLUSTER)
    content = {"type": "Opaque", "data": encoded}
    return manifest(cluster, "Secret", name, found_by, content).body


def _key_pair(secret: Live) -> KeyPair:
    try:
        certificate, key = (base64.b64decode(secret["data"][p]) for p in ("tls.crt", "tls.key"))
    except KeyError as missing:
        name = secret["metadata"]["name"]
        raise KubeError(f"the secret {name} lacks {missing}: restore it, or delete it") from missing
    return KeyPair(certificate, key)


def _without_ours(resource: WaltzCluster | StoragePool) -> list[str]:
    return [each for each in resource.metadata.finalizers if each != FINALIZER]
