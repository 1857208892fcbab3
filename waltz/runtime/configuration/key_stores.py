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
    """Yield an error if the settings name a key store.

    ``old_settings`` has the values of those settings of Waltz 0.13.2 that are set, and that this
    system does not use. ``prefix`` begins the names of the store's settings, such as
    ``server.ssl.keyStore``. ``commands`` takes the location and the type of a store, and returns
    the shell commands that convert the store. ``replacing`` names the settings to use instead.
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

    The PEM files are in the folder of the store. Their names begin with the whole name of the
    store: server.keystore and server.truststore must not give the same file.
    """
    path = PurePath(store)
    commands, archive = _as_archive(path, kind, "-converted.p12")
    read = f"openssl pkcs12 -in {_quoted(archive)} -passin env:STORE_PASSWORD"
    return [
        *commands,
        f"{read} -nokeys -out {_quoted(_beside(path, '.pem'))}",
        f"{read} -nocerts -nodes -out {_quoted(_beside(path, '.key'))}",
    ]


def trust_commands(store: str, kind: str) -> list[str]:
    """Return the shell commands that convert a trust store to a PEM file in the same folder.

    One file may be both the key store and the trust store. So the names of the files that these
    commands write differ from those of `identity_commands`.
    """
    path = PurePath(store)
    commands, archive = _as_archive(path, kind, "-ca-converted.p12")
    read = f"openssl pkcs12 -in {_quoted(archive)} -passin env:STORE_PASSWORD"
    return [*commands, f"{read} -nokeys -out {_quoted(_beside(path, '-ca.pem'))}"]


def _as_archive(store: PurePath, kind: str, ending: str) -> tuple[list[str], PurePath]:
    """Return the commands that make a PKCS12 archive of a store, and the archive's path.

    ``kind`` is the type of the store. ``openssl`` reads only PKCS12 archives. A store whose type is
    not JKS is taken to be such an archive, and needs no command. The archive of a JKS store has the
    name of the store, followed by ``ending``.
    """
    if kind.upper() != _JKS:
        return [], store
    archive = _beside(store, ending)
    convert = (
        f"keytool -importkeystore -srckeystore {_quoted(store)} -srcstorepass:env STORE_PASSWORD "
        f"-destkeystore {_quoted(archive)} -deststoretype PKCS12 "
        "-deststorepass:env STORE_PASSWORD"
    )
    return [convert], archive


def _beside(store: PurePath, ending: str) -> PurePath:
    """Return the path of the file beside ``store`` whose name is the store's and ``ending``."""
    return store.with_name(f"{store.name}{ending}")


def _quoted(path: PurePath) -> str:
    return shlex.quote(str(path))
