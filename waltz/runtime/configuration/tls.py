"""The settings of TLS, and the answer to the key stores of 0.13.2, which are not read here. Pure.

A key store that is set and has no PEM file in its place is a problem, not a warning: whoever trusts
one authority only would accept anybody otherwise.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from waltz.net.tls import TlsConfig
from waltz.runtime.configuration.keys import Key, boolean, file, text

KEY_STORES = "PEM files are read here, named by *.tls.certificate, *.tls.key and *.tls.ca"
"""Why the ``*.ssl.*`` settings of 0.13.2 have no effect."""

_JKS = "JKS"


def listening_tls_keys(prefix: str) -> tuple[Key, ...]:
    """Return the TLS settings below ``prefix`` of a process that dials nobody."""
    return (
        Key(f"{prefix}enabled", boolean, True, "secure every connection; off means plaintext"),
        Key(f"{prefix}certificate", file, None, "PEM file to show; none: a self-signed one"),
        Key(f"{prefix}key", file, None, "PEM file of the certificate's key"),
        Key(f"{prefix}ca", file, None, "PEM file to verify peers with; none: any peer"),
    )


def tls_keys(prefix: str) -> tuple[Key, ...]:
    """Return the TLS settings below ``prefix`` (``server.tls.``, ``client.tls.`` …)."""
    return (
        *listening_tls_keys(prefix),
        Key(
            f"{prefix}serverName",
            text,
            None,
            "name that dialed peers' certificates must bear; not set: the host that is dialed",
        ),
        Key(
            f"{prefix}verifyServerName",
            boolean,
            True,
            "off accepts any name: for peers of 0.13.2, whose certificates need not bear one",
        ),
    )


def tls_config(values: Mapping[str, Any], prefix: str) -> TlsConfig:
    """Return the `TlsConfig` of the settings made by `tls_keys` or `listening_tls_keys`."""
    return TlsConfig(
        enabled=values[f"{prefix}enabled"],
        certificate=values[f"{prefix}certificate"],
        key=values[f"{prefix}key"],
        ca=values[f"{prefix}ca"],
        server_name=values.get(f"{prefix}serverName"),
        verify_server_name=values.get(f"{prefix}verifyServerName", True),
    )


def tls_problems(
    prefix: str, values: Mapping[str, Any], ignored: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a sentence for everything wrong with TLS below ``prefix`` (``server.``, or nothing).

    About a key store that nothing stands in for, it has the commands that turn the store into the
    PEM files which are to be set instead.
    """
    tls = f"{prefix}tls."
    if not values[f"{tls}enabled"]:
        return
    certificate, ca = values[f"{tls}certificate"], values[f"{tls}ca"]
    if (certificate is None) != (values[f"{tls}key"] is None):
        yield f"{tls}certificate and {tls}key go together: set both or neither"
    if ca is None and values.get(f"{tls}serverName") is not None:
        yield f"{tls}serverName is verified only with {tls}ca: set it, too"
    if certificate is None:
        wanted = f"{tls}certificate and {tls}key"
        yield from _key_store_problem(f"{prefix}ssl.keyStore", identity_commands, wanted, ignored)
    if ca is None:
        yield from _key_store_problem(
            f"{prefix}ssl.trustStore", trust_commands, f"{tls}ca", ignored
        )


def _key_store_problem(
    store: str,
    commands: Callable[[str, str], list[str]],
    wanted: str,
    ignored: Mapping[str, Any],
) -> Iterator[str]:
    location = ignored.get(f"{store}.location")
    if location is not None:
        kind = str(ignored.get(f"{store}.type", _JKS))
        yield (
            f"{store}.location is a Java key store, which is not read here: convert it, with its "
            f"password in STORE_PASSWORD, by: {' && '.join(commands(str(location), kind))}; then "
            f"set {wanted}"
        )


def identity_commands(store: str, kind: str) -> list[str]:
    """Return the shell commands that write a key store's certificate and key beside it, as PEM."""
    commands, archive, stem = _as_archive(store, kind)
    read = f"openssl pkcs12 -in {_quoted(archive)} -passin env:STORE_PASSWORD"
    return [
        *commands,
        f"{read} -nokeys -out {_quoted(stem.with_suffix('.pem'))}",
        f"{read} -nocerts -nodes -out {_quoted(stem.with_suffix('.key'))}",
    ]


def trust_commands(store: str, kind: str) -> list[str]:
    """Return the shell commands that write the certificates of a trust store beside it, as PEM."""
    commands, archive, stem = _as_archive(store, kind)
    read = f"openssl pkcs12 -in {_quoted(archive)} -passin env:STORE_PASSWORD"
    return [*commands, f"{read} -nokeys -out {_quoted(stem.with_suffix('.pem'))}"]


def _as_archive(store: str, kind: str) -> tuple[list[str], PurePath, PurePath]:
    """Return how a store becomes what ``openssl`` reads, where that is, and its stem."""
    path = PurePath(store)
    if kind.upper() != _JKS:
        return [], path, path
    archive = path.with_name(f"{path.stem}-converted.p12")
    convert = (
        f"keytool -importkeystore -srckeystore {_quoted(path)} -srcstorepass:env STORE_PASSWORD "
        f"-destkeystore {_quoted(archive)} -deststoretype PKCS12 "
        "-deststorepass:env STORE_PASSWORD"
    )
    return [convert], archive, path


def _quoted(path: PurePath) -> str:
    return shlex.quote(str(path))
