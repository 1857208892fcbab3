"""Test the rights of a client's connection, and the texts of denials."""

from __future__ import annotations

import shlex

import pytest

from waltz.metadata.core.access_rules import AccessRules, Grant, Right
from waltz_server.core.access.client_rights import ClientRights, revoked_partition

RULES = AccessRules((Grant("app", Right.READ, 0, 3),))


def rights(*names: str) -> ClientRights:
    return ClientRights("10.0.0.7:4711", frozenset(names))


def test_rights_follow_names_rights_and_partitions() -> None:
    app = rights("app", "other")
    assert app.allows(RULES, Right.READ, 3)
    assert app.allows(RULES, Right.READ, 3), "a repeated request has the same decision"
    assert not app.allows(RULES, Right.READ, 4)
    assert not app.allows(RULES, Right.APPEND, 3)
    assert not rights().allows(RULES, Right.READ, 3)


def test_decision_changes_with_the_rules() -> None:
    app = rights("app")
    assert app.allows(RULES, Right.READ, 0)
    assert not app.allows(AccessRules(), Right.READ, 0)
    assert app.allows(RULES, Right.READ, 0)


def test_denial_is_reported_once_until_the_rules_change() -> None:
    app = rights("app")
    assert not app.allows(RULES, Right.APPEND, 0)
    assert app.record_denial(Right.APPEND, 0)
    assert not app.record_denial(Right.APPEND, 0)
    assert app.record_denial(Right.APPEND, 1)
    assert not app.allows(AccessRules(), Right.APPEND, 0)
    assert app.record_denial(Right.APPEND, 0)


def test_denial_names_client_partition_and_remedy() -> None:
    assert rights("b", "a").denial_text(Right.APPEND, 5) == (
        "client 10.0.0.7:4711 (certificate of a, b) has no right to append to partition 5: grant "
        "the right with waltz access grant a append 5"
    )


@pytest.mark.parametrize("name", ["Payment Service", "*.example.com", "Jo's app"])
def test_denial_of_a_name_with_shell_characters_has_a_quoted_command(name: str) -> None:
    command = rights(name).denial_text(Right.READ, 5).partition("grant the right with ")[2]
    assert shlex.split(command) == ["waltz", "access", "grant", name, "read", "5"]
    assert command != f"waltz access grant {name} read 5"


def test_denial_of_a_client_without_names_asks_for_a_certificate() -> None:
    assert rights().denial_text(Right.READ, 5) == (
        "client 10.0.0.7:4711 has no right to read partition 5, because the server knows no name "
        "of the client: connect with TLS and a certificate that the server verifies"
    )


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (RULES, RULES, None),
        (RULES, AccessRules((Grant("app", Right.READ, 0, 1),)), 2),
        (AccessRules((Grant("app", Right.READ, 0, 1),)), RULES, None),
        (RULES, None, None),
        (None, RULES, 4),
        (None, None, None),
    ],
)
def test_partition_is_no_longer_readable_only_if_it_was_readable_before(
    before: AccessRules | None, after: AccessRules | None, lost: int | None
) -> None:
    assert revoked_partition(before, after, frozenset({"app"}), range(6)) == lost
