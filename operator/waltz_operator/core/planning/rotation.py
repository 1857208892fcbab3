"""Plan the rotation of the cluster's own certificate authority. Pure.

A rotation begins when a user requests it by an annotation of the WaltzCluster, or when less than
`ROTATION_DAYS` of the authority's validity are left. A request that arrives during a rotation is
for another rotation, which begins after this one.

The phases of a rotation are TRUST (all processes trust the old and the new authority), SIGN (all
processes get certificates of the new authority) and RETIRE (all processes trust the new authority
alone). Without a rotation, the phase is SETTLED. See `core.authority`.

Processes load changed certificates for new connections, and open connections stay, so no pod is
replaced. The next phase begins only under these conditions:

* Every pod of servers and storages has presented the certificate of this phase. A process loads its
  certificate together with the authorities that it trusts.
* In TRUST and SIGN, clients have had `spec.tls.rotationStepSeconds` to load their certificates. The
  operator does not see which certificates clients have loaded. Some clients use the secret of the
  processes.
* All replicas of all partitions are healthy, and no pod of an earlier version waits to be replaced
  (`planning.rolls`). A failed storage or an outdated pod is repaired before another change begins.
"""

from __future__ import annotations

from waltz_operator.core import names
from waltz_operator.core.authority import (
    AuthorityRotation,
    Holder,
    ObservedAuthority,
    RotationPhase,
    phase_of,
)
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.disruption import health_obstacle
from waltz_operator.core.names import ROTATE_CA_ANNOTATION
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterPresent, ObservedCluster
from waltz_operator.core.planning.rolls import AllPodsCurrent, roll_states
from waltz_operator.core.resources import TlsMode
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, RotateAuthority, problem

ROTATION_DAYS = 366.0
"""An authority is rotated when it is valid for less than this number of days.

The certificates of the processes are valid for 365 days, so none outlives its authority."""

_MAX_NAMED_PODS = 3
"""The largest number of pods that an obstacle names."""


def plan_rotation(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the next step of a rotation that is wanted or under way, or why it waits.

    An authority that cannot be decoded is a problem.
    """
    if desired.cluster.spec.tls.mode is not TlsMode.OPERATOR:
        return EMPTY_PLAN
    if observed.authority_problem:
        return _unusable_authority(desired, observed)
    authority = observed.authority
    if authority is None:
        return EMPTY_PLAN
    request = desired.cluster.metadata.annotations.get(ROTATE_CA_ANNOTATION, "")
    is_requested = request not in ("", authority.rotated_for)
    is_wanted = is_requested or authority.days < ROTATION_DAYS
    if authority.phase is RotationPhase.SETTLED and not is_wanted:
        return EMPTY_PLAN
    obstacle = _cluster_obstacle(desired, observed) or _certificates_obstacle(desired, authority)
    rotation = AuthorityRotation(authority.phase, obstacle or "")
    if obstacle is not None:
        return ClusterPlan(rotation=rotation)
    step = RotateAuthority(authority.phase.following, request, authority.version)
    return ClusterPlan((step,), rotation=rotation)


def _unusable_authority(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the plan for a secret of the authority that cannot be decoded: a problem, no step.

    The authorities that the processes trust stay as they are: if the certificate that cannot be
    decoded were left out of `ca.crt`, processes of two phases could refuse each other.
    """
    secret, tls_secret = names.authority_secret(desired.name), names.tls_secret(desired.name)
    unusable = f"the secret {secret} cannot be used: {observed.authority_problem}"
    report = problem(
        f"{unusable}, so no certificate is renewed and no authority is rotated; processes keep "
        "their certificates: restore that part from a backup of the same step of the rotation, or "
        f"from the certificates in ca.crt of the secret {tls_secret}"
    )
    phase = phase_of(observed.objects[ObjectKey("Secret", secret)].get("data") or {})
    if phase is RotationPhase.SETTLED:
        return report
    return report + ClusterPlan(rotation=AuthorityRotation(phase, unusable))


def _cluster_obstacle(desired: DesiredCluster, observed: ObservedCluster) -> str | None:
    """Return why the state of the cluster forbids the next step; None if it does not."""
    present = observed.metadata
    if not isinstance(present, ClusterPresent) or present.key != desired.key:
        return "the replicas of the storages are not observed"
    if any(state != AllPodsCurrent() for state in roll_states(desired, observed)):
        return "a rolling change is under way"
    return health_obstacle(present)


def _certificates_obstacle(desired: DesiredCluster, authority: ObservedAuthority) -> str | None:
    """Return why the certificates in use forbid the next step; None if they do not."""
    issued, to_clients = authority.issued, authority.to_clients
    secrets_follow_phase = all(authority.secret_follows_phase(holder) for holder in Holder)
    if issued is None or to_clients is None or not secrets_follow_phase:
        return "the certificates of this step are not issued yet"
    if issued.not_loaded:
        named = ", ".join(issued.not_loaded[:_MAX_NAMED_PODS])
        more = len(issued.not_loaded) - _MAX_NAMED_PODS
        others = f" and {more} more" if more > 0 else ""
        return f"these pods have not loaded the certificates yet: {named}{others}"
    seconds = desired.cluster.spec.tls.rotation_step_seconds
    # Clients have to load the new authority in TRUST, and certificates of it in SIGN.
    clients_must_load = authority.phase in (RotationPhase.TRUST, RotationPhase.SIGN)
    # Administrators, and Spark that reads replicas, use the certificate of the processes. So the
    # time counts from the issue of the younger of the two certificates.
    age_of_younger = min(issued.age_seconds, to_clients.age_seconds)
    if clients_must_load and age_of_younger < seconds:
        return f"clients have {seconds} s to load the certificates"
    return None
