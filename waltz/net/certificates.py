"""Detect changed certificate files, read expiry dates, make a self-signed certificate.

Touches the files, and the clock for the self-signed certificate. `cryptography` is imported when it
is first needed: it takes longer to import than the rest of the client, and a client without a
certificate of its own never needs it.
"""

from __future__ import annotations

import datetime
import os
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SELF_SIGNED_DAYS = 3650
"""The validity of a self-signed certificate. It is longer than any process runs: each process makes
a certificate of its own."""

Stamp = tuple[tuple[int, int, int] | None, ...]
"""The modification time, inode and size of each of several files; None for an unreadable file.

Two stamps of the same files differ if a file was replaced after the first stamp was taken."""


def stamp_of(files: Sequence[Path]) -> Stamp:
    """Return the present stamp of ``files``."""
    return tuple(_stat(file) for file in files)


def expiry(certificate: Path) -> datetime.datetime:
    """Return when the first certificate in a PEM file expires. Raises OSError or ValueError.

    The first one is the certificate of the process. Those of its issuers may follow.
    """
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def load_self_signed(context: ssl.SSLContext) -> datetime.datetime:
    """Load a new self-signed certificate into ``context``; return when it expires.

    Raises OSError if no temporary file can be written.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waltz self-signed")])
    now = datetime.datetime.now(datetime.UTC)
    expires = now + datetime.timedelta(days=_SELF_SIGNED_DAYS)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clock of a peer may be behind the clock of this machine.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(expires)
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
    return expires


def _stat(file: Path) -> tuple[int, int, int] | None:
    """Return the entry of ``file`` in a `Stamp`."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
