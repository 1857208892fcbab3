"""How to convert the Java key stores of 0.13.2, which are not read here. Touches nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

_JKS = "JKS"


def key_store_problem(
    store: str,
    commands: Callable[[str, str], list[str]],
    replacing: str,
    ignored: Mapping[str, Any],
) -> Iterator[str]:
    """Yield how to convert ``store``, if it is set, and which settings are ``replacing`` it."""
    location = ignored.get(f"{store}.location")
    if location is not None:
        kind = str(ignored.get(f"{store}.type", _JKS))
        yield (
            f"{store}.location is a Java key store, which is not read: convert it, with its "
            f"password in STORE_PASSWORD, by: {' && '.join(commands(str(location), kind))}; then "
            f"set {replacing}"
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
    """Return the commands that make an archive for ``openssl``, the archive, and the store."""
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
