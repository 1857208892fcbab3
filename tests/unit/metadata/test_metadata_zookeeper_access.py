"""Test the credentials for ZooKeeper and the ACLs that follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from waltz.metadata.kazoo_security import protection
from waltz.metadata.zookeeper_access import (
    OPEN_ACCESS,
    BadCredentials,
    Credentials,
    ZooKeeperAccess,
    read_credentials,
)


@pytest.mark.parametrize(
    ("content", "credentials"),
    [
        ("waltz:secret", ("waltz", "secret")),
        ("waltz:secret\n", ("waltz", "secret")),
        ("waltz:with:colon \r\n", ("waltz", "with:colon ")),
        ("größe:ß\n", ("größe", "ß")),
    ],
)
def test_credentials_are_read_from_one_line(
    tmp_path: Path, content: str, credentials: tuple[str, str]
) -> None:
    file = tmp_path / "user"
    file.write_bytes(content.encode())
    assert read_credentials(file) == Credentials(*credentials)


@pytest.mark.parametrize("content", ["", "\n", "secret", ":secret", "waltz:", "a:b\nc:d\n"])
def test_malformed_credentials_are_refused_without_showing_them(
    tmp_path: Path, content: str
) -> None:
    file = tmp_path / "user"
    file.write_text(content)
    with pytest.raises(BadCredentials) as refused:
        read_credentials(file)
    assert str(refused.value) == (
        f"{file} has no credentials for ZooKeeper: it must contain one line, user:password"
    )


def test_unreadable_credentials_are_refused_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(BadCredentials, match=f"cannot read .* in {tmp_path}: .*Is a directory"):
        read_credentials(tmp_path)


def test_password_is_not_in_the_representation() -> None:
    assert repr(Credentials("waltz", "secret")) == "Credentials(user='waltz')"


def test_open_access_protects_nothing() -> None:
    made = protection(OPEN_ACCESS)
    assert (made.auth_data, made.owner_writes_acl, made.everyone_writes_acl) == ((), None, None)


def test_user_owns_its_znodes_and_everyone_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "user"
    file.write_text("waltz:secret")
    made = protection(ZooKeeperAccess(credentials=file))
    assert made.auth_data == (("digest", "waltz:secret"),)
    assert made.owner_writes_acl is not None
    assert made.everyone_writes_acl is not None
    entries = [(acl.id.scheme, acl.id.id, acl.acl_list) for acl in made.owner_writes_acl]
    # The hash is that of ZooKeeper's own DigestAuthenticationProvider for waltz:secret.
    assert entries == [
        ("digest", "waltz:PWd3wMZXs87DOKqOzHvSfX0/vxw=", ["ALL"]),
        ("world", "anyone", ["READ"]),
    ]
    assert made.everyone_writes_acl[0] == made.owner_writes_acl[0]
    assert made.everyone_writes_acl[1].acl_list == ["READ", "WRITE"]


def test_certificate_owner_is_the_identity_of_the_session() -> None:
    made = protection(ZooKeeperAccess(by_certificate=True))
    assert made.auth_data == ()
    assert made.owner_writes_acl is not None
    assert [(acl.id.scheme, acl.acl_list) for acl in made.owner_writes_acl] == [
        ("auth", ["ALL"]),
        ("world", ["READ"]),
    ]
