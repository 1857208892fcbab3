"""Apply steps about certificates to the observed state of a cluster, for a preview. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from waltz_operator.core import names
from waltz_operator.core.authority import (
    Holder,
    IssuedCertificates,
    ObservedAuthority,
    RotationPhase,
)
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ObservedCluster
from waltz_operator.core.steps import IssueCertificates, RotateAuthority

_NEW_CERTIFICATE_DAYS = 365.0
"""For how many days a certificate of the simulated operator is valid."""

_NEW_AUTHORITY_DAYS = 3650.0
"""For how many days an authority of the simulated operator is valid."""

_NEW_AUTHORITY = "the new authority"
"""The name of an authority that the simulated operator makes, in place of a fingerprint."""


def after_certificates_step(
    desired: DesiredCluster, observed: ObservedCluster, step: IssueCertificates | RotateAuthority
) -> ObservedCluster:
    """Return what is observed after the operator has performed ``step``."""
    match step:
        case IssueCertificates():
            return _after_issue(desired, observed, step)
        case RotateAuthority():
            assert observed.authority is not None, "only an observed authority is rotated"
            return replace(observed, authority=_in_phase(observed.authority, step))


def with_loaded_certificates(observed: ObservedCluster) -> ObservedCluster:
    """Return what is observed after all processes and clients have loaded their certificates."""
    authority = observed.authority
    if authority is None:
        return observed
    # With an infinite age, the time that clients have to load their certificates is over.
    issued, to_clients = (
        None if each is None else replace(each, not_loaded=(), age_seconds=math.inf)
        for each in (authority.issued, authority.to_clients)
    )
    loaded = replace(authority, issued=issued, to_clients=to_clients)
    return replace(observed, authority=loaded)


def _after_issue(
    desired: DesiredCluster, observed: ObservedCluster, step: IssueCertificates
) -> ObservedCluster:
    """Return what is observed after the operator has issued new certificates."""
    labels = names.labels(desired.name, names.Component.CLUSTER)
    # As in an observation, only the names of the parts: the planner sees no contents of secrets.
    parts = dict.fromkeys(("ca.crt", "tls.crt", "tls.key"), "")
    is_for_clients = step.holder is Holder.CLIENTS
    if is_for_clients:
        secret = names.client_tls_secret(desired.name)
    else:
        secret = names.tls_secret(desired.name)
    secrets = {
        ObjectKey("Secret", name): {"metadata": {"name": name, "labels": labels}, "data": parts}
        for name in (names.authority_secret(desired.name), secret)
    }
    objects = {**observed.objects, **secrets}
    authority = observed.authority
    if authority is not None:
        # All processes have loaded the certificate at once (``not_loaded`` is empty). Clients have
        # not: it has the age 0 until `with_loaded_certificates`.
        days = _NEW_CERTIFICATE_DAYS
        issued = IssuedCertificates(
            authority.signing,
            authority.trusted,
            age_seconds=0.0,
            days=days,
            names=frozenset(step.outside),
        )
        if is_for_clients:
            authority = replace(authority, to_clients=issued)
        else:
            authority = replace(authority, issued=issued)
    observed = replace(observed, objects=objects, authority=authority)
    return observed if is_for_clients else replace(observed, certificate_days=_NEW_CERTIFICATE_DAYS)


def _in_phase(authority: ObservedAuthority, step: RotateAuthority) -> ObservedAuthority:
    """Return the authority after the phase ``step.to`` of its rotation has begun."""
    changed = replace(authority, phase=step.to)
    match step.to:
        case RotationPhase.TRUST:
            return replace(changed, other=_NEW_AUTHORITY, rotated_for=step.request)
        case RotationPhase.SIGN:
            assert authority.other is not None, "a rotation has two authorities"
            signing, other = authority.other, authority.signing
            return replace(changed, signing=signing, other=other, days=_NEW_AUTHORITY_DAYS)
        case RotationPhase.RETIRE:
            return changed
        case RotationPhase.SETTLED:
            return replace(changed, other=None)
