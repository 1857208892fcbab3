"""Authentication and ACLs for kazoo. Touches the file of the credentials."""

from __future__ import annotations

from dataclasses import dataclass

from kazoo.security import ACL, make_acl, make_digest_acl

from waltz.metadata.zookeeper_access import ZooKeeperAccess, read_credentials


@dataclass(frozen=True, slots=True)
class Protection:
    """How a session authenticates, and the ACLs of the znodes that it creates.

    ``auth_data`` is the argument of kazoo: pairs of scheme and credential.

    Both ACLs let every process read the znode. With ``owner_writes_acl``, only the identity of this
    session may change it. With ``everyone_writes_acl``, every process may also write its data: it
    is for ``anyone_may_write`` of `MetadataStore.create`. An ACL that is None lets every process do
    everything.
    """

    auth_data: tuple[tuple[str, str], ...] = ()
    owner_writes_acl: tuple[ACL, ...] | None = None
    everyone_writes_acl: tuple[ACL, ...] | None = None


def protection(access: ZooKeeperAccess) -> Protection:
    """Return the protection that ``access`` asks for. Raises BadCredentials."""
    if access.credentials is not None:
        credentials = read_credentials(access.credentials)
        # Not the scheme `auth`, because it names all identities of the session. If the session also
        # had a TLS certificate, every process with a certificate of this subject would own the
        # znodes, too.
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
