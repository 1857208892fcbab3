"""The commands that convert Java key stores of Waltz 0.13.2 to PEM files. Touches nothing.

Settings that name such key stores are errors, because this system reads only PEM files. The error
shows the commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

_JKS = "JKS"


def key_store_problem(
    prefix: str,
    commands: Callable[[str, str], list[str]],
    replacing: str,
    old_settings: Mapping[str, Any],
) -> Iterator[str]:
    """Yield an error if the location of a key store is set.

    ``old_settings`` has the settings of Waltz 0.13.2 that are set and that this system does not
    use. ``prefix`` begins the names of the store's settings, such as ``server.ssl.keyStore``.
    ``commands`` takes the location and the type of a store, and returns the shell commands that
    convert it. ``replacing`` names the settings to use instead.
    """
    location = old_settings.get(f"{prefix}.location")
    if location is not None:
        kind = str(old_settings.get(f"{prefix}.type", _JKS))
        yield (
            f"{prefix}.location is a Java key store, which is not read: convert it, with its "
            f"password in STORE_PASSWORD, by: {' && '.join(commands(str(location), kind))}; then "
            f"set {replacing}"
        )


def identity_commands(store: str, kind: str) -> list[str]:
    """Return the shell commands that convert a key store to PEM files of certificate and key.

    The PEM files are in the folder of the store.
    """
    commands, archive, path = _as_archive(store, kind)
    read = f"openssl pkcs12 -in {_quoted(archive)} -passin env:STORE_PASSWORD"
    return [
        *commands,
        f"{read} -nokeys -out {_quoted(path.with_suffix('.pem'))}",
        f"{read} -nocerts -nodes -out {_quoted(path.with_suffix('.key'))}",
    ]


def trust_commands(store: str, kind: str) -> list[str]:
    """Return the shell commands that convert a trust store to a PEM file in the same folder."""
    commands, archive, path = _as_archive(store, kind)
    read = f"openssl pkcs12 -in {_quoted(archive)} -passin env:STORE_PASSWORD"
    return [*commands, f"{read} -nokeys -out {_quoted(path.with_suffix('.pem'))}"]


def _as_archive(store: str, kind: str) -> tuple[list[str], PurePath, PurePath]:
    """Return the commands that make a PKCS12 archive, the archive's path, and the store's path.

    ``openssl`` reads only PKCS12. Each store whose type is not JKS is taken to be a PKCS12 archive.
    """
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
