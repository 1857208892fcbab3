"""The commands that convert key stores of 0.13.2 write PEM files that can be used."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
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
    check(tmp_path / "key store", tmp_path / "trust")

    # The conversion of a JKS store leaves a PKCS12 archive, which is a store of the other kind.
    store, trust = tmp_path / "key store-converted.p12", tmp_path / "trust-converted.p12"
    run(*identity_commands(str(store), "PKCS12"), *trust_commands(str(trust), "pkcs12"))
    check(tmp_path / "key store-converted", tmp_path / "trust-converted")


def check(identity: Path, trust: Path) -> None:
    context = TlsConfig(
        certificate=identity.with_suffix(".pem"),
        key=identity.with_suffix(".key"),
        ca=trust.with_suffix(".pem"),
    ).listening_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509"] == 1
