"""The rules and quotas that the connections of a server share."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from waltz.metadata.core.access_rules import AccessRules, Grant, Right
from waltz.net import FrameConnection
from waltz_server.core.access.client_quotas import QuotaLimits
from waltz_server.shell.access_control import (
    AccessControl,
    ConnectionAccess,
    close_without_right,
)

READ = Grant("app", Right.READ, 0, 3)
RULES = AccessRules((READ,))
CERTIFICATE = {"subjectAltName": (("DNS", "app"),)}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def control(*, required: bool = False, **limits: int) -> AccessControl:
    return AccessControl(Clock(), required=required, limits=QuotaLimits(**limits))


@pytest.mark.parametrize(
    ("limits", "rules", "checks"),
    [
        ({}, None, False),
        ({}, RULES, True),
        ({"append_bytes_per_second": 10}, None, True),
        ({"connections": 10}, RULES, True),
    ],
)
def test_appends_are_checked_while_there_are_rules_or_quotas(
    limits: dict[str, int], rules: AccessRules | None, checks: bool
) -> None:
    made = AccessControl(Clock(), limits=QuotaLimits(**limits))
    assert made.checks_appends is bool(limits)
    made.replace(rules)
    assert made.checks_appends is checks
    made.replace(None)
    assert made.checks_appends is bool(limits)


def test_required_rules_deny_everything_until_there_are_grants() -> None:
    made = control(required=True)
    assert made.checks_appends
    client = ConnectionAccess(made, "10.0.0.7:1", CERTIFICATE)
    assert client.denial(Right.READ, 0) is not None
    assert not made.replace(None), "absent rules have no grants either"
    assert client.denial(Right.READ, 0) is not None
    assert made.replace(RULES)
    assert client.denial(Right.READ, 0) is None
    assert client.denial(Right.APPEND, 0) is not None
    assert made.replace(None)
    assert client.denial(Right.READ, 0) is not None


def test_replacing_rules_by_equal_ones_reports_no_change() -> None:
    made = control()
    assert not made.replace(None)
    assert made.replace(RULES)
    assert not made.replace(AccessRules((READ,)))


def test_changes_of_grants_are_logged_and_those_of_the_start_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    made = control()
    made.replace(RULES)
    assert not [text for text in caplog.messages if "for app" in text]
    made.replace(AccessRules((Grant("app", Right.APPEND, 0, 1),)))
    assert [text for text in caplog.messages if "for app" in text] == [
        "access rules: granted append on partitions 0 to 1 for app",
        "access rules: revoked read on partitions 0 to 3 for app",
    ]


def test_first_denial_of_a_kind_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    made = control()
    made.replace(RULES)
    client = ConnectionAccess(made, "10.0.0.7:1", CERTIFICATE)
    assert client.denial(Right.APPEND, 2) == client.denial(Right.APPEND, 2)
    assert len([text for text in caplog.messages if "refused a request" in text]) == 1


def test_end_of_a_connection_is_counted_once_and_only_if_it_was_accepted() -> None:
    made = control(connections=2)
    first, second, refused = (ConnectionAccess(made, f"10.0.0.7:{n}", None) for n in range(3))
    assert first.enter() is None
    assert second.enter() is None
    assert "client 10.0.0.7 has 2 open connections" in str(refused.enter())
    refused.leave()
    assert refused.enter() is not None, "the refused connection was not counted"
    first.leave()
    first.leave()
    assert refused.enter() is None, "one connection has ended"
    assert ConnectionAccess(made, "10.0.0.7:9", None).enter() is not None, "and only one"
    assert ConnectionAccess(made, "10.0.0.8:1", None).enter() is None, "another host"


def test_connection_that_exceeds_the_rate_is_read_again_when_the_rate_is_kept() -> None:
    made = control(append_bytes_per_second=10)
    client = ConnectionAccess(made, "10.0.0.7:1", None)
    assert client.appended(1000) == 0.0, "the connection is not counted"
    client.enter()
    assert client.appended(10) == 0.0
    assert client.appended(20) == 102.0


class Connection:
    def __init__(self, name: str | None) -> None:
        self.peer = f"host of {name}"
        self.peer_certificate = None if name is None else {"subjectAltName": (("DNS", name),)}
        self.closed: list[str] = []

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def test_only_connections_that_lost_the_right_to_read_a_partition_of_the_server_are_closed() -> (
    None
):
    app, again, other, anonymous = (Connection(name) for name in ("app", "app", "other", None))
    connections = cast(Any, [app, again, other, anonymous])
    close_without_right(cast(list[FrameConnection], connections), RULES, AccessRules(), {7})
    assert [each.closed for each in connections] == [[], [], [], []]
    close_without_right(connections, RULES, AccessRules(), {3, 7})
    reason = ["the right to read partition 3 was revoked"]
    assert [each.closed for each in connections] == [reason, reason, [], []]
