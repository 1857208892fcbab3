"""TLS: which certificates to show and to trust, and the contexts made of them. Touches PEM files.

The rules are those of Waltz 0.13.2 (wire.md section 1): without a certificate a throw-away
self-signed one is made; without a CA any peer is accepted; with a CA a listener requires a
certificate of it. Names are checked only if ``server_name`` is set.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


class TlsConfigError(ValueError):
    """The TLS settings cannot be used; the text names the file and the reason."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """How to secure connections. ``certificate`` and ``key`` are PEM files and go together.

    ``ca`` is a PEM file of trusted certificates: it turns verification on, in both directions.
    ``server_name`` is the name that a dialed peer's certificate must bear (None: not checked).
    """

    enabled: bool = True
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    server_name: str | None = None
    verify_server_name: bool = True

    def listening_context(self) -> ssl.SSLContext | None:
        """Return the context of a listener, None for plaintext; raises TlsConfigError."""
        if not self.enabled:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context, self_signed_without=True)
        if self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def dialing_context(self) -> ssl.SSLContext | None:
        """Return the context of a dialing side, None for plaintext; raises TlsConfigError."""
        if not self.enabled:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.server_name is not None and self.ca is not None
        context.verify_mode = ssl.CERT_NONE if self.ca is None else ssl.CERT_REQUIRED
        self._load(context, self_signed_without=False)
        return context

    def _load(self, context: ssl.SSLContext, *, self_signed_without: bool) -> None:
        if (self.certificate is None) != (self.key is None):
            raise TlsConfigError("TLS certificate and key go together: set both or neither")
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
            elif self_signed_without:
                _load_self_signed(context)
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(f) for f in (self.certificate, self.key, self.ca) if f)
            raise TlsConfigError(
                f"cannot use the TLS files ({files}): {error}. They must be readable PEM files"
            ) from error


PLAINTEXT = TlsConfig(enabled=False)


def _load_self_signed(context: ssl.SSLContext) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waltz self-signed")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    # The ssl module reads certificates only from files.
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
