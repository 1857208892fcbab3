"""Test which certificates satisfy the names that a port allows."""

from __future__ import annotations

from typing import Any

import pytest

from waltz.net import EVERYONE, AllowedNames
from waltz.net.core.allowed_names import certificate_names

CERTIFICATE: dict[str, Any] = {
    "subject": ((("organizationName", "Example"),), (("commonName", "server-0"),)),
    "issuer": ((("commonName", "authority"),),),
    "subjectAltName": (
        ("DNS", "server-0.example"),
        ("URI", "spiffe://example/server"),
        ("IP Address", "10.0.0.1"),
        ("email", "a@example"),
    ),
}


def test_names_are_the_common_name_of_the_subject_and_the_dns_names_and_uris() -> None:
    assert certificate_names(CERTIFICATE) == {
        "server-0",
        "server-0.example",
        "spiffe://example/server",
    }


@pytest.mark.parametrize(
    "names",
    [("server-0",), ("other", "server-0.example"), ("spiffe://example/server",)],
)
def test_certificate_with_an_allowed_name_is_accepted(names: tuple[str, ...]) -> None:
    assert AllowedNames("x", names).refusal(CERTIFICATE) is None


@pytest.mark.parametrize(
    "names", [(), ("authority",), ("Example",), ("10.0.0.1",), ("server",), ("*.example",)]
)
def test_certificate_without_an_allowed_name_is_refused(names: tuple[str, ...]) -> None:
    assert AllowedNames("x.names", names).refusal(CERTIFICATE) == (
        "its certificate has server-0, server-0.example, spiffe://example/server; x.names must "
        "contain a name of the certificate before the peer may use this port"
    )


@pytest.mark.parametrize("certificate", [None, {}])
def test_peer_without_certificate_is_refused(certificate: dict[str, Any] | None) -> None:
    assert AllowedNames("x.names", ("server",)).refusal(certificate) == (
        "it has shown no verified certificate; before it may use this port, it must show one with "
        "a name that x.names contains"
    )


def test_certificate_without_a_name_is_refused() -> None:
    refusal = AllowedNames("x", ("server",)).refusal({"version": 3})
    assert refusal is not None
    assert refusal.startswith("its certificate has no name; ")


def test_certificate_is_not_read_if_everyone_is_allowed() -> None:
    assert EVERYONE.refusal(None) is None
