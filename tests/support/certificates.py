"""Create a certificate authority and certificates for tests, as PEM files."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from waltz.net import TlsConfig


class Authority:
    """A certificate authority whose files live in one folder."""

    def __init__(self, folder: Path, name: str, parent: Authority | None = None) -> None:
        """Create an authority whose certificate ``parent`` issues; None: it is self-signed."""
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (parent or self)._sign(self._name, self._key, 365, authority=True)
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, server_name: str | None = None, days: int = 30) -> TlsConfig:
        """Return settings that show a certificate for ``name`` and trust this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key, days, authority=False)
        certificate_file = self._folder / f"{name}.pem"
        key_file = self._folder / f"{name}.key"
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return TlsConfig(
            certificate=certificate_file, key=key_file, ca=self.ca, server_name=server_name
        )

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, *, authority: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        name = subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(str(name))]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
