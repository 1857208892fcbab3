"""TLS, authentication and ACLs for kazoo. Touches the network from kazoo's threads."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, make_acl, make_digest_acl

from waltz.metadata.zookeeper_access import ZooKeeperAccess, read_credentials
from waltz.net.tls import TlsConfig


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is not typed
    """The threads and sockets of kazoo, with TLS connections by the settings in ``tls``.

    kazoo's own TLS accepts certificates of the system's public authorities, not only those of the
    CA. It verifies a certificate only for the host in the connect string, not for the server name
    of the settings. It does not tell why a handshake failed.
    """

    def __init__(self, tls: TlsConfig) -> None:
        super().__init__()
        self._tls = tls
        self.problem = ""
        """Why the last handshake failed; empty if none failed."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: Any
    ) -> ssl.SSLSocket:
        """Connect to ``address`` and verify the certificate for ``hostname``. Raises OSError."""
        context = self._tls.dialing_context()
        assert context is not None, "the handler is for TLS"
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = self._tls.server_name or hostname
            return context.wrap_socket(plain, server_hostname=name)
        except OSError as error:
            plain.close()
            # Only a refused certificate has a remedy of its own. Other errors may be temporary.
            if isinstance(error, ssl.SSLError):
                self.problem = self._tls.explain(error, hostname)
            raise


@dataclass(frozen=True, slots=True)
class Protection:
    """How a session authenticates, and the ACLs of the znodes that it creates.

    ``auth_data`` is the argument of kazoo: pairs of scheme and credential. With both ACLs, every
    process may read the znode. With ``owner_writes_acl``, only the identity of this session may
    write it. With ``everyone_writes_acl``, every process may write its data. None is the open ACL,
    with which every process may do everything.
    """

    auth_data: tuple[tuple[str, str], ...] = ()
    owner_writes_acl: tuple[ACL, ...] | None = None
    everyone_writes_acl: tuple[ACL, ...] | None = None


def protection(access: ZooKeeperAccess) -> Protection:
    """Return the protection that ``access`` asks for. Raises BadCredentials."""
    if access.credentials is not None:
        credentials = read_credentials(access.credentials)
        # Not the scheme `auth`, which stands for all identities of the session: if the session also
        # has a TLS certificate, every process with a certificate of this subject would own the
        # znodes.
        owner = make_digest_acl(credentials.user, credentials.password, all=True)
        auth_data = [("digest", f"{credentials.user}:{credentials.password}")]
    elif access.by_certificate:
        # ZooKeeper replaces this entry by the subject of the session's certificate.
        owner = make_acl("auth", "", all=True)
        auth_data = []
    else:
        return Protection()
    return Protection(
        tuple(auth_data),
        (owner, make_acl("world", "anyone", read=True)),
        (owner, make_acl("world", "anyone", read=True, write=True)),
    )
