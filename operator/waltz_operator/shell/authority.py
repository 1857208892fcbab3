"""Decode and form the secrets of the cluster's own certificate authority. Touches random numbers.

A *part* of a secret is an entry of its data, such as `tls.crt`. A rotation replaces the old
authority by a new one in three phases. In TRUST, all processes come to trust both authorities. In
SIGN, all get certificates of the new one. In RETIRE, all come to trust the new one alone. Without a
rotation, the phase is SETTLED. `core.authority` lists the parts of the authority's secret in each
phase, so the parts that a secret has show its phase (`phase_of`).
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterable, Mapping

from waltz_operator.core.authority import (
    Holder,
    IssuedCertificates,
    ObservedAuthority,
    RotationPhase,
    phase_of,
)
from waltz_operator.core.names import ROTATE_CA_ANNOTATION
from waltz_operator.core.observed import LiveObject
from waltz_operator.shell.certificates import (
    KeyPair,
    age_seconds,
    days_left,
    fingerprint,
    fingerprints,
    issue,
    make_authority,
    names_of,
    serial_number,
    was_signed_by,
)

_OTHER_PARTS = {
    RotationPhase.TRUST: "next.crt",
    RotationPhase.SIGN: "previous.crt",
}
"""The part with the second trusted authority: the new one in TRUST, the old one in SIGN.

RETIRE is absent, although its secret has `previous.crt`: no process gets this part any more, and
the next phase removes it. So the rotation ends even if the part cannot be decoded."""


class AuthorityUnusable(ValueError):
    """The authority's secret cannot be used; the message says why."""


def read_authority(
    authority_secret: LiveObject | None,
    process_secret: LiveObject | None,
    client_secret: LiveObject | None,
    now: datetime.datetime,
) -> ObservedAuthority | None:
    """Return what the secrets of the authority, of the processes and of the clients say.

    A secret is None if it does not exist. The result is None without a usable authority.
    """
    if authority_secret is None or authority_problem(authority_secret):
        return None
    parts = _parts(authority_secret)
    phase = phase_of(parts)
    authorities = [parts[part] for part in _trusted_parts(phase)]
    signing, *others = authorities
    metadata = authority_secret["metadata"]
    return ObservedAuthority(
        phase,
        version=metadata.get("resourceVersion") or "",
        signing=fingerprint(signing),
        other=fingerprint(others[0]) if others else None,
        days=days_left(signing, now),
        rotated_for=(metadata.get("annotations") or {}).get(ROTATE_CA_ANNOTATION, ""),
        issued=_issued(process_secret, authorities, now),
        to_clients=_issued(client_secret, authorities, now),
    )


def authority_problem(authority_secret: LiveObject | None) -> str:
    """Return which certificate of the authority's secret cannot be used, and why.

    The text is empty if all can be used. It is also empty without the secret: the next plan creates
    or reports a missing secret (`core.planning.certificates`).
    """
    if authority_secret is None:
        return ""
    parts = _parts(authority_secret)
    for part in _trusted_parts(phase_of(parts)):
        try:
            fingerprint(parts[part])
        except KeyError:
            return f"it lacks {part}"
        except ValueError:
            return f"its part {part} is not a certificate in PEM"
    return ""


def _trusted_parts(phase: RotationPhase) -> tuple[str, ...]:
    """Return the parts of the authority's secret that processes trust; the first one signs."""
    return ("tls.crt", _OTHER_PARTS[phase]) if phase in _OTHER_PARTS else ("tls.crt",)


def _issued(
    secret: LiveObject | None, authorities: list[bytes], now: datetime.datetime
) -> IssuedCertificates | None:
    """Return what the secret of processes or clients says about its certificate.

    The result is None if the secret does not exist or cannot be decoded. ``authorities`` are those
    that may have signed the certificate, in PEM.
    """
    if secret is None:
        return None
    parts = _parts(secret)
    try:
        leaf = parts["tls.crt"]
        signers = (fingerprint(each) for each in authorities if was_signed_by(leaf, each))
        return IssuedCertificates(
            signer=next(signers, None),
            trusted=fingerprints(parts["ca.crt"]),
            age_seconds=age_seconds(leaf, now),
            days=days_left(leaf, now),
            names=names_of(leaf),
        )
    except (KeyError, ValueError):
        return None


def serial_of_processes(process_secret: LiveObject | None) -> int | None:
    """Return the serial number of the certificate of the processes, None if it is unknown."""
    if process_secret is None:
        return None
    try:
        return serial_number(_parts(process_secret)["tls.crt"])
    except (KeyError, ValueError):
        return None


def issued_parts(
    authority: LiveObject, name: str, holder: Holder, other_hosts: Iterable[str] = ()
) -> dict[str, bytes]:
    """Return the parts of the secret of ``holder`` for the phase of ``authority``.

    The certificate is new. It contains ``name`` and the names and IP addresses ``other_hosts``.
    Raises AuthorityUnusable.
    """
    parts = _parts(authority)
    phase = phase_of(parts)
    try:
        signing_pair = KeyPair(parts["tls.crt"], parts["tls.key"])
        issued = issue(signing_pair, name, holder, other_hosts=other_hosts)
        trusted = parts["tls.crt"]
        if phase in (RotationPhase.TRUST, RotationPhase.SIGN):
            other = parts[_OTHER_PARTS[phase]]
            # Raises ValueError if ``other`` cannot be decoded: no process could load such a file.
            fingerprints(other)
            trusted = b"\n".join((trusted.rstrip(b"\n"), other))
    except KeyError as missing:
        raise AuthorityUnusable(f"it lacks {missing}") from missing
    except ValueError as malformed:
        raise AuthorityUnusable(str(malformed)) from malformed
    return {"ca.crt": trusted, "tls.crt": issued.certificate, "tls.key": issued.key}


def change_of_phase(authority: LiveObject, to: RotationPhase, name: str) -> dict[str, str | None]:
    """Return the changes of the secret's data that begin the phase ``to``; None removes a part.

    ``name`` is part of the name of a new authority. Raises AuthorityUnusable if ``to`` does not
    follow the phase of the secret, or if the secret lacks a part.
    """
    data = authority.get("data") or {}
    phase = phase_of(data)
    if phase.following is not to:
        raise AuthorityUnusable(f"its phase is {phase}, so {to} does not follow")
    try:
        match to:
            case RotationPhase.TRUST:
                new = make_authority(name)
                return encoded({"next.crt": new.certificate, "next.key": new.key})
            case RotationPhase.SIGN:
                return {
                    "tls.crt": data["next.crt"],
                    "tls.key": data["next.key"],
                    "previous.crt": data["tls.crt"],
                    "previous.key": data["tls.key"],
                    "next.crt": None,
                    "next.key": None,
                }
            case RotationPhase.RETIRE:
                return {"previous.key": None}
            case RotationPhase.SETTLED:
                return {"previous.crt": None}
    except KeyError as missing:
        raise AuthorityUnusable(f"it lacks {missing}") from missing


def encoded(parts: Mapping[str, bytes]) -> dict[str, str | None]:
    """Return parts in base64, as the data of a secret has them."""
    return {part: base64.b64encode(content).decode() for part, content in parts.items()}


def _parts(secret: LiveObject) -> dict[str, bytes]:
    """Return the decoded parts of a secret; a part that is not base64 is empty."""
    decoded = {}
    for part, content in (secret.get("data") or {}).items():
        try:
            decoded[part] = base64.b64decode(content)
        except ValueError:
            decoded[part] = b""
    return decoded
