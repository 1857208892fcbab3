"""Perform the steps about the cluster's own certificates. Touches the API server.

Every write is conditional. Otherwise a write that arrives late could bring back the certificates of
an earlier phase of a rotation of the authority (`core.authority`).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from waltz_operator.core import names
from waltz_operator.core.authority import Holder, RotationPhase
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import ROTATE_CA_ANNOTATION, Component
from waltz_operator.core.objects.manifest import manifest
from waltz_operator.core.resources import WaltzCluster
from waltz_operator.core.steps import IssueCertificates, RotateAuthority
from waltz_operator.shell.authority import (
    AuthorityUnusable,
    change_of_phase,
    encoded,
    issued_parts,
    read_authority,
)
from waltz_operator.shell.certificates import make_authority
from waltz_operator.shell.kube_api import Kube, KubeError


async def issue_certificates(kube: Kube, desired: DesiredCluster, step: IssueCertificates) -> None:
    """Issue a new certificate for ``step.holder``, signed by the existing authority or a new one.

    Raises KubeError, also if the authority's secret cannot be used, or is lost while certificates
    of the processes are in use.
    """
    namespace, name = desired.namespace, desired.name
    # Both secrets are read before the authority. In the other order, another operator could begin
    # the next phase, and issue its certificates, between the reads. Then this operator would have
    # the authority of the old phase, but the newest version of the secret. So the compare-and-set
    # below would succeed, and replace the new certificates by those of the old phase.
    process_secret = await kube.get("Secret", namespace, names.tls_secret(name))
    client_secret = await kube.get("Secret", namespace, names.client_tls_secret(name))
    authority = await _read_or_create_authority(kube, desired, is_in_use=process_secret is not None)
    now = datetime.datetime.now(datetime.UTC)
    # None if the authority's secret cannot be decoded. Then `issued_parts` raises an error.
    observed = read_authority(authority, process_secret, client_secret, now)
    if observed is not None and not observed.may_issue:
        # The authority's secret was replaced by that of another authority: processes with the
        # present certificates and processes with new ones could not connect to each other.
        raise KubeError(
            f"the secret {names.authority_secret(name)} has changed since it was observed"
        )
    match step.holder:
        case Holder.PROCESSES:
            secret_name, live = names.tls_secret(name), process_secret
            certified_name = names.tls_name(name, namespace)
        case Holder.CLIENTS:
            secret_name, live = names.client_tls_secret(name), client_secret
            certified_name = names.client_tls_name(name, namespace)
    try:
        parts = issued_parts(authority, certified_name, step.holder, step.outside)
    except AuthorityUnusable as unusable:
        raise KubeError(
            f"the secret {names.authority_secret(name)} cannot be used: {unusable}: restore or "
            "delete the secret"
        ) from unusable
    body = _secret_body(desired.cluster, secret_name, encoded(parts))
    if live is None:
        await kube.create(body)
    else:
        version = live["metadata"].get("resourceVersion", "")
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        await kube.apply(body)


async def rotate_authority(kube: Kube, desired: DesiredCluster, step: RotateAuthority) -> None:
    """Begin the phase ``step.to`` of a rotation, if the authority's secret is as observed.

    Raises KubeError, also if the secret has changed, is lost, or cannot be used.
    """
    name = names.authority_secret(desired.name)
    live = await kube.get("Secret", desired.namespace, name)
    if live is None:
        raise KubeError(f"the secret {name} is lost")
    try:
        data = change_of_phase(live, step.to, desired.name)
    except AuthorityUnusable as unusable:
        raise KubeError(f"the secret {name} cannot be used: {unusable}") from unusable
    metadata: dict[str, Any] = {"resourceVersion": step.version}
    if step.to is RotationPhase.TRUST:
        metadata["annotations"] = {ROTATE_CA_ANNOTATION: step.request}
    await kube.patch("Secret", desired.namespace, name, {"metadata": metadata, "data": data})


async def _read_or_create_authority(
    kube: Kube, desired: DesiredCluster, *, is_in_use: bool
) -> Mapping[str, Any]:
    """Return the secret of the authority; create the secret if it does not exist.

    ``is_in_use`` is whether processes have certificates of an authority. Then the secret is not
    created: a missing one raises KubeError.
    """
    name, in_use_name = names.authority_secret(desired.name), names.tls_secret(desired.name)
    live = await kube.get("Secret", desired.namespace, name)
    if live is not None:
        return live
    if is_in_use:
        raise KubeError(
            f"the secret {name} is lost, and the secret {in_use_name} has certificates that it "
            f"signed: no new authority is created; restore {name}, or delete {in_use_name} to "
            "start with a new authority, which interrupts connections"
        )
    authority = make_authority(desired.name)
    data = encoded({"tls.crt": authority.certificate, "tls.key": authority.key})
    request = desired.cluster.metadata.annotations.get(ROTATE_CA_ANNOTATION, "")
    created = _secret_body(desired.cluster, name, data, request)
    await kube.create(created)
    return created


def _secret_body(
    cluster: WaltzCluster, name: str, data: Mapping[str, str | None], request: str = ""
) -> Mapping[str, Any]:
    """Return the body of a secret that belongs to the cluster.

    ``request`` is a user's request for a rotation, empty if there is none. It is recorded in the
    secret of a new authority, so that it counts as done: a new authority needs no rotation.
    """
    object_labels = names.labels(cluster.metadata.name, Component.CLUSTER)
    content: dict[str, Any] = {"type": "Opaque", "data": dict(data)}
    body = manifest(cluster, "Secret", name, object_labels, content).body
    if not request:
        return body
    annotations = {**body["metadata"].get("annotations", {}), ROTATE_CA_ANNOTATION: request}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}
