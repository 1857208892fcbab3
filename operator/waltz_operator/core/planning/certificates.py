"""Plan the certificates of the processes and of the clients. Pure.

The operator issues certificates only with tls.mode Operator. With the modes CertManager and Secret,
this module only checks whether the secret that the pods need exists and is complete. `rotation`
plans the rotation of the authority that signs the certificates.
"""

from __future__ import annotations

from waltz_operator.core import names
from waltz_operator.core.authority import Holder
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.objects.pods import tls_secret_name
from waltz_operator.core.observed import LiveObject, ObservedCluster
from waltz_operator.core.planning.outside_addresses import outside_names
from waltz_operator.core.resources import TlsMode
from waltz_operator.core.steps import (
    EMPTY_PLAN,
    ClusterPlan,
    IssueCertificates,
    problem,
    wait,
)

_RENEWAL_DAYS = 30.0
"""A certificate is renewed when it is valid for less than this number of days."""

_SECRET_PARTS = ("ca.crt", "tls.crt", "tls.key")
"""The keys that a secret with certificates must have."""


def plan_processes_tls(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the plan for the certificates that the pods need.

    It is the empty plan if the certificates are complete, or without TLS.
    """
    name = tls_secret_name(desired.cluster)
    if name is None:
        return EMPTY_PLAN
    secret = observed.objects.get(ObjectKey("Secret", name))
    missing = _missing_parts(secret)
    match desired.cluster.spec.tls.mode:
        case TlsMode.OPERATOR:
            return _plan_own_certificates(desired, observed, missing)
        case TlsMode.CERT_MANAGER | TlsMode.SECRET | TlsMode.NONE:  # NONE has returned above.
            if (sentence := missing_secret(desired, observed)) is not None:
                return wait(sentence)
            if missing:  # Only with SECRET: an incomplete secret of cert-manager is a wait above.
                return problem(f"the secret {name} lacks {', '.join(missing)}: add it")
    return EMPTY_PLAN


def missing_secret(desired: DesiredCluster, observed: ObservedCluster) -> str | None:
    """Return the sentence about a secret that others have yet to create; None if none is missing.

    Processes cannot start without this secret. Processes that run already keep the certificates
    that they have.
    """
    name, mode = tls_secret_name(desired.cluster), desired.cluster.spec.tls.mode
    if name is None or mode is TlsMode.OPERATOR:
        return None
    secret = observed.objects.get(ObjectKey("Secret", name))
    if mode is TlsMode.CERT_MANAGER:
        is_complete = not _missing_parts(secret)
        return None if is_complete else f"cert-manager has not created the secret {name} yet"
    if secret is None:
        return f"the secret {name}, which spec.tls.secretName names, does not exist"
    return None


def plan_clients_tls(
    desired: DesiredCluster, observed: ObservedCluster, processes: ClusterPlan
) -> ClusterPlan:
    """Return the plan for the certificate that the operator issues for clients.

    No pod of the cluster needs this certificate, so nothing waits for it. ``processes`` is the plan
    for the certificates of the processes. Its steps create the authority, and come first. If it has
    problems, the authority cannot sign, and the certificate of the clients is not planned.
    """
    if desired.cluster.spec.tls.mode is not TlsMode.OPERATOR or processes.problems:
        return EMPTY_PLAN
    if observed.authority_problem:
        # `rotation` reports the problem. A step here would fail, and stop the steps after it.
        return EMPTY_PLAN
    key = ObjectKey("Secret", names.client_tls_secret(desired.name))
    live = observed.objects.get(key)
    if live is not None and not is_ours(live, desired.name):
        return problem(foreign_object(key))
    if _missing_parts(live):
        return ClusterPlan((IssueCertificates(renew=False, holder=Holder.CLIENTS),))
    authority = observed.authority
    if authority is None:
        return EMPTY_PLAN  # It is not known whether the certificate is outdated.
    issued = authority.to_clients
    is_outdated = not authority.secret_follows_phase(Holder.CLIENTS)
    if issued is None or is_outdated or issued.days < _RENEWAL_DAYS:
        return ClusterPlan((IssueCertificates(renew=True, holder=Holder.CLIENTS),))
    return EMPTY_PLAN


def foreign_object(key: ObjectKey) -> str:
    """Return the sentence that an object of another owner has a name that this cluster needs."""
    return (
        f"{key} exists already and does not belong to this cluster: delete it, or give the cluster "
        "or pool another name"
    )


def _plan_own_certificates(
    desired: DesiredCluster, observed: ObservedCluster, missing: list[str]
) -> ClusterPlan:
    """Return the plan for certificates that the operator issues.

    ``missing`` are the parts that the secret of the processes lacks.
    """
    for secret in (names.authority_secret(desired.name), names.tls_secret(desired.name)):
        live = observed.objects.get(ObjectKey("Secret", secret))
        if live is not None and not is_ours(live, desired.name):
            return problem(foreign_object(ObjectKey("Secret", secret)))
    if _is_authority_lost(desired, observed):
        return problem(
            f"the secret {names.authority_secret(desired.name)} is lost, so no certificate can be "
            "renewed: restore the secret, or delete the secret "
            f"{names.tls_secret(desired.name)} to start with a new authority, which interrupts "
            "connections until all processes and clients have its certificates"
        )
    authority = observed.authority
    if authority is not None and not authority.may_issue:
        return problem(
            f"the secret {names.tls_secret(desired.name)} has certificates of another authority "
            f"than the secret {names.authority_secret(desired.name)}: restore the authority that "
            f"signed them, or delete {names.tls_secret(desired.name)}, which interrupts "
            "connections until all processes and clients have the new certificates"
        )
    if observed.authority_problem:
        # `rotation` reports the problem. A step here would fail, and stop the steps after it.
        return wait(_processes_wait(desired, missing)) if missing else EMPTY_PLAN
    outside = outside_names(desired, observed)
    if missing:
        return ClusterPlan((IssueCertificates(renew=False, outside=outside),))
    is_outdated = authority is not None and (
        authority.issued is None  # The secret of the processes cannot be decoded.
        or not authority.secret_follows_phase(Holder.PROCESSES)
        # The names and addresses by which clients outside reach the processes have changed.
        or authority.issued.names - {names.tls_name(desired.name, desired.namespace)} != {*outside}
    )
    days = observed.certificate_days
    if is_outdated or (days is not None and days < _RENEWAL_DAYS):
        return ClusterPlan((IssueCertificates(renew=True, outside=outside),))
    return EMPTY_PLAN


def _processes_wait(desired: DesiredCluster, missing: list[str]) -> str:
    """Return why processes do not start: their certificates cannot be issued now."""
    return (
        f"the secret {names.tls_secret(desired.name)} lacks {', '.join(missing)}, which the "
        f"operator issues when the secret {names.authority_secret(desired.name)} can be used"
    )


def _is_authority_lost(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether there are certificates in use, but not the authority that signed them.

    The secret of the authority is always created before that of the certificates. So if there are
    certificates, a missing authority was lost. The operator never replaces a lost authority:
    processes with certificates of a new authority could not connect to processes with the old
    certificates (test_lost_authority_of_certificates_in_use_is_a_problem_for_a_person).
    """
    return (
        ObjectKey("Secret", names.authority_secret(desired.name)) not in observed.objects
        and ObjectKey("Secret", names.tls_secret(desired.name)) in observed.objects
    )


def _missing_parts(secret: LiveObject | None) -> list[str]:
    """Return the parts that a secret lacks; all of them if it does not exist."""
    data = (secret or {}).get("data") or {}
    return [part for part in _SECRET_PARTS if part not in data]
