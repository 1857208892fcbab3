"""The cluster's own certificate authority, and the phases of its rotation. Pure.

The secret CLUSTER-authority has the authority that signs certificates, as `tls.crt` and `tls.key`.
During a rotation the secret also has parts of a second authority: of the next or of the previous
one. The names of these parts show the phase of the rotation. So a rotation that was interrupted
anywhere continues from the secret:

| Phase | Parts of the second authority | Certificates are signed by | Processes trust |
|---|---|---|---|
| SETTLED | none | the authority | the authority |
| TRUST | `next.crt`, `next.key` | the old authority | both |
| SIGN | `previous.crt`, `previous.key` | the new authority | both |
| RETIRE | `previous.crt` | the new authority | the new authority |

In RETIRE no process gets `previous.crt`: it is kept only as the sign of the phase. The step to
SETTLED removes it, and the rotation is complete.

The secrets CLUSTER-tls and CLUSTER-tls-client follow the phase. A phase ends only when every
process has loaded the certificates of the phase, and clients have had the time to load theirs. So
at each moment there are processes and clients of at most two neighbouring phases, and these accept
the certificates of each other (test_peers_of_neighbouring_phases_accept_each_other).
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum


class Holder(StrEnum):
    """Who uses certificates of the authority. Each kind of holder has its own secret.

    The certificate of the processes is valid for servers and for clients, because servers are the
    clients of storages. That of the clients is valid for clients alone, so that an application does
    not hold a key with which it could pose as a server.
    """

    PROCESSES = "processes"
    CLIENTS = "clients"


class RotationPhase(StrEnum):
    """The phase of a rotation. See the module's docstring."""

    SETTLED = "settled"
    TRUST = "trust"
    SIGN = "sign"
    RETIRE = "retire"

    @property
    def following(self) -> RotationPhase:
        """The phase after this one; after RETIRE, the last one, it is SETTLED again."""
        phases = tuple(RotationPhase)
        return phases[(phases.index(self) + 1) % len(phases)]


def phase_of(parts: Container[str]) -> RotationPhase:
    """Return the phase that the names of the parts of the authority's secret show."""
    if "next.crt" in parts:
        return RotationPhase.TRUST
    if "previous.key" in parts:
        return RotationPhase.SIGN
    if "previous.crt" in parts:
        return RotationPhase.RETIRE
    return RotationPhase.SETTLED


@dataclass(frozen=True, slots=True)
class IssuedCertificates:
    """The certificates in the secret of one kind of holder.

    Authorities are named by the fingerprints of their certificates. ``signer`` is the authority
    that signed the certificate of the holders, None if it was none of those that the processes
    trust in the present phase. ``trusted`` are the authorities in `ca.crt`. ``age_seconds`` is the
    time since the certificate was issued. ``days`` is its remaining validity in days.
    ``not_loaded`` are the pods that have not presented this certificate. They are observed only for
    processes, and only during a rotation. ``names`` are the names and IP addresses that the
    certificate is valid for.
    """

    signer: str | None
    trusted: frozenset[str]
    age_seconds: float
    days: float
    not_loaded: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ObservedAuthority:
    """The authority of a cluster, and the certificates that it has issued.

    ``version`` is the resource version of its secret. ``signing`` is the authority that signs.
    ``other`` is the next or the previous authority in the phases in which both are trusted, else
    None. ``days`` is the remaining validity of ``signing`` in days. ``rotated_for`` is the request
    that the last rotation began for, empty if it began without a request. ``issued`` has the
    certificates of the processes, ``to_clients`` those of the clients. Each of these two is None if
    its secret does not exist or cannot be decoded.
    """

    phase: RotationPhase
    version: str
    signing: str
    other: str | None
    days: float
    rotated_for: str
    issued: IssuedCertificates | None
    to_clients: IssuedCertificates | None

    @property
    def trusted(self) -> frozenset[str]:
        """The authorities that processes and clients trust in this phase."""
        if self.other is None or self.phase in (RotationPhase.SETTLED, RotationPhase.RETIRE):
            return frozenset({self.signing})
        return frozenset({self.signing, self.other})

    def secret_follows_phase(self, holder: Holder) -> bool:
        """Whether the secret of ``holder`` has the certificates of this phase of the rotation."""
        issued = self.issued if holder is Holder.PROCESSES else self.to_clients
        if issued is None:
            return False
        return issued.signer == self.signing and issued.trusted == self.trusted

    @property
    def may_issue(self) -> bool:
        """Whether certificates of this phase may be issued.

        They may be issued if each of two processes accepts the certificate of the other: one has
        loaded the new certificates, the other still has the present ones. The answer is False after
        the authority's secret was replaced by that of another authority.
        """
        issued = self.issued
        if issued is None:
            return True  # No process has a certificate yet.
        # Processes with the present certificates trust the signer of the new ones, and processes
        # with the new certificates trust the signer of the present ones.
        return self.signing in issued.trusted and issued.signer in self.trusted


@dataclass(frozen=True, slots=True)
class AuthorityRotation:
    """A rotation that is under way or wanted.

    ``phase`` is SETTLED if the rotation has not begun. ``obstacle`` is why its next step waits,
    empty if the operator performs the step now.
    """

    phase: RotationPhase
    obstacle: str = ""

    def __str__(self) -> str:
        match self.phase:
            case RotationPhase.SETTLED:
                progress = "the certificate authority will be rotated"
            case RotationPhase.TRUST:
                progress = "step 1 of 3: all processes trust the old and the new authority"
            case RotationPhase.SIGN:
                progress = "step 2 of 3: all processes get certificates of the new authority"
            case RotationPhase.RETIRE:
                progress = "step 3 of 3: all processes trust the new authority alone"
        return f"{progress}; waits: {self.obstacle}" if self.obstacle else progress
