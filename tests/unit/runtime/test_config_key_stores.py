"""The commands that convert key stores of 0.13.2 write PEM files that can be used."""

from __future__ import annotations

import os
import shlex
import shutil
import ssl
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from waltz.net import TlsConfig
from waltz.runtime.configuration.key_stores import identity_commands, trust_commands

_PASSWORD = "change it"

needs_tools = pytest.mark.skipif(
    shutil.which("keytool") is None or shutil.which("openssl") is None,
    reason="keytool and openssl are not installed",
)


def run(*commands: str) -> None:
    environment = os.environ | {"STORE_PASSWORD": _PASSWORD}
    subprocess.run(
        " && ".join(commands), shell=True, check=True, capture_output=True, env=environment
    )


@needs_tools
def test_conversion_commands_write_usable_pem_files(tmp_path: Path) -> None:
    store, trust = tmp_path / "key store.jks", tmp_path / "trust.jks"
    certificate, shared = tmp_path / "certificate", "-storetype JKS -storepass:env STORE_PASSWORD"
    key = "-keyalg RSA -alias waltz -dname CN=waltz -keypass:env STORE_PASSWORD"
    run(
        f"keytool -genkeypair {key} -keystore '{store}' {shared}",
        f"keytool -exportcert -alias waltz -keystore '{store}' {shared} -file '{certificate}'",
        f"keytool -importcert -noprompt -alias c -file '{certificate}' "
        f"-keystore '{trust}' {shared}",
    )
    run(*identity_commands(str(store), "JKS"), *trust_commands(str(trust), "jks"))
    check(store, trust)

    # The conversion of a JKS store leaves a PKCS12 archive, which is a store of the other kind.
    store = tmp_path / "key store.jks-converted.p12"
    trust = tmp_path / "trust.jks-ca-converted.p12"
    run(*identity_commands(str(store), "PKCS12"), *trust_commands(str(trust), "pkcs12"))
    check(store, trust)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize(
    ("store", "trust"),
    [("/etc/server.keystore", "/etc/server.truststore"), ("/etc/server.jks", "/etc/server.jks")],
)
def test_conversion_commands_of_a_key_store_and_a_trust_store_write_different_files(
    store: str, trust: str, kind: str
) -> None:
    of_store = written(identity_commands(store, kind))
    of_trust = written(trust_commands(trust, kind))
    assert of_store
    assert of_trust
    assert not of_store & of_trust
    assert not {store, trust} & (of_store | of_trust)


def written(commands: list[str]) -> set[str]:
    """Return the files that ``commands`` write."""
    files = set()
    for command in commands:
        words = shlex.split(command)
        files |= {file for option, file in pairwise(words) if option in ("-destkeystore", "-out")}
    return files


def check(identity: Path, trust: Path) -> None:
    """Load the PEM files of a key store and a trust store."""
    context = TlsConfig(
        certificate=identity.with_name(f"{identity.name}.pem"),
        key=identity.with_name(f"{identity.name}.key"),
        ca=trust.with_name(f"{trust.name}-ca.pem"),
    ).listening_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509"] == 1
