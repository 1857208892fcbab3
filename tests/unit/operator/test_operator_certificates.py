"""The certificates that the operator makes."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from waltz_operator.core.authority import Holder
from waltz_operator.shell.certificates import issue, make_authority, names_of

CLOCK_DIFFERENCE = datetime.timedelta(minutes=59)


def test_certificates_are_valid_on_nodes_whose_clocks_are_slow() -> None:
    authority = make_authority("log")
    slow = datetime.datetime.now(datetime.UTC) - CLOCK_DIFFERENCE
    for pair in (authority, issue(authority, "log.waltz")):
        assert x509.load_pem_x509_certificate(pair.certificate).not_valid_before_utc < slow


@pytest.mark.parametrize("length", [3, 54, 55, 63, 64, 200])
def test_authority_of_a_long_name_differs_from_the_certificate_that_it_signs(length: int) -> None:
    name = "l" * length
    authority = make_authority(name)
    leaf = x509.load_pem_x509_certificate(
        issue(authority, f"{name}.waltz", Holder.PROCESSES).certificate
    )
    assert leaf.issuer == x509.load_pem_x509_certificate(authority.certificate).subject
    assert leaf.issuer != leaf.subject


@pytest.mark.parametrize(
    ("holder", "usages"),
    [
        (Holder.PROCESSES, {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}),
        (Holder.CLIENTS, {ExtendedKeyUsageOID.CLIENT_AUTH}),
    ],
)
def test_certificate_has_the_usages_and_the_name_of_its_holder(
    holder: Holder, usages: set[ObjectIdentifier]
) -> None:
    issued = issue(make_authority("log"), "client.log.waltz", holder)
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    assert {*certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value} == usages
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["client.log.waltz"]


def test_certificate_is_valid_for_outside_names_and_addresses() -> None:
    other_hosts = ("node.example", "192.0.2.7", "2001:db8::7")
    issued = issue(make_authority("log"), "log.waltz", other_hosts=other_hosts)
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["log.waltz", "node.example"]
    assert [*map(str, found.get_values_for_type(x509.IPAddress))] == ["192.0.2.7", "2001:db8::7"]
    assert names_of(issued.certificate) == {"log.waltz", *other_hosts}
