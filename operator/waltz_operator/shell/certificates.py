"""Create a cluster's certificate authority, and issue certificates for its processes and clients.

All processes share one certificate. It contains one server name for the whole cluster instead of
addresses, because pods' addresses change. Touches the clock and random numbers.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from waltz_operator.core.authority import Holder

_AUTHORITY_DAYS = 3650
"""How long an authority is valid. Before its end it is rotated: see `core.planning.rotation`."""

_CERTIFICATE_DAYS = 365
"""How long a certificate of the processes or the clients is valid."""

_USAGES = {
    Holder.PROCESSES: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    Holder.CLIENTS: (ExtendedKeyUsageOID.CLIENT_AUTH,),
}
"""What the certificates of each holder may be used for.

Clients lack SERVER_AUTH: a program that dials rejects a peer without it, so no client can pose as a
server.
"""

_LONGEST_COMMON_NAME = 64
"""The most characters of a common name (RFC 5280, ub-common-name)."""

_AUTHORITY_SUFFIX = " authority"
"""The end of an authority's common name, which is never cut off.

It has a space, which no server name has. So the authority's name differs from the name of every
certificate that the authority signs. If the names were equal, the certificate would count as
self-signed: its issuer and subject are equal (RFC 5280 section 6.1).
"""

_BACKDATING = datetime.timedelta(hours=1)
"""How long before its issue a certificate becomes valid, because the clocks of nodes differ."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes


def make_authority(name: str) -> KeyPair:
    """Return a new certificate authority; ``name`` is part of its common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name, _AUTHORITY_SUFFIX)
    certificate = (
        _builder(subject, subject, key.public_key(), _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _as_pem(certificate, key)


def issue(
    authority: KeyPair,
    name: str,
    holder: Holder = Holder.PROCESSES,
    *,
    other_hosts: Iterable[str] = (),
    days: int = _CERTIFICATE_DAYS,
) -> KeyPair:
    """Return a certificate for ``name``, with the usages of ``holder``, signed by ``authority``.

    The certificate is also valid for the names and IP addresses ``other_hosts``. ``days`` is how
    long it is valid. Raises ValueError if ``authority`` cannot be decoded, or if its key is not a
    key of an elliptic curve.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    try:
        issuer_key = serialization.load_pem_private_key(authority.key, password=None)
    except (TypeError, UnsupportedAlgorithm) as unusable:
        raise ValueError(f"its key cannot be used: {unusable}") from unusable
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("its key is not a key of an elliptic curve")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(name), issuer.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USAGES[holder]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName(name), *(_alternative_name(host) for host in other_hosts)]
            ),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _as_pem(certificate, key)


def days_left(certificate: bytes, now: datetime.datetime | None = None) -> float:
    """Return the remaining validity of a certificate in PEM, in days; negative after its end.

    ``now`` is by default the present time. Raises ValueError if the certificate cannot be decoded.
    """
    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return (end - (now or datetime.datetime.now(datetime.UTC))) / datetime.timedelta(days=1)


def age_seconds(certificate: bytes, now: datetime.datetime) -> float:
    """Return the seconds since a certificate in PEM was issued by this module.

    Raises ValueError if the certificate cannot be decoded.
    """
    issued_at = x509.load_pem_x509_certificate(certificate).not_valid_before_utc + _BACKDATING
    return (now - issued_at).total_seconds()


def names_of(certificate: bytes) -> frozenset[str]:
    """Return the names and IP addresses that a certificate in PEM is valid for.

    The result is empty if the certificate lists none. Raises ValueError if the certificate cannot
    be decoded.
    """
    try:
        alternative_names = x509.load_pem_x509_certificate(
            certificate
        ).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, x509.DuplicateExtension):
        return frozenset()
    names = alternative_names.value.get_values_for_type(x509.DNSName)
    addresses = map(str, alternative_names.value.get_values_for_type(x509.IPAddress))
    return frozenset((*names, *addresses))


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 fingerprint of a certificate in PEM.

    Raises ValueError if the certificate cannot be decoded.
    """
    return x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256()).hex()


def fingerprints(certificates: bytes) -> frozenset[str]:
    """Return the fingerprints of all certificates in a PEM file.

    Raises ValueError if the file has no certificate, or one that cannot be decoded.
    """
    decoded = x509.load_pem_x509_certificates(certificates)
    return frozenset(each.fingerprint(hashes.SHA256()).hex() for each in decoded)


def serial_number(certificate: bytes) -> int:
    """Return the serial number of a certificate in PEM, which no other certificate has.

    Raises ValueError if the certificate cannot be decoded.
    """
    return x509.load_pem_x509_certificate(certificate).serial_number


def was_signed_by(certificate: bytes, authority: bytes) -> bool:
    """Whether the key of ``authority`` has signed ``certificate``; both are in PEM.

    False if ``authority`` cannot be decoded. Raises ValueError if ``certificate`` cannot be.
    """
    signed = x509.load_pem_x509_certificate(certificate)
    try:
        signed.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (InvalidSignature, TypeError, ValueError):
        # TypeError: a kind of key that signs no certificates. ValueError: another issuer's name, or
        # ``authority`` cannot be decoded.
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    """Return the builder of a certificate for ``key`` that is valid for ``days``."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATING)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the usages of a key: signatures and, if ``signs_certificates``, an authority's."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    """Return a name or an IP address as an alternative name of a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(name: str, suffix: str = "") -> x509.Name:
    """Return ``name`` and ``suffix`` as a common name; ``name`` is cut if it is too long."""
    # A cut name does no harm: clients verify the subject alternative name instead.
    common_name = name[: _LONGEST_COMMON_NAME - len(suffix)] + suffix
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _as_pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    """Return a certificate and its key in PEM; the key is not encrypted."""
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
