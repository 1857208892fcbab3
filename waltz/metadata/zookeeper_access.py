"""How a process connects to ZooKeeper: TLS and credentials. Touches the file of the credentials.

ZooKeeper's scheme `digest` authenticates a user. The session sends the user's name and password to
ZooKeeper in clear, so the settings allow this scheme only with TLS and a CA. ZooKeeper needs no
list of users: an ACL contains a hash of the name and the password.

The other scheme for passwords, SASL DIGEST-MD5, is not used. It does not send the password itself,
but with TLS this is no advantage, and without TLS, MD5 is too weak to hide the password (RFC 6331).
Besides, kazoo needs pure-sasl for it, whose last release is of 2019.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from waltz.metadata.store import MetadataStore, StoreError
from waltz.net.tls import PLAINTEXT, TlsConfig


class BadCredentials(StoreError):
    """The file of ZooKeeper's credentials cannot be used. The text names the file."""


class AccessDenied(StoreError):
    """ZooKeeper refused an operation: by the ACL of a znode, or without authentication.

    Nothing was written.
    """


@dataclass(frozen=True, slots=True)
class Credentials:
    """The name and the password of a ZooKeeper user."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """How a process connects to ZooKeeper.

    ``tls`` are the TLS settings of the connection. ``credentials`` is a file with the line
    ``user:password``. With ``by_certificate``, ZooKeeper authenticates the process by the subject
    of its TLS certificate instead. With neither, the process is not authenticated, and every other
    process may change the znodes that this one creates.
    """

    tls: TlsConfig = PLAINTEXT
    credentials: Path | None = None
    by_certificate: bool = False

    def __post_init__(self) -> None:
        # With both, the znodes would belong to two identities, which no user wants.
        assert self.credentials is None or not self.by_certificate, "choose one identity"

    def remedy(self) -> str:
        """Return which identity this process used, and what to do if ZooKeeper refuses it."""
        if self.credentials is not None:
            return (
                f"this process used the user of {self.credentials}; zookeeper.authentication.file "
                "must name the user, and the password, with which the znode was created"
            )
        if self.by_certificate:
            return (
                f"this process used the certificate {self.tls.certificate}; its subject must be "
                "that of the certificate with which the znode was created"
            )
        return (
            "this process has no credentials; set zookeeper.authentication.file to a file with the "
            "user:password with which the znode was created"
        )


OPEN_ACCESS = ZooKeeperAccess()
"""Plaintext, and no authentication."""

OpenStore = Callable[[str, int, ZooKeeperAccess], Awaitable[MetadataStore]]
"""Opens a session: takes ZooKeeper's address, the session timeout in ms, and the access."""


def read_credentials(path: Path) -> Credentials:
    """Return the credentials in the file at ``path``. Raises BadCredentials."""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadCredentials(
            f"cannot read ZooKeeper's credentials in {path}: {problem}; the file must be readable "
            "and contain user:password"
        ) from None
    line = content.rstrip("\r\n")
    user, _, password = line.partition(":")
    if not user or not password or "\n" in line:
        # The content is not shown, because it may contain a password.
        raise BadCredentials(
            f"{path} has no credentials for ZooKeeper: it must contain one line, user:password"
        )
    return Credentials(user, password)
